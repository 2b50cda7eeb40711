//! What terminals are told apart by.

use std::io::IsTerminal;

/// Whether what goes there is coloured: to a terminal that can show it, unless `NO_COLOR` is set (<https://no-color.org>).
pub(crate) fn is_coloured(stream: &impl IsTerminal) -> bool {
    let is_unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let can_show = std::env::var_os("TERM").is_none_or(|terminal| terminal != "dumb");
    stream.is_terminal() && can_show && !is_unwanted
}
