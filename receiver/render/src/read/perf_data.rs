//! `perf.data`, as `perf record` writes it into a file or a pipe.
//!
//! Its records are put in the order of time, and mappings and names are followed as processes change them; what code is called is
//! left to a [`PerfNames`]. Stacks are those that the kernel or the CPU recorded. Of a stack that was copied for a later unwinding
//! (`--call-graph dwarf`) the frames of user space are missing, which is marked in each.
//!
//! The format is parsed here because files are not trusted: a file of 336 bytes that states 2^32 - 1 events makes `linux-perf-data`
//! 0.11.1 ask for 756 GB, which ends the process. It reads no compressed records, either.

mod bytes;
mod file;
mod record;
mod space;

use std::collections::HashMap;

use sidewinder_profile::{
    BuildIds, FrameType, Location, LocationIndex, Mapping, MappingIndex, Marker, SourceLine, Table,
    index_types,
};

use self::file::{PerfEvent, PerfFile, PerfRecord};
use self::record::{Content, PerfSample};
use self::space::{PerfMapping, Space};
use super::error::ReadError;
use super::perf::{KERNEL, PerfFrame, PerfProfile, PerfThread, is_kernel_address};
use crate::profile::{OutcomeCount, Profile, Severity};

pub(super) use self::file::is_perf_data;
pub use self::record::PerfInode;

/// What perf calls the kernel's own code; the name of a symbol at its start follows.
const PERF_KERNEL: &str = "[kernel.kallsyms]";
/// The frame outside of which frames are missing.
const NOT_UNWOUND: &str = "perf only copied the stack";

/// Names code of a recording.
pub trait PerfNames {
    /// The function at an offset in a file, those inlined there first; `None`: this file isn't here, or has no name for it.
    fn code(&mut self, binary: &PerfBinary, file_offset: u64) -> Option<PerfCode>;

    /// The name of the function of the kernel itself at an address; `None`: this kernel isn't running, or its names are hidden.
    fn kernel(&mut self, kernel: &PerfKernel, address: u64) -> Option<String>;
}

/// A file of a recording.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct PerfBinary {
    /// Its path, as the recorded process saw it.
    pub path: String,
    /// Its GNU build ID in hexadecimal digits. perf states that of files in which a sample was taken, or of all
    /// (`--buildid-mmap`).
    pub build_id: Option<String>,
    /// Its inode on the recorded machine, if known.
    pub inode: Option<PerfInode>,
}

/// The functions at an address of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PerfCode {
    /// The address in the file's address space.
    pub address: u64,
    /// The language of the code.
    pub frame_type: FrameType,
    /// The calls that were inlined at this address, innermost first, and the function that contains it.
    pub functions: Vec<PerfFunction>,
}

/// A function, and a position in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PerfFunction {
    /// Its name in the source.
    pub name: String,
    /// Its linker symbol; empty if it equals the name.
    pub system_name: String,
    /// The source file; empty if unknown.
    pub path: String,
    /// The line number in it, from 1; 0 if unknown.
    pub line: u32,
}

/// The kernel of a recording.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PerfKernel {
    /// Its build ID, in hexadecimal.
    pub build_id: String,
    /// A symbol, `_text` or `_stext`, and where it was: at each start the kernel is in another place.
    pub symbol: String,
    /// The address of that symbol.
    pub symbol_address: u64,
}

/// No names: all code is shown as an offset in its file.
#[derive(Clone, Copy, Default, Debug)]
pub struct NoNames;

impl PerfNames for NoNames {
    fn code(&mut self, _: &PerfBinary, _: u64) -> Option<PerfCode> {
        None
    }

    fn kernel(&mut self, _: &PerfKernel, _: u64) -> Option<String> {
        None
    }
}

/// Reads the samples of one event into a profile: by default, of the first that perf counted.
pub(super) fn read(
    mut profile: PerfProfile,
    bytes: &[u8],
    names: &mut dyn PerfNames,
) -> Result<Profile, ReadError> {
    let mut decompressed = Vec::new();
    let file = file::parse(bytes, &mut decompressed)?;
    // perf adds a dummy event for its own use.
    for event in file.events.iter().filter(|event| !event.name.starts_with("dummy")) {
        profile.selects(&event.name);
    }
    let reader = DataReader {
        profile,
        names,
        space: Space::default(),
        kernel: None,
        locations: HashMap::new(),
        binaries: Table::default(),
        outcomes: Outcomes::default(),
        file: &file,
    };
    reader.read()
}

