//! What has no name in a recording, and what would name it.

use serde_json::Value;
use sidewinder_naming::{NamingStage, Update};

use crate::stripped::{InnermostFrames, StrippedBinaries};
use crate::unnamed::{self, UnnamedGroup, UnnamedSamples};

/// The samples of a recording that may lack names.
#[derive(Debug, Default)]
pub(super) struct GapSamples {
    pub(super) unnamed: UnnamedSamples,
    pub(super) innermost: InnermostFrames,
}

impl GapSamples {
    /// Notes what a message means, which `stage` has read.
    pub(super) fn note(&mut self, update: &Update, stage: &NamingStage) {
        match update {
            Update::Event(event) => {
                self.unnamed.note_event(event, &stage.namer);
                self.innermost.note(event);
            }
            Update::Described(key) => {
                if let Some(description) = stage.process(*key) {
                    self.unnamed.note_process(*key, description);
                }
            }
            Update::Renamed(_) => {}
        }
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
