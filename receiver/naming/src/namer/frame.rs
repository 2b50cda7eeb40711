//! A named frame.

use std::sync::Arc;

use sidewinder_address::{LoadSegment, Svma};
use sidewinder_message::FileInfo;
use sidewinder_process::FileId;
use sidewinder_profile::FrameType;
use sidewinder_symbolize::CodeFrame;
use sidewinder_vm::{Runtime, describe};

use crate::vm::VmObstacle;

/// A frame with its location and its names.
#[derive(Clone, Debug)]
pub struct NamedFrame {
    /// Where it is.
    pub location: FrameLocation,
    /// The functions according to symbols and debug information, inlined calls first; empty if there is no name.
    pub functions: Arc<[CodeFrame]>,
    /// The name if `functions` is empty: the kernel's function, `file+0x...`, or words of ours in brackets.
    pub(crate) name: Arc<str>,
    /// Whether the name, of `functions` if there are any, is words of ours, and not from the target.
    pub(crate) is_marker: bool,
    pub(crate) origin: CodeOrigin,
    /// Whether not every source was searched for a name, so that a later attempt may find one.
    pub is_provisional: bool,
    /// Whether the frame was found only by an unproven frame pointer.
    pub(crate) is_guessed: bool,
}

/// Where a frame is. Return addresses are already moved into the call.
#[derive(Clone, Debug)]
pub enum FrameLocation {
    /// In a file, at an address as stated in the file, in one of its segments.
    File {
        /// The file.
        id: FileId,
        /// What is known of it.
        facts: Arc<FileInfo>,
        /// The address.
        svma: Svma,
        /// The segment.
        load: LoadSegment,
    },
    /// In the kernel.
    Kernel {
        /// The address in the kernel.
        address: u64,
    },
    /// In memory that no file backs, or in an unknown file.
    Anonymous {
        /// The address in the process.
        address: u64,
    },
    /// In a function of a runtime, which has no address.
    Vm,
}

/// The kind of code that a frame executes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum CodeOrigin {
    Native,
    Rust,
    Go,
    Kernel,
    /// Code generated at run time, by a known runtime or another.
    Jit(Option<Runtime>),
    /// Code of a runtime.
    Interpreted(Runtime),
}

impl CodeOrigin {
    /// The type of a frame of this code.
    pub(crate) fn frame_type(self) -> FrameType {
        match self {
            Self::Native | Self::Jit(None) => FrameType::Native,
            Self::Rust => FrameType::Rust,
            Self::Go => FrameType::Go,
            Self::Kernel => FrameType::Kernel,
            Self::Jit(Some(runtime)) | Self::Interpreted(runtime) => describe(Some(runtime)).frame_type,
        }
    }

    /// Whether a process generated the code at run time, if the type of the frame does not say by which runtime.
    pub(crate) fn is_generated(self) -> bool {
        matches!(self, Self::Jit(_) | Self::Interpreted(_)) && self.frame_type() == FrameType::Native
    }
}

/// Why frames have no name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum UnnamedCause {
    /// The process has generated the code.
    GeneratedCode {
        /// By this runtime; `None`: by another.
        generator: Option<Runtime>,
        /// Whether the process publishes the names of other code.
        has_names: bool,
    },
    /// The stack was walked before the files of the process were read, which say how to find the functions of this runtime.
    TooEarly(Runtime),
    /// The names are in the memory of the process, and could not be read.
    Memory(VmObstacle),
    /// Nothing is known of the code: the mappings and files of the process could not be read.
    UnknownCode,
}