struct DataReader<'a> {
    profile: PerfProfile,
    names: &'a mut dyn PerfNames,
    space: Space,
    kernel: Option<PerfKernel>,
    locations: HashMap<AddressKey, LocationIndex>,
    binaries: Table<BinaryIndex, PerfBinary>,
    outcomes: Outcomes,
    file: &'a PerfFile<'a>,
}

index_types! {
    /// A file of the recording, by its path, build ID and inode.
    BinaryIndex,
}

/// What identifies a location.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum AddressKey {
    File { binary: BinaryIndex, offset: u64 },
    Kernel { address: u64 },
    Unknown { address: u64 },
    NotUnwound,
}

/// Samples of the selected event by outcome, and lost records of all events.
#[derive(Clone, Copy, Default, Debug)]
struct Outcomes {
    complete: u64,
    not_unwound: u64,
    malformed: u64,
    lost: u64,
}

impl DataReader<'_> {
    fn read(mut self) -> Result<Profile, ReadError> {
        let file = self.file;
        let first = file.events.first().ok_or(ReadError::PerfData("it has no event"))?;
        let by_id: HashMap<u64, &PerfEvent> =
            file.events.iter().flat_map(|event| event.ids.iter().map(move |id| (*id, event))).collect();
        let event_of = |record: PerfRecord<'_>| match file.events.len() {
            1 => first,
            _ => record.event_id(first.attributes).and_then(|id| by_id.get(&id).copied()).unwrap_or(first),
        };
        let timed = |(at, record): (usize, &PerfRecord<'_>)| {
            (record.time_ns(event_of(*record).attributes).unwrap_or(0), at)
        };
        // Without a time it is from before the first sample. The order in the file decides among equal ones.
        let mut order: Vec<(u64, usize)> = file.records.iter().enumerate().map(timed).collect();
        order.sort_unstable();
        for (_, at) in order {
            let record = file.records[at];
            let event = event_of(record);
            match record.content(event.attributes) {
                Some(content) => self.apply(content, event)?,
                None => self.outcomes.malformed += 1,
            }
        }
        self.outcomes.malformed += u64::from(file.is_cut);
        let mut profile = self.profile.finish()?;
        profile.outcomes = self.outcomes.to_counts();
        Ok(profile)
    }

    fn apply(&mut self, content: Content, event: &PerfEvent) -> Result<(), ReadError> {
        match content {
            Content::Mapping { pid, start, end, file_offset, path, identity } => {
                let build_id = identity.build_id.or_else(|| self.build_id(&path));
                let kernel_symbol = path.strip_prefix(PERF_KERNEL).filter(|_| pid == record::KERNEL_PID);
                if let Some((symbol, build_id)) = kernel_symbol.zip(build_id.as_ref()) {
                    // The offset of this mapping is the address of the symbol.
                    self.kernel = Some(PerfKernel {
                        build_id: build_id.clone(),
                        symbol: symbol.to_owned(),
                        symbol_address: file_offset,
                    });
                }
                let path = if kernel_symbol.is_some() { KERNEL.to_owned() } else { path };
                let binary = self.binary(path, build_id, identity.inode);
                self.space.map(pid, PerfMapping { start, end, file_offset, binary })?;
            }
            Content::KernelFunction { start, end, name } => self.space.add_kernel_function(start, end, name),
            Content::Name { pid, tid, name, is_exec } => {
                let name = name.into();
                if pid == tid {
                    self.profile.name_process(pid, &name);
                }
                self.space.rename(pid, tid, name, is_exec);
            }
            Content::Fork { pid, parent_pid, tid, parent_tid } => {
                self.space.fork([pid, parent_pid], [tid, parent_tid]);
            }
            Content::Lost(count) => self.outcomes.lost = self.outcomes.lost.saturating_add(count),
            Content::Sample(sample) if self.profile.selects(&event.name) => self.sample(&sample),
            Content::Sample(_) | Content::Other => {}
        }
        Ok(())
    }

    fn build_id(&self, path: &str) -> Option<String> {
        let known = if path.starts_with(PERF_KERNEL) { PERF_KERNEL } else { path };
        self.file.build_ids.get(known).cloned()
    }

    fn binary(&mut self, path: String, build_id: Option<String>, inode: Option<PerfInode>) -> BinaryIndex {
        self.binaries.intern(PerfBinary { path, build_id, inode })
    }

    fn sample(&mut self, sample: &PerfSample) {
        let mut stack = Vec::new();
        for address in &sample.stack {
            let place = self.place(sample.pid, *address);
            stack.extend(self.location_at(place));
        }
        // Threads of the kernel have no stack in user space.
        let is_cut = sample.is_stack_copied && self.space.has_memory(sample.pid);
        if is_cut {
            stack.extend(self.location_at(AddressKey::NotUnwound));
        }
        let outcome = if is_cut { &mut self.outcomes.not_unwound } else { &mut self.outcomes.complete };
        *outcome += 1;
        let name = self.space.name(sample.tid);
        let thread = PerfThread { name: &name, pid: sample.pid, tid: sample.tid };
        self.profile.add(thread, sample.time_ns, sample.period, &stack);
    }

    fn place(&self, pid: u32, address: u64) -> AddressKey {
        if is_kernel_address(address) {
            return AddressKey::Kernel { address };
        }
        match self.space.find(pid, address) {
            Some(PerfMapping { start, file_offset, binary, .. }) => {
                AddressKey::File { binary, offset: file_offset.saturating_add(address - start) }
            }
            None => AddressKey::Unknown { address },
        }
    }

    fn location_at(&mut self, place: AddressKey) -> Option<LocationIndex> {
        if let Some(known) = self.locations.get(&place) {
            return Some(*known);
        }
        let location = match place {
            AddressKey::File { binary, offset } => self.file_location(binary, offset)?,
            AddressKey::Kernel { address } => self.kernel_location(address),
            AddressKey::Unknown { address } => {
                let frame = PerfFrame { address, ..PerfFrame::default() };
                self.profile.location(&[frame], MappingIndex::default())
            }
            AddressKey::NotUnwound => self.profile.dictionary.add_marker(&Marker::truncated(NOT_UNWOUND)),
        };
        self.locations.insert(place, location);
        Some(location)
    }

    fn file_location(&mut self, binary: BinaryIndex, offset: u64) -> Option<LocationIndex> {
        let known = self.binaries.get(binary)?;
        let mapping = add_mapping(&mut self.profile, known);
        let Some(code) = self.names.code(known, offset) else {
            // Without the file, the offset stands for the address.
            let frame = PerfFrame { address: offset, file: &known.path, ..PerfFrame::default() };
            return Some(self.profile.location(&[frame], mapping));
        };
        let dictionary = &mut self.profile.dictionary;
        let lines = code.functions.iter().map(|PerfFunction { name, system_name, path, line }| {
            dictionary.add_line(&SourceLine { function: name, system_name, path, line: *line, column: 0 })
        });
        let lines: Vec<_> = lines.collect();
        let (address, frame_type) = (code.address, code.frame_type);
        let location = Location { mapping, address, frame_type, lines: &lines, ..Location::default() };
        Some(dictionary.add_location(&location))
    }

    fn kernel_location(&mut self, address: u64) -> LocationIndex {
        let kernel = PerfBinary { path: KERNEL.to_owned(), build_id: None, inode: None };
        let known = self.space.find_kernel(address).map(|mapping| mapping.binary);
        let known = known.and_then(|binary| self.binaries.get(binary)).unwrap_or(&kernel);
        let name = match self.space.kernel_function(address) {
            Some(name) => Some(name.to_owned()),
            // Modules are in other places after each start, too, and not at the same distance.
            None if known.path == KERNEL => {
                self.kernel.as_ref().and_then(|kernel| self.names.kernel(kernel, address))
            }
            None => None,
        };
        let mapping = add_mapping(&mut self.profile, known);
        let name = name.as_deref().unwrap_or_default();
        let frame = PerfFrame { address, name, file: &known.path, ..PerfFrame::default() };
        self.profile.location(&[frame], mapping)
    }
}

