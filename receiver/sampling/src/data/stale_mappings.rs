//! The check for stacks that were walked with mappings which the process had already replaced.
//!
//! Between the replacement of a mapping and the publication of the new one, a stack may be wrong, and the only sign is a
//! frame in the unmapped library. Stacks from that window are compared with the mappings at the time of their sample, and
//! truncated at the first frame that doesn't match.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use sidewinder_address::FileOffset;
use sidewinder_bpf::{RawFrame, RawFrameKind};
use sidewinder_message::file_location;
use sidewinder_process::{FileId, MappingSet, Process};

use crate::ProcessView;

/// Compares stacks with the mappings of their process.
#[derive(Debug, Default)]
pub(crate) struct StaleMappingCheck {
    /// The mapped ranges of the last checked process, which are likely to be needed again.
    last_mapped: Option<MappedRanges>,
}

impl StaleMappingCheck {
    /// The index of the first frame in a file, or part of a file, that the process doesn't map.
    pub(super) fn first_stale_frame(
        &mut self,
        frames: &[RawFrame],
        process: &Process,
        view: &mut ProcessView<'_>,
    ) -> Option<usize> {
        let mappings = process.mapping_set();
        if self.last_mapped.as_ref().is_none_or(|mapped| !Arc::ptr_eq(&mapped.mappings, mappings)) {
            self.last_mapped = Some(MappedRanges::new(process, view));
        }
        let mapped = self.last_mapped.as_ref()?;
        frames.iter().position(|frame| {
            matches!(frame.kind(), Some(RawFrameKind::Native { .. })) && !mapped.contains(frame)
        })
    }

    /// Frees the cached ranges.
    pub(crate) fn sweep(&mut self) {
        self.last_mapped = None;
    }
}

/// The file ranges that a process maps.
#[derive(Debug)]
struct MappedRanges {
    mappings: Arc<MappingSet>,
    ranges: HashMap<FileId, Vec<Range<FileOffset>>>,
}

impl MappedRanges {
    fn new(process: &Process, view: &mut ProcessView<'_>) -> Self {
        let mut ranges: HashMap<FileId, Vec<Range<FileOffset>>> = HashMap::new();
        for mapping in process.mappings() {
            if let Some(file) = view.file_of(process, mapping) {
                let end = FileOffset(mapping.file_offset.0.saturating_add(mapping.len_bytes()));
                ranges.entry(file).or_default().push(mapping.file_offset..end);
            }
        }
        Self { mappings: Arc::clone(process.mapping_set()), ranges }
    }

    fn contains(&self, frame: &RawFrame) -> bool {
        let Some((file, at)) = file_location(frame) else { return false };
        self.ranges.get(&file).is_some_and(|ranges| ranges.iter().any(|range| range.contains(&at)))
    }
}
