//! The parts of a file with more symbols than fit in memory.

/// Which parts are loaded.
#[derive(Debug)]
pub(super) struct LoadedParts {
    pub(super) part_bytes: u64,
    pub(super) is_loaded: Box<[bool]>,
}
