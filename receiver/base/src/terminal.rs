//! Terminals: whether they show colours, and notices to the user.

use std::fmt;
use std::io::{IsTerminal, Write as _};

/// Whether output to this stream is coloured: it is a terminal that supports colours, and `NO_COLOR` is not set
/// (<https://no-color.org>).
pub fn supports_colour(stream: &impl IsTerminal) -> bool {
    let is_disabled = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let can_show = std::env::var_os("TERM").is_none_or(|terminal| terminal != "dumb");
    stream.is_terminal() && can_show && !is_disabled
}

/// Prints a text for the user on standard error. Errors are ignored: for example, the terminal may have been closed.
pub fn print_notice(text: fmt::Arguments<'_>) {
    let _ = std::io::stderr().write_fmt(text);
}
