//! The interpreter that an ELF file contains.

use std::ops::Range;
use std::{fmt, io};

use sidewinder_address::Svma;
use sidewinder_process::tls::{ElfFile, ElfSymbol, TlsLocation, TlsVariableError};
use sidewinder_process::{ExecutableMapping, ForeignMemory, ReadAt};
use sidewinder_vm_runtime::FileRange;
use sidewinder_vm_runtime::pthread::PthreadLayout;

use super::debug_offsets;
use super::layout::{Groups, Layout, ThreadList};
use super::tail_calls::{TAIL_CALLS_SINCE, inlined_loops};
use super::thread_state::{Getters, ThreadStateLocator};
use crate::{arch, split};

/// Exported by every CPython since 3.7.
const RUNTIME: &[u8] = b"_PyRuntime";
const LOOP: &[u8] = b"_PyEval_EvalFrameDefault";
/// What compilers name the parts into which they split the loop.
const LOOP_PARTS: &[u8] = b"_PyEval_EvalFrameDefault.";
/// Ranges that are kept of one loop.
const RANGES_MAX: usize = 64;
/// Ranges of a loop up to which copies of it are added: as many as walks look up.
const LOOP_RANGES_MAX: usize = 16;

/// What an ELF file says of the CPython interpreter that it contains: a `python` executable, a `libpython`, or a program that
/// embeds it.
#[derive(Clone, Debug)]
pub struct Interpreter {
    /// Its version.
    pub version: Version,
    /// The code of the evaluation loop, with copies in other functions as far as walks can look them up: sorted and disjoint.
    pub loops: Vec<FileRange>,
    /// Of this code, what an activation executes before its frame is the thread's current one; with [`Groups::OneFrame`] also
    /// what it executes after its caller's is that again. Later versions have something on the stack that tells it. Empty if
    /// the code is not understood, and from 3.13 on.
    pub unlinked: Vec<FileRange>,
    /// The layout of its objects.
    pub layout: Layout,
    elf: ElfFile,
    pub(super) thread_state: ThreadStateLocator,
    /// The address of `_PyRuntime`.
    pub(super) runtime: Svma,
    pub(super) thread_list: ThreadList,
}

/// A version of CPython.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Version {
    /// 3.
    pub major: u8,
    /// 8 to 14.
    pub minor: u8,
}

