//! The parts of a file with more symbols than there is room for.

/// Which parts are there.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) part_bytes: u64,
    pub(super) is_held: Box<[bool]>,
}
