//! How each binary is unwound: by frame pointers, by tables, or by both.

use sidewinder_bpf::Packing;
use sidewinder_config::{BinaryMatch, UnwindMode, UnwindOverride};

/// Decides how each binary is unwound.
#[derive(Clone, Debug)]
pub struct PackingRules {
    mode: UnwindMode,
    overrides: Vec<UnwindOverride>,
}

impl PackingRules {
    /// This mode for every binary that no override names; the first override that names a binary wins.
    pub fn new(mode: UnwindMode, overrides: Vec<UnwindOverride>) -> Self {
        Self { mode, overrides }
    }

    /// The packing of a binary's tables: from the first override that names the binary, else from the default mode.
    pub(crate) fn packing(&self, path: &[u8], build_id: Option<&[u8]>) -> Packing {
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        let matching = self.overrides.iter().find(|rule| match &rule.binary {
            BinaryMatch::Name(wanted) => wanted.as_bytes() == name,
            BinaryMatch::Path(wanted) => wanted.as_os_str().as_encoded_bytes() == path,
            BinaryMatch::BuildId(wanted) => Some(wanted.as_bytes()) == build_id,
        });
        packing_for_mode(matching.map_or(self.mode, |rule| rule.mode))
    }
}

/// The packing of tables for an unwind mode.
pub fn packing_for_mode(mode: UnwindMode) -> Packing {
    match mode {
        UnwindMode::Auto => Packing::Auto,
        UnwindMode::FramePointers => Packing::FramePointers,
        UnwindMode::Tables => Packing::Tables,
    }
}
