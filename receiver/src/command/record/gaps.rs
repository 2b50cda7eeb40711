//! What has no name in a recording, and what would name it.

use serde_json::Value;

use crate::sampling::message::Message;
use crate::stripped::{InnermostFrames, StrippedBinaries};
use crate::unnamed::{self, UnnamedGroup, UnnamedSamples};

/// The samples of a recording that may lack names.
#[derive(Debug, Default)]
pub(super) struct GapSamples {
    pub(super) unnamed: UnnamedSamples,
    pub(super) innermost: InnermostFrames,
}

impl GapSamples {
    /// Notes a message. It must be called for all of them, before the message is handled.
    pub(super) fn note(&mut self, message: &Message) {
        self.unnamed.note(message);
        self.innermost.note(message);
    }
}

/// Processes whose generated or interpreted code has frames without a name, and binaries without symbols.
#[derive(Debug, Default)]
pub(super) struct NameGaps {
    pub(super) unnamed: Vec<UnnamedGroup>,
    pub(super) stripped: StrippedBinaries,
}

impl NameGaps {
    /// Lines for the user, each with its end.
    pub(super) fn lines(&self) -> String {
        unnamed::lines(&self.unnamed) + &self.stripped.lines()
    }

    /// The processes as JSON.
    pub(super) fn unnamed_json(&self) -> Value {
        unnamed::to_json(&self.unnamed)
    }

    /// The binaries as JSON.
    pub(super) fn stripped_json(&self) -> Value {
        self.stripped.to_json()
    }
}
