//! The memory and the names of threads of a recording, at one moment of it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::BinaryIndex;
use super::record::KERNEL_PID;
use crate::read::error::ReadError;

/// The most mappings that are copied for processes that continue with their parents' mappings.
const COPIED_MAX: usize = 1 << 20;

/// A range of memory that a file is mapped to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PerfMapping {
    pub(super) start: u64,
    /// Exclusive.
    pub(super) end: u64,
    pub(super) file_offset: u64,
    pub(super) binary: BinaryIndex,
}

/// By start.
type MappingsByStart = BTreeMap<u64, PerfMapping>;

/// The processes and threads of a recording.
#[derive(Default, Debug)]
pub(super) struct Space {
    /// By PID. A process shares its parent's until one of them changes.
    mappings: HashMap<u32, Arc<MappingsByStart>>,
    /// By TID.
    names: HashMap<u32, Arc<str>>,
    /// By start: the end, and the name.
    kernel_functions: BTreeMap<u64, (u64, Arc<str>)>,
    copied: usize,
}

impl Space {
    /// # Errors
    ///
    /// [`ReadError::PerfData`]: more is copied than any recording needs.
    pub(super) fn map(&mut self, pid: u32, mapping: PerfMapping) -> Result<(), ReadError> {
        if mapping.start >= mapping.end {
            return Ok(());
        }
        let shared = self.mappings.entry(pid).or_default();
        if Arc::strong_count(shared) > 1 {
            self.copied += shared.len();
            if self.copied > COPIED_MAX {
                return Err(ReadError::PerfData("its processes map more files than can be held"));
            }
        }
        let mappings = Arc::make_mut(shared);
        // What was there is no longer, or only around it.
        let overlapped: Vec<_> = mappings
            .range(..mapping.end)
            .rev()
            .take_while(|(_, before)| before.end > mapping.start)
            .map(|(_, before)| *before)
            .collect();
        for before in overlapped {
            mappings.remove(&before.start);
            if before.start < mapping.start {
                mappings.insert(before.start, PerfMapping { end: mapping.start, ..before });
            }
            if before.end > mapping.end {
                let file_offset = before.file_offset.saturating_add(mapping.end - before.start);
                mappings.insert(mapping.end, PerfMapping { start: mapping.end, file_offset, ..before });
            }
        }
        mappings.insert(mapping.start, mapping);
        Ok(())
    }

    pub(super) fn add_kernel_function(&mut self, start: u64, end: u64, name: String) {
        self.kernel_functions.insert(start, (end, name.into()));
    }

    pub(super) fn fork(&mut self, [pid, parent_pid]: [u32; 2], [tid, parent_tid]: [u32; 2]) {
        if let Some(name) = self.names.get(&parent_tid).cloned() {
            self.names.insert(tid, name);
        }
        if pid != parent_pid {
            let mappings = self.mappings.get(&parent_pid).cloned().unwrap_or_default();
            self.mappings.insert(pid, mappings);
        }
    }

    /// A thread has a new name; after `exec` its process has other mappings.
    pub(super) fn rename(&mut self, pid: u32, tid: u32, name: Arc<str>, is_exec: bool) {
        self.names.insert(tid, name);
        if is_exec {
            self.mappings.remove(&pid);
        }
    }

    /// The name of a thread; empty if unknown.
    pub(super) fn name(&self, tid: u32) -> Arc<str> {
        match (self.names.get(&tid), tid) {
            (Some(name), _) => Arc::clone(name),
            (None, 0) => "swapper".into(),
            (None, _) => "".into(),
        }
    }

    /// Whether a process has memory: threads of the kernel have none.
    pub(super) fn has_memory(&self, pid: u32) -> bool {
        self.mappings.get(&pid).is_some_and(|mappings| !mappings.is_empty())
    }

    /// The mapping of a process that contains an address.
    pub(super) fn find(&self, pid: u32, address: u64) -> Option<PerfMapping> {
        let (_, mapping) = self.mappings.get(&pid)?.range(..=address).next_back()?;
        Some(*mapping).filter(|mapping| address < mapping.end)
    }

    /// The same among the kernel's: its own, and its modules'.
    pub(super) fn find_kernel(&self, address: u64) -> Option<PerfMapping> {
        self.find(KERNEL_PID, address)
    }

    /// The function of the kernel that contains an address, of those that were made at run time.
    pub(super) fn kernel_function(&self, address: u64) -> Option<&str> {
        let (_, (end, name)) = self.kernel_functions.range(..=address).next_back()?;
        (address < *end).then_some(name)
    }
}
