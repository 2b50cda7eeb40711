//! The language runtimes whose frames walks find, and what they look up of those that a process runs.

use sidewinder_address::FileOffset;

use crate::intf::{self, sw_file_range, sw_runtime, sw_tls_variable};
use crate::tls::PublishedTlsLocation;

/// A part of HotSpot's code cache.
pub use crate::intf::sw_code_heap as CodeHeap;
/// Where CPython keeps its frames: offsets of fields, as `c/intf/runtimes.h` describes them.
pub use crate::intf::sw_cpython as CPythonLayout;
/// A part of a file.
pub use crate::intf::sw_file_range as FileRange;
/// Where HotSpot keeps its code: addresses in a process, and offsets of fields, as `c/intf/runtimes.h` describes them.
pub use crate::intf::sw_hotspot as HotSpotLayout;
/// How V8 describes functions of JavaScript: offsets of fields and numbers of types, as `c/intf/runtimes.h` describes them.
pub use crate::intf::sw_v8 as V8Layout;

/// Values of [`CPythonLayout::group_form`]: where the frames of one activation of the evaluation loop end.
pub mod cpython_group_form {
    pub use crate::intf::{
        SW_CPYTHON_ENDS_AT_SHIM as ENDS_AT_SHIM, SW_CPYTHON_LAST_IS_ENTRY as LAST_IS_ENTRY,
        SW_CPYTHON_ONE_FRAME as ONE_FRAME,
    };
}

/// Values of [`CPythonLayout::instruction_form`]: what a frame says of the instruction that it executes.
pub mod cpython_instruction {
    pub use crate::intf::{
        SW_CPYTHON_INDEX as INDEX, SW_CPYTHON_INDEX_BY_2 as INDEX_BY_2, SW_CPYTHON_POINTER as POINTER,
    };
}

/// The most parts of HotSpot's code cache that walks look up.
pub const CODE_HEAPS_MAX: usize = intf::SW_CODE_HEAPS as usize;
/// The bytes that walks read of a blob of HotSpot's code: all fields are in these.
pub const BLOB_BYTES_MAX: usize = intf::SW_BLOB_BYTES as usize;

/// A language runtime whose frames walks find: its functions have frames of their own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum WalkedRuntime {
    /// CPython: functions that it interprets.
    CPython,
    /// HotSpot: Java methods, and HotSpot's own code.
    HotSpot,
    /// V8: functions of JavaScript.
    V8,
}

/// By what walks know that code is a runtime's. A process has at most one runtime of each of these published.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RuntimeCode {
    /// A loop that executes functions, in a file.
    Loop,
    /// A code cache, in memory.
    Cache,
}

impl RuntimeCode {
    /// All.
    pub const ALL: [Self; 2] = [Self::Loop, Self::Cache];
}

impl WalkedRuntime {
    /// All.
    pub const ALL: [Self; 3] = [Self::CPython, Self::HotSpot, Self::V8];

    /// By what walks know its code.
    #[must_use]
    pub const fn code(self) -> RuntimeCode {
        match self {
            Self::CPython | Self::V8 => RuntimeCode::Loop,
            Self::HotSpot => RuntimeCode::Cache,
        }
    }

    /// Whether its functions' frames are not on the native stack: each activation of its loop executes a group of them.
    #[must_use]
    pub const fn has_groups(self) -> bool {
        matches!(self, Self::CPython)
    }

    /// Whether a snapshot of a stack has what a walk of its frames needs. Where HotSpot's code returns to depends on its code cache,
    /// too.
    #[must_use]
    pub const fn is_in_snapshots(self) -> bool {
        !matches!(self, Self::HotSpot)
    }

    /// The kind of its frames. V8's of WebAssembly and of regular expressions have others.
    pub(crate) const fn frame_kind(self) -> u32 {
        match self {
            Self::CPython => intf::SW_FRAME_CPYTHON,
            Self::HotSpot => intf::SW_FRAME_HOTSPOT,
            Self::V8 => intf::SW_FRAME_V8,
        }
    }

