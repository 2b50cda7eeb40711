//! Errors in one line, each with what it is due to.

use std::error::Error;
use std::fmt;

/// An error in one line, with what it is due to.
pub(crate) fn error_chain(error: &dyn Error) -> String {
    let what = error.to_string();
    format!("{what}{}", ErrorChain { message: &what, source: error.source() })
}

/// What an error is due to, each cause behind a colon.
pub(crate) struct ErrorChain<'a> {
    /// What has been written already.
    pub(crate) message: &'a str,
    pub(crate) source: Option<&'a dyn Error>,
}

impl fmt::Display for ErrorChain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut said, mut cause) = (self.message.to_owned(), self.source);
        while let Some(error) = cause {
            // Some errors repeat their source in their own words.
            let words = error.to_string();
            if !said.ends_with(&words) {
                write!(f, ": {words}")?;
            }
            said = words;
            cause = error.source();
        }
        Ok(())
    }
}
