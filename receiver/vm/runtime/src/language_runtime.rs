//! What each runtime whose frames walks find implements, in its own crate: how it is found in a file and located in a process,
//! what of it is published for walks, and how its functions are read.

use std::error::Error;
use std::fmt::Debug;
use std::io;
use std::sync::Arc;

use sidewinder_address::FileOffset;
use sidewinder_bpf::{CodeObject, PublishedRuntime, TlsVector, VmFunction, WalkedRuntime};
use sidewinder_process::tls::TlsVariableError;
use sidewinder_process::{ExecutableMapping, FileId, ForeignMemory};
use thiserror::Error;

use crate::inspection::{Finding, Inspection};
use crate::source_map::SourceMaps;
use crate::{Code, Function, FunctionError, PthreadLayout};

/// A runtime that an ELF file contains.
pub trait LanguageRuntime: Debug + Send + Sync {
    /// Which one it is.
    fn runtime(&self) -> WalkedRuntime;

    /// Its version, as far as the file says it.
    fn version(&self) -> Option<String> {
        None
    }

    /// The load bias of the file, given one of its mappings: the difference to the addresses in the file.
    fn bias_of(&self, mapping: &ExecutableMapping) -> Option<u64>;

    /// Whether walks can look up all of its code.
    fn can_be_walked(&self) -> bool {
        true
    }

    /// What code at an offset of the file says of the activation that executes it; `None` if it is not in a loop.
    fn loop_code_at(&self, _at: FileOffset) -> Option<LoopCode> {
        None
    }

    /// Whether the code that a process with it generates is of its functions, and a snapshot of a stack says no more of them.
    fn generates_functions(&self) -> bool {
        false
    }

    /// What is known of it in a process whose memory has not been read. `usual`: what was published of the process with this
    /// file that was located last.
    fn unlocated(&self, file: FileId, usual: Option<&PublishedRuntime>) -> LocatedRuntime;

    /// Whether that is all that there is to know.
    fn is_located_by_file(&self) -> bool {
        false
    }

    /// Locates it in the memory of a process.
    ///
    /// # Errors
    /// See [`LocateError`].
    fn locate(
        &self,
        file: FileId,
        process: &TargetProcess<'_>,
        vector: TlsVector,
    ) -> Result<LocatedRuntime, LocateError>;

    /// Whether its frames can be found; `None` if the file doesn't say that.
    fn frames_by_file(&self) -> Option<Finding> {
        None
    }

    /// Looks whether its frames and names can be read in a process, by trying it.
    ///
    /// # Errors
    /// If the memory of the process can't be read.
    fn inspect(&self, process: &TargetProcess<'_>) -> io::Result<Inspection>;
}

/// A process in whose memory a runtime is located.
pub struct TargetProcess<'memory> {
    /// Its memory.
    pub memory: &'memory dyn ForeignMemory,
    /// The load bias of the runtime's file.
    pub bias: u64,
    /// How its C library lays out threads, where that has to be read ([`PthreadLayout::IS_READ`]), and was.
    pub pthread: Option<PthreadLayout>,
}

/// What is known of a runtime in a process.
#[derive(Clone, Debug)]
pub struct LocatedRuntime {
    /// What walks need to find its frames, once that is known.
    pub published: Option<PublishedRuntime>,
    /// What reads its functions, once that is known. What has been known before may be left out.
    pub functions: Option<Arc<dyn RuntimeFunctions>>,
}

/// Reads the functions of a runtime in a process.
pub trait RuntimeFunctions: Debug + Send + Sync {
    /// Whose functions they are.
    fn runtime(&self) -> WalkedRuntime;

    /// Reads the function of a frame.
    ///
    /// # Errors
    /// See [`FunctionError`].
    fn read(&self, memory: &dyn ForeignMemory, wanted: VmFunction) -> Result<Code, FunctionError>;

    /// The function that was copied; `None` if functions of this runtime are not.
    fn copied(&self, _object: &CodeObject) -> Option<Result<Function, FunctionError>> {
        None
    }

    /// Has functions of scripts be those of the sources that these were made of, by their source maps. Opens these, if there can
    /// be any.
    fn use_source_maps(&self, _open: &mut dyn FnMut() -> Option<Arc<dyn SourceMaps>>) {}
}

/// What code of a runtime's loop says of an activation that executes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoopCode {
    /// It executes a group of functions, whose frames are not on the native stack.
    Group(GroupLink),
    /// It executes one function, whose frame is the native one.
    OneFunction,
}

/// What a place in a loop says of the group of frames of an activation that executes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GroupLink {
    /// They are those that the thread's state leads to.
    Linked,
    /// The thread's state leads to its caller's.
    Unlinked,
    /// The thread's state may lead to none.
    Unwritten,
}

/// Why a runtime was not located in a process.
#[derive(Debug, Error)]
pub enum LocateError {
    /// The memory of the process can't be read.
    #[error("can't read the memory of the process")]
    Unreadable(#[source] io::Error),
    /// It is not there yet, or not as it should be.
    #[error(transparent)]
    NotFound(Box<dyn Error + Send + Sync>),
}

impl LocateError {
    /// Whether we may not read the process's memory.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        matches!(self, Self::Unreadable(error) if error.kind() == io::ErrorKind::PermissionDenied)
    }
}

impl From<TlsVariableError> for LocateError {
    fn from(error: TlsVariableError) -> Self {
        match error {
            TlsVariableError::Unreadable(error) => Self::Unreadable(error),
            other => Self::NotFound(Box::new(other)),
        }
    }
}

/// The runtime that a file contains, if it contains one.
pub type DetectResult = io::Result<Option<Arc<dyn LanguageRuntime>>>;