    /// Whose frames a kind is of; `None`: of no runtime.
    pub(crate) const fn of_frame(kind: u32) -> Option<Self> {
        match kind {
            intf::SW_FRAME_CPYTHON => Some(Self::CPython),
            intf::SW_FRAME_HOTSPOT => Some(Self::HotSpot),
            intf::SW_FRAME_V8 | intf::SW_FRAME_V8_WASM | intf::SW_FRAME_V8_REGEXP => Some(Self::V8),
            _ => None,
        }
    }
}

/// A language runtime that a process runs, as walks look it up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PublishedRuntime {
    /// CPython.
    CPython(PublishedCPython),
    /// HotSpot. All that walks need is in its code cache and on the stack.
    HotSpot(HotSpotLayout),
    /// V8. All that walks need is on the stack.
    V8(PublishedV8),
}

impl PublishedRuntime {
    /// Which one it is.
    #[must_use]
    pub const fn runtime(&self) -> WalkedRuntime {
        match self {
            Self::CPython(_) => WalkedRuntime::CPython,
            Self::HotSpot(_) => WalkedRuntime::HotSpot,
            Self::V8(_) => WalkedRuntime::V8,
        }
    }

    pub(crate) fn encode(&self) -> sw_runtime {
        let encoded = match self {
            Self::CPython(cpython) => cpython.encode(),
            Self::HotSpot(hotspot) => sw_runtime { hotspot: *hotspot, ..sw_runtime::default() },
            Self::V8(v8) => v8.encode(),
        };
        sw_runtime { kind: self.runtime().frame_kind(), ..encoded }
    }
}

/// The CPython that a process runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PublishedCPython {
    /// The id of the file that contains its loop.
    pub file: u32,
    /// The code of the loop: offsets in the file, and lengths in bytes. Those that [`can_look_up_loop`] accepts are all used.
    pub loop_ranges: Vec<(FileOffset, u64)>,
    /// Of this code, what an activation executes while its frame isn't the thread's current one.
    pub unlinked_ranges: Vec<(FileOffset, u64)>,
    /// Where a thread has the address of its state; if that is null, where it has another one.
    pub state: [Option<PublishedTlsLocation>; 2],
    /// Where the state leads to.
    pub cpython: CPythonLayout,
}

/// Whether walks can look up all of a loop, given by its ranges: it has at most 16, below 4 GiB.
#[must_use]
pub fn can_look_up_loop(ranges: &[(FileOffset, u64)]) -> bool {
    ranges.len() <= intf::SW_VM_LOOP_RANGES as usize
        && ranges.iter().all(|range| encode_range(range).is_some())
}

impl PublishedCPython {
    fn encode(&self) -> sw_runtime {
        sw_runtime {
            file: self.file,
            loop_: encode_ranges(&self.loop_ranges),
            unlinked: encode_ranges(&self.unlinked_ranges),
            state: self
                .state
                .map(|at| at.map_or_else(sw_tls_variable::default, PublishedTlsLocation::encode)),
            cpython: self.cpython,
            ..sw_runtime::default()
        }
    }
}

/// The V8 that a process runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PublishedV8 {
    /// The id of the file that contains it.
    pub file: u32,
    /// The code that enters interpreted functions, and the handlers of bytecodes: offsets in the file, and lengths in bytes. Those
    /// that [`can_look_up_loop`] accepts are all used.
    pub loop_ranges: Vec<(FileOffset, u64)>,
    /// The layout of its objects.
    pub layout: V8Layout,
}

impl PublishedV8 {
    fn encode(&self) -> sw_runtime {
        sw_runtime {
            file: self.file,
            loop_: encode_ranges(&self.loop_ranges),
            v8: self.layout,
            ..sw_runtime::default()
        }
    }
}

