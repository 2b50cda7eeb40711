//! The keys of `top`, as its last line and its help list them.

use ratatui::text::{Line, Text};

use super::rows::View;

/// Every key, and what it does.
const KEYS: [(&str, &str); 12] = [
    ("q, Ctrl-C", "quit"),
    ("Tab", "show processes, or functions again"),
    ("Up, Down", "select a row; PageUp, PageDown, Home and End too"),
    ("Enter, Right", "the callers of the selected function; the functions of the selected process"),
    ("Esc, Left", "clear the filter; back; quit"),
    ("s, t, n", "sort by self, by total, by name"),
    ("/", "filter by part of the name, binary or PID"),
    ("f", "full or short names"),
    ("i", "inlined functions: all; all but standard libraries'; none"),
    ("+, -", "show a longer or shorter time range"),
    ("p, Space", "pause, or resume"),
    ("?", "these keys; any key closes them"),
];

/// What the last line of the screen says, in 80 columns.
pub(super) fn key_line(view: &View, has_way_back: bool) -> &'static str {
    match view {
        _ if has_way_back => "q quit  ? keys  Esc back  Enter callers  stn sort  / filter  +- time  p pause",
        View::Processes => "q quit  ? keys  Tab functions  Enter its functions  sn sort  / filter  +- time",
        _ => "q quit  ? keys  Tab PIDs  Enter callers  stn sort  / filter  +- time  p pause",
    }
}

/// All keys, one in a line.
pub(super) fn key_help() -> Text<'static> {
    let keys_columns = KEYS.iter().map(|(keys, _)| keys.len()).max().unwrap_or_default();
    KEYS.iter().map(|(keys, does)| Line::from(format!("  {keys:keys_columns$}  {does}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_fits_into_80_columns() {
        for line in [
            key_line(&View::Functions(None), false),
            key_line(&View::Processes, false),
            key_line(&View::Functions(None), true),
        ] {
            assert!(line.len() <= 80, "{line}");
        }
    }
}
