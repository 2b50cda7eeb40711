//! The check of stacks that were walked by mappings which the process had replaced.
//!
//! Between the replacement of a mapping and its publication a stack may be wrong, and only a frame in the unmapped library
//! shows it. The stacks of that time are compared with the mappings at the time of their sample, and cut at the first frame
//! that does not match.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use sidewinder_address::FileOffset;
use sidewinder_bpf::{RawFrame, RawFrameKind};
use sidewinder_process::{FileId, FileTable, MappingSet, Process};

use crate::sampling::message::file_location;

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct StaleMappingCheck {
    /// What the process of the last check mapped.
    last_mapped: Option<MappedRanges>,
}

impl StaleMappingCheck {
    /// The first frame in a file, or a part of one, that the process does not map.
    pub(super) fn first_stale_frame(
        &mut self,
        frames: &[RawFrame],
        process: &Process,
        files: &mut FileTable,
    ) -> Option<usize> {
        let mappings = process.mapping_set();
        if self.last_mapped.as_ref().is_none_or(|mapped| !Arc::ptr_eq(&mapped.mappings, mappings)) {
            self.last_mapped = Some(MappedRanges::new(process, files));
        }
        let mapped = self.last_mapped.as_ref()?;
        frames.iter().position(|frame| {
            matches!(frame.kind(), Some(RawFrameKind::Native { .. })) && !mapped.contains(frame)
        })
    }

    /// Frees what the last check keeps.
    pub(crate) fn sweep(&mut self) {
        self.last_mapped = None;
    }
}

/// The parts of files that a process maps.
#[derive(Debug)]
struct MappedRanges {
    mappings: Arc<MappingSet>,
    ranges: HashMap<FileId, Vec<Range<FileOffset>>>,
}

impl MappedRanges {
    fn new(process: &Process, files: &mut FileTable) -> Self {
        let mut parts: HashMap<FileId, Vec<Range<FileOffset>>> = HashMap::new();
        for mapping in process.mappings() {
            if let Some(identified) = files.identify(process, mapping) {
                let end = FileOffset(mapping.file_offset.0.saturating_add(mapping.len_bytes()));
                parts.entry(identified.id).or_default().push(mapping.file_offset..end);
            }
        }
        Self { mappings: Arc::clone(process.mapping_set()), ranges: parts }
    }

    fn contains(&self, frame: &RawFrame) -> bool {
        let Some((file, at)) = file_location(frame) else { return false };
        self.ranges.get(&file).is_some_and(|parts| parts.iter().any(|part| part.contains(&at)))
    }
}
