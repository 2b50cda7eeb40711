//! Formats errors with their causes in one line.

use std::error::Error;
use std::fmt;

/// An error and its causes in one line.
pub(crate) fn error_chain(error: &dyn Error) -> String {
    let message = error.to_string();
    format!("{message}{}", ErrorChain { message: &message, source: error.source() })
}

/// Formats the causes of an error, each after a colon.
pub(crate) struct ErrorChain<'a> {
    /// The error's own message, which has been written already.
    pub(crate) message: &'a str,
    pub(crate) source: Option<&'a dyn Error>,
}

impl fmt::Display for ErrorChain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut previous, mut cause) = (self.message.to_owned(), self.source);
        while let Some(error) = cause {
            // Some errors have the message of their source in their own.
            let message = error.to_string();
            if !previous.ends_with(&message) {
                write!(f, ": {message}")?;
            }
            previous = message;
            cause = error.source();
        }
        Ok(())
    }
}
