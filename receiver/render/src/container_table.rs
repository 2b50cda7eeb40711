//! The busiest containers and units, for a terminal.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::container::ProfileContainer;
use crate::profile::Profile;
use crate::summary::percent;
use crate::table::{TableOptions, fitted};

/// The columns of a share.
const SHARE_COLUMNS: usize = 9;

/// The containers and units with the most events, one per line, with their share; empty if all events are of the same one.
#[must_use]
pub fn container_table(profile: &Profile, options: TableOptions) -> String {
    let mut events = BTreeMap::<&ProfileContainer, u64>::new();
    for sample in &profile.samples {
        if let Some(thread) = profile.threads.get(sample.thread.0 as usize) {
            *events.entry(&thread.container).or_default() += sample.count;
        }
    }
    if events.len() < 2 {
        return String::new();
    }
    let total = profile.total_count();
    let mut rows: Vec<_> = events.into_iter().collect();
    rows.sort_by_key(|(_, events)| Reverse(*events));
    let hidden = rows.split_off(rows.len().min(options.rows));
    let mut out = format!("\n{:>7}  CONTAINER OR UNIT\n", "TOTAL");
    for (container, events) in rows {
        let label = match container.label() {
            label if label.is_empty() => "outside of any".to_owned(),
            label => fitted(&label, options.columns.max(40) - SHARE_COLUMNS),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{:>6.2}%  {label}", percent(events, total));
    }
    if !hidden.is_empty() {
        let rest = hidden.iter().map(|(_, events)| events).sum();
        let _ = writeln!(out, "{:>6.2}%  in the other {}", percent(rest, total), hidden.len());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::tests::one_stack;
    use crate::profile::{ProfileSample, ThreadIndex};

    #[test]
    fn containers_have_their_share_if_there_are_several() {
        let mut profile = one_stack(&["main"]);
        assert_eq!(container_table(&profile, TableOptions::default()), "");
        let mut other = profile.threads[0].clone();
        other.container.unit = "nginx.service\u{1b}".into();
        profile.threads.push(other);
        profile.samples.push(ProfileSample { thread: ThreadIndex(1), count: 3, ..profile.samples[0] });
        let table = container_table(&profile, TableOptions::default());
        assert_eq!(
            table,
            "\n  TOTAL  CONTAINER OR UNIT\n 75.00%  nginx.service\\u{1b}\n 25.00%  outside of any\n"
        );
    }
}
