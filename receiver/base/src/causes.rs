//! Formats errors with their causes in one line. An error's own message does not include its source's.

use std::error::Error;
use std::fmt;

/// An error and its causes in one line.
pub fn error_chain(error: &dyn Error) -> String {
    format!("{error}{}", Causes(error.source()))
}

/// Displays an error's causes, outermost first, each after a colon.
pub(crate) struct Causes<'a>(pub(crate) Option<&'a (dyn Error + 'static)>);

impl fmt::Display for Causes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut causes = std::iter::successors(self.0, |cause: &&(dyn Error + 'static)| (*cause).source());
        causes.try_for_each(|cause| write!(f, ": {cause}"))
    }
}