/// The mapping of a file; its address is unknown.
fn add_mapping(profile: &mut PerfProfile, binary: &PerfBinary) -> MappingIndex {
    let dictionary = &mut profile.dictionary;
    let build_ids = BuildIds { gnu: binary.build_id.as_deref(), ..BuildIds::default() };
    let filename = dictionary.add_string(&binary.path);
    let attributes = dictionary.add_build_ids(&build_ids);
    dictionary.add_mapping(Mapping { filename, attributes, ..Mapping::default() })
}

impl Outcomes {
    fn to_counts(self) -> Vec<OutcomeCount> {
        let Self { complete, not_unwound, malformed, lost } = self;
        let counts = [
            ("complete", complete, Severity::Complete, ""),
            (
                "stack only copied",
                not_unwound,
                Severity::Truncated,
                "perf record --call-graph dwarf leaves unwinding to perf script: view what that prints",
            ),
            ("malformed", malformed, Severity::Lost, "the file is cut or damaged"),
            ("lost by perf", lost, Severity::Lost, "record with a larger buffer: perf record -m"),
        ];
        let counts = counts.into_iter().filter(|(_, count, ..)| *count > 0);
        counts
            .map(|(name, count, severity, help)| OutcomeCount {
                name: name.to_owned(),
                count,
                severity,
                help: help.to_owned(),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests;
