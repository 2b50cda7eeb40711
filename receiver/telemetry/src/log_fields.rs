//! The fields of a line of the log: its message, and what it names. Any of them may contain text from outside.

use std::error::Error;
use std::fmt::{self, Debug};

use sidewinder_text::ExternalText;
use tracing::field::{Field, Visit};
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::Writer;

use sidewinder_base::causes::error_chain;

/// The name of the field with the message.
const MESSAGE: &str = "message";

/// Writes the message, then the other fields as `name=value`, errors with their causes. A value adds no line, and no escape
/// sequence.
#[derive(Clone, Copy, Debug)]
pub struct EscapedFields;

impl<'writer> FormatFields<'writer> for EscapedFields {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'writer>, fields: R) -> fmt::Result {
        let mut line = LineWriter { writer, is_empty: true, result: Ok(()) };
        fields.record(&mut line);
        line.result
    }
}

struct LineWriter<'writer> {
    writer: Writer<'writer>,
    is_empty: bool,
    result: fmt::Result,
}

impl LineWriter<'_> {
    fn write(&mut self, field: &Field, value: String) -> fmt::Result {
        if !std::mem::replace(&mut self.is_empty, false) {
            self.writer.write_char(' ')?;
        }
        let value = ExternalText::from(value);
        match (field.name(), self.writer.has_ansi_escapes()) {
            (MESSAGE, _) => write!(self.writer, "{value}"),
            // Italic, and dimmed.
            (name, true) => write!(self.writer, "\u{1b}[3m{name}\u{1b}[0m\u{1b}[2m=\u{1b}[0m{value}"),
            (name, false) => write!(self.writer, "{name}={value}"),
        }
    }
}

impl Visit for LineWriter<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.result = self.result.and_then(|()| self.write(field, format!("{value:?}")));
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        self.result = self.result.and_then(|()| self.write(field, error_chain(value)));
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use sidewinder_base::lock::lock;
    use tracing::warn;

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            lock(&self.0).write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn no_text_from_outside_adds_a_line_or_an_escape_sequence() {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(move || writer.clone())
            .without_time()
            .with_target(false)
            .with_ansi(false)
            .fmt_fields(EscapedFields)
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            let path = "/tmp/a\n WARN forged";
            let error = io::Error::other("\u{9b}2J");
            warn!(%path, quoted = path, error = &error as &dyn Error, "can't read {path}\u{1b}[2J");
        });
        let log = String::from_utf8(lock(&lines.0).clone()).unwrap();
        assert_eq!(
            log,
            " WARN can't read /tmp/a\\u{a} WARN forged\\u{1b}[2J path=/tmp/a\\u{a} WARN forged \
             quoted=\"/tmp/a\\n WARN forged\" error=\\u{9b}2J\n"
        );
    }
}