/// As many ranges as there is room for; empty ones behind them.
fn encode_ranges<const N: usize>(ranges: &[(FileOffset, u64)]) -> [sw_file_range; N] {
    let mut encoded = [sw_file_range::default(); N];
    for (to, range) in encoded.iter_mut().zip(ranges.iter().filter_map(encode_range)) {
        *to = range;
    }
    encoded
}

fn encode_range((start, bytes): &(FileOffset, u64)) -> Option<sw_file_range> {
    Some(sw_file_range { start: start.0.try_into().ok()?, bytes: (*bytes).try_into().ok()? })
}

/// Why frames of a language runtime are missing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum VmMissing {
    /// The thread has no state of the runtime, or it could not be read.
    NoState,
    /// The state that was found is that of another thread.
    OtherThread,
    /// A frame, or the function in it, could not be read.
    Unreadable,
    /// There are more activations of the loop than groups of frames.
    NoFrames,
    /// The runtime was not known yet when the stack was sampled. Only deferred walks find this.
    TooEarly,
    /// The sample interrupted a program that was taking another one, and scratch memory for this is there once for each CPU.
    Busy,
    /// Code may return to no address that could be that of the frame's caller. The stack is cut there.
    NoCaller,
}

impl VmMissing {
    /// All reasons, in numeric order.
    pub const ALL: [Self; intf::SW_VM_MISSING_COUNT as usize] = [
        Self::NoState,
        Self::OtherThread,
        Self::Unreadable,
        Self::NoFrames,
        Self::TooEarly,
        Self::Busy,
        Self::NoCaller,
    ];

    /// The name in metrics and marker frames.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::NoState => "no_state",
            Self::OtherThread => "other_thread",
            Self::Unreadable => "unreadable",
            Self::NoFrames => "no_frames",
            Self::TooEarly => "too_early",
            Self::Busy => "busy",
            Self::NoCaller => "no_caller",
        }
    }

    pub(crate) fn from_number(number: u64) -> Option<Self> {
        Self::ALL.get(usize::try_from(number).ok()?).copied()
    }
}

/// How walks of language runtimes' frames ended.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct VmCounts {
    /// Frames in stacks.
    pub frames: u64,
    /// Activations of loops whose frames were found.
    pub groups: u64,
    /// Frames that could not be found, most of which have another one in their place, by the index in [`VmMissing::ALL`].
    pub missing: [u64; VmMissing::ALL.len()],
}

/// Functions of young processes, which are sent so that their names don't depend on the process.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct FunctionCopies {
    /// They were sent.
    pub sent: u64,
    /// Attempts to send one that found the ring half full.
    pub dropped: u64,
}

impl std::ops::AddAssign for VmCounts {
    fn add_assign(&mut self, more: Self) {
        let Self { frames, groups, missing } = more;
        self.frames += frames;
        self.groups += groups;
        for (sum, count) in self.missing.iter_mut().zip(missing) {
            *sum += count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_runtime_has_its_kind_of_frames() {
        for runtime in WalkedRuntime::ALL {
            assert_eq!(WalkedRuntime::of_frame(runtime.frame_kind()), Some(runtime));
        }
        assert_eq!(WalkedRuntime::of_frame(intf::SW_FRAME_NATIVE), None);
    }

    #[test]
    fn a_loop_that_is_too_scattered_is_refused() {
        let range = |start| (FileOffset(start), 0x1000);
        let most = intf::SW_VM_LOOP_RANGES as usize;
        let ranges: Vec<_> = (0..=most as u64).map(|number| range(number * 0x10_000)).collect();
        assert!(can_look_up_loop(&ranges[..most]));
        assert!(!can_look_up_loop(&ranges));
        assert!(!can_look_up_loop(&[range(1 << 32)]));
        assert!(!can_look_up_loop(&[(FileOffset(0), 1 << 32)]));
    }
}
