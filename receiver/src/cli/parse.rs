//! Parses the command line. What is wrong with it is printed without an effect on the terminal: an argument may be the name of
//! somebody else's file.

use std::borrow::Cow;

use clap::Parser as _;
use clap::error::{ContextKind, ContextValue};
use sidewinder_text::escaped;

use super::Cli;

impl Cli {
    /// The command line of this process. If it is wrong, or asks for help, prints that and exits.
    pub(crate) fn from_command_line() -> Self {
        Self::try_parse().unwrap_or_else(|error| escape_arguments(error).exit())
    }
}

/// The same error with its arguments escaped.
fn escape_arguments(mut error: clap::Error) -> clap::Error {
    let escape = |text: &String| match escaped(text) {
        Cow::Owned(text) => Some(text),
        Cow::Borrowed(_) => None,
    };
    let is_hostile = |value: &ContextValue| match value {
        ContextValue::String(text) => escape(text).is_some(),
        ContextValue::Strings(texts) => texts.iter().any(|text| escape(text).is_some()),
        _ => false,
    };
    let context: Vec<(ContextKind, ContextValue)> =
        error.context().map(|(kind, value)| (kind, value.clone())).collect();
    if !context.iter().any(|(_, value)| is_hostile(value)) {
        return error;
    }
    for (kind, value) in context {
        let value = match value {
            ContextValue::String(text) => ContextValue::String(escaped(&text).into_owned()),
            ContextValue::Strings(texts) => {
                ContextValue::Strings(texts.iter().map(|text| escaped(text).into_owned()).collect())
            }
            // Suggestions repeat the arguments, in text that may have escape sequences of its own.
            ContextValue::StyledStr(_) | ContextValue::StyledStrs(_) if kind != ContextKind::Usage => {
                ContextValue::None
            }
            value => value,
        };
        error.insert(kind, value);
    }
    error
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;
    use clap::builder::Styles;

    use super::*;

    /// An argument that clears the screen and forges a line.
    const HOSTILE: &str = "\u{1b}[2J\u{9b}2J\nok";

    #[test]
    fn an_argument_adds_no_line_and_no_escape_sequence_to_an_error() {
        let attached = format!("--{HOSTILE}");
        let url = format!("--debuginfod={HOSTILE}");
        let probes = ["kprobe:a", "tracepoint:syscalls:sys_enter_a", "a"].map(|of| format!("{of}{HOSTILE}"));
        let probe_lines = probes.iter().map(|probe| vec!["record", "-a", "--probe", probe]);
        let lines: Vec<Vec<&str>> = vec![
            vec![HOSTILE],
            vec![&attached],
            vec!["record", &attached],
            vec!["record", "-p", HOSTILE],
            vec!["record", "-a", "-d", HOSTILE],
            vec!["record", "-a", "-C", HOSTILE],
            vec!["record", "-a", "-e", HOSTILE],
            vec!["record", "-a", "--format", HOSTILE],
            vec!["record", "-a", "--off-cpu", HOSTILE],
            vec!["record", "-a", "--span", HOSTILE],
            vec!["record", "-a", "--ui", HOSTILE],
            vec!["record", "-a", &url],
            vec!["inspect", "--pc", HOSTILE, "a"],
            vec!["view", "a", HOSTILE],
            vec!["diff", "a", HOSTILE, HOSTILE],
            vec!["diff", "--requests", HOSTILE, "a", "b"],
            vec!["check", HOSTILE],
            vec!["status", "--pid", HOSTILE],
            vec!["print-config", "--mode", HOSTILE],
        ];
        for line in lines.into_iter().chain(probe_lines) {
            let command = Cli::command().styles(Styles::plain());
            let error =
                command.try_get_matches_from(std::iter::once("sidewinder").chain(line.clone())).unwrap_err();
            // As on a terminal: otherwise clap leaves out what looks like a style.
            let text = escape_arguments(error).render().ansi().to_string();
            assert!(!text.contains(|it| it != '\n' && sidewinder_text::has_effect(it)), "{line:?}: {text:?}");
            assert!(!text.lines().any(|line| line.starts_with("ok")), "{line:?}: {text}");
        }
    }
}
