//! The parts of a file with more symbols than there is room for.

/// Which parts are there.
#[derive(Debug)]
pub(super) struct LoadedParts {
    pub(super) part_bytes: u64,
    pub(super) is_loaded: Box<[bool]>,
}