impl Version {
    /// The oldest whose frames are found on this architecture.
    pub const OLDEST: Self = Self { major: 3, minor: if arch::READS_ASSIGNMENTS { 8 } else { 11 } };
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl Interpreter {
    /// Reads a file; `None` if it contains no CPython, or one that is not supported: a version other than 3.8 to 3.14, on arm64 other
    /// than 3.11 to 3.14.
    ///
    /// Costs one pass over the names of its dynamic symbols, if it contains none.
    ///
    /// # Errors
    /// Any I/O error of the file.
    pub fn read(file: &impl ReadAt) -> io::Result<Option<Self>> {
        let Some(elf) = ElfFile::read(file)? else { return Ok(None) };
        let names: [&[u8]; 8] = [
            RUNTIME,
            LOOP,
            b"Py_Version",
            b"PyModule_AddObjectRef",
            b"PyModule_AddType",
            b"PyCode_NewWithPosOnlyArgs",
            b"_PyThreadState_GetCurrent",
            b"PyGILState_GetThisThreadState",
        ];
        let Some([Some(runtime), Some(main), version, of_10, of_9, of_8, current, this]) =
            elf.exported(file, names)?
        else {
            return Ok(None);
        };
        let minor = match version {
            Some(constant) => match minor_version(file, &elf, constant)? {
                Some(minor) => minor,
                None => return Ok(None),
            },
            None if of_10.is_some() => 10,
            None if of_9.is_some() => 9,
            None if of_8.is_some() => 8,
            None => return Ok(None),
        };
        if minor < Version::OLDEST.minor {
            return Ok(None);
        }
        let constant = Layout::of_minor(minor).zip(ThreadList::of_minor(minor));
        let layout = match constant {
            None => published_layout(file, &elf, runtime, minor)?,
            found => found,
        };
        let thread_state = ThreadStateLocator::read(file, &elf, runtime, &Getters { this, current }, minor)?;
        let (Some((layout, thread_list)), Some(thread_state)) = (layout, thread_state) else {
            return Ok(None);
        };
        let mut parts = vec![main];
        parts.extend(elf.functions_with_prefix(file, LOOP_PARTS)?);
        let eh_frame = split::eh_frame(file, &elf)?;
        let mut entries = split::EhFrameEntries::new(&eh_frame);
        parts.extend(split::other_parts(file, &elf, &mut entries, &parts)?);
        let mut loops = join(file_ranges(&elf, &parts));
        if minor >= TAIL_CALLS_SINCE {
            let mut copies = inlined_loops(file, &elf, &mut entries, &parts, layout.current_frame)?;
            copies.truncate(LOOP_RANGES_MAX.saturating_sub(loops.len()));
            loops.extend(file_ranges(&elf, &copies));
            loops.sort_unstable();
        }
        let unlinked = if layout.groups == Groups::OneFrame || layout.cframe.is_some() {
            file_ranges(&elf, &unlinked_parts(file, &elf, &parts, layout)?)
        } else {
            Vec::new()
        };
        Ok(Some(Self {
            version: Version { major: 3, minor },
            loops,
            unlinked,
            layout,
            elf,
            thread_state,
            runtime: runtime.address,
            thread_list,
        }))
    }

    /// The load bias of this file, given one of its mappings: the difference to the addresses in the file.
    #[must_use]
    pub fn bias_of(&self, mapping: &ExecutableMapping) -> Option<u64> {
        self.elf.bias_of(mapping)
    }

    /// Where each thread of a process has the pointer to its `PyThreadState`, in a process in which this file is loaded with
    /// the given bias. Null in threads that have none. `pthread`: the layout of its C library's threads, if that was read: without
    /// it, where it has to be ([`PthreadLayout::IS_READ`]), this is the same as
    /// [`locate_attached_thread_state`](Self::locate_attached_thread_state).
    ///
    /// # Errors
    /// [`TlsVariableError::NotYet`] if the process has not initialised its interpreter yet, and as
    /// [`TlsSymbol::locate`](sidewinder_process::tls::TlsSymbol::locate).
    pub fn locate_thread_state(
        &self,
        bias: u64,
        memory: &impl ForeignMemory,
        pthread: Option<PthreadLayout>,
    ) -> Result<TlsLocation, TlsVariableError> {
        self.thread_state.locate(bias, memory, pthread)
    }

    /// Where each thread has the pointer to its `PyThreadState` while it holds the interpreter's lock, and null otherwise:
    /// from 3.12 on.
    ///
    /// # Errors
    /// [`TlsVariableError::NotYet`] before 3.12, and as
    /// [`TlsSymbol::locate`](sidewinder_process::tls::TlsSymbol::locate).
    pub fn locate_attached_thread_state(
        &self,
        bias: u64,
        memory: &impl ForeignMemory,
    ) -> Result<TlsLocation, TlsVariableError> {
        self.thread_state.locate_variable(bias, memory)
    }
}

/// The `N` of version `3.N`, from the constant `Py_Version` (3.11+).
fn minor_version(file: &impl ReadAt, elf: &ElfFile, constant: ElfSymbol) -> io::Result<Option<u8>> {
    let version = elf.content(file, constant.address, size_of::<u32>())?;
    let Some([.., minor, major]) = version.first_chunk::<4>() else { return Ok(None) };
    Ok((*major == 3 && (11..=14).contains(minor)).then_some(*minor))
}

/// The layout that the interpreter publishes at the start of its state (3.13+).
fn published_layout(
    file: &impl ReadAt,
    elf: &ElfFile,
    runtime: ElfSymbol,
    minor: u8,
) -> io::Result<Option<(Layout, ThreadList)>> {
    let offsets = elf.content(file, runtime.address, debug_offsets::OFFSETS_BYTES)?;
    Ok(debug_offsets::layout(&offsets, minor).zip(debug_offsets::thread_list(&offsets, minor)))
}

/// The parts of the loop's code in which an activation's frame isn't the thread's current one.
fn unlinked_parts(
    file: &impl ReadAt,
    elf: &ElfFile,
    parts: &[ElfSymbol],
    layout: Layout,
) -> io::Result<Vec<ElfSymbol>> {
    let code = split::code_of(file, elf, parts)?;
    let Layout { cframe, current_frame, previous, .. } = layout;
    let link = arch::FrameLink { cframe, current_frame, previous };
    let ranges = arch::unlinked_code(&code, link);
    let symbol = |range: Range<u64>| ElfSymbol { address: Svma(range.start), bytes: range.end - range.start };
    Ok(ranges.into_iter().map(symbol).collect())
}

/// The ranges of functions, or of parts of them, in the file.
fn file_ranges(elf: &ElfFile, functions: &[ElfSymbol]) -> Vec<FileRange> {
    let range = |function: &ElfSymbol| {
        let start = elf.file_offset_of(function.address).filter(|_| function.bytes > 0)?;
        start.checked_add(function.bytes).map(|_| FileRange { start, bytes: function.bytes })
    };
    let mut ranges: Vec<FileRange> = functions.iter().filter_map(range).collect();
    ranges.sort_unstable();
    ranges
}

/// The same with adjacent ones joined.
fn join(ranges: Vec<FileRange>) -> Vec<FileRange> {
    /// Functions are aligned: what lies between two is padding.
    const PADDING_MAX: u64 = 64;
    let mut joined: Vec<FileRange> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if range.start.0 - last.start.0 <= last.bytes.saturating_add(PADDING_MAX) => {
                let end = range.start.0.saturating_add(range.bytes) - last.start.0;
                last.bytes = last.bytes.max(end);
            }
            _ => joined.push(range),
        }
    }
    joined.truncate(RANGES_MAX);
    joined
}
