//! What terminals are told apart by, and telling people something.

use std::fmt;
use std::io::{IsTerminal, Write as _};

/// Whether what goes there is coloured: to a terminal that can show it, unless `NO_COLOR` is set (<https://no-color.org>).
pub(crate) fn supports_colour(stream: &impl IsTerminal) -> bool {
    let is_unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let can_show = std::env::var_os("TERM").is_none_or(|terminal| terminal != "dumb");
    stream.is_terminal() && can_show && !is_unwanted
}

/// Says something to the user on standard error. Where nobody listens any more, such as in a terminal that was closed,
/// there is nobody to tell.
pub(crate) fn print_notice(text: fmt::Arguments<'_>) {
    let _ = std::io::stderr().write_fmt(text);
}
