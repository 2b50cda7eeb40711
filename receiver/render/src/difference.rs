//! The difference between two recordings, for a terminal.

use std::collections::HashMap;
use std::fmt::Write;

use crate::functions::functions;
use crate::names::DisplayNames;
use crate::profile::Profile;
use crate::summary::percent;
use crate::table::{TableOptions, name_columns, pad};

/// The functions whose own share changed the most, one per line: the share before, the share after, the difference in
/// percentage points, the function's name.
#[must_use]
pub fn difference(before: &Profile, after: &Profile, names: &DisplayNames, options: TableOptions) -> String {
    let mut shares = HashMap::<(String, String), [f64; 2]>::new();
    for (part, profile) in [before, after].into_iter().enumerate() {
        let total = profile.total_count();
        for row in functions(profile) {
            let key = (names.shown(&row.name).into_owned(), row.binary.to_owned());
            let share = shares.entry(key).or_default();
            if let Some(share) = share.get_mut(part) {
                *share += percent(row.self_count, total);
            }
        }
    }
    let mut rows: Vec<_> =
        shares.into_iter().map(|((name, _), [old, new])| (new - old, old, new, name)).collect();
    rows.sort_by(|one, other| other.0.abs().total_cmp(&one.0.abs()).then_with(|| one.3.cmp(&other.3)));
    let columns = name_columns(options, 8);
    let mut out = format!("{:>7}  {:>7}  {:>8}  FUNCTION\n", "BEFORE", "AFTER", "CHANGE");
    for (change, old, new, name) in rows.iter().take(options.rows).filter(|row| row.0.abs() >= 0.005) {
        let colour = match change {
            _ if !options.is_coloured => None,
            change if *change > 0.0 => Some("38;2;240;142;60"),
            _ => Some("38;2;98;168;229"),
        };
        let change = format!("{change:>+8.2}");
        let change =
            colour.map_or_else(|| change.clone(), |colour| format!("\u{1b}[{colour}m{change}\u{1b}[0m"));
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{old:>6.2}%  {new:>6.2}%  {change}  {}", pad(name, columns).trim_end());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::tests::sample;

    #[test]
    fn the_greatest_change_comes_first_whatever_its_direction() {
        let mut after = sample();
        // All of `main`'s own events are now in `vfs_write`.
        after.samples[4].count += after.samples[0].count;
        after.samples.remove(0);
        let options = TableOptions { columns: 60, ..TableOptions::default() };
        assert_eq!(
            difference(&sample(), &after, &DisplayNames::default(), options),
            " BEFORE    AFTER    CHANGE  FUNCTION\n \
             21.43%    0.00%    -21.43  main\n \
             28.57%   50.00%    +21.43  vfs_write\n"
        );
    }
}
