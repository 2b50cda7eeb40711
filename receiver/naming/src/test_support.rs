//! A naming stage for tests.

use crate::{Namer, NamingOptions, NamingStage};

/// A stage that has read nothing.
#[must_use]
pub fn naming_stage() -> NamingStage {
    NamingStage::new(Namer::new(NamingOptions::default()))
}
