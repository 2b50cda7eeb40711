//! What walks of snapshots ask of the code that a process maps.

use sidewinder_address::{Avma, FileOffset};
use sidewinder_bpf::{Outcome, WalkedRuntime};
use sidewinder_process::FileId;
use sidewinder_unwind::CALL_BYTES;
use sidewinder_unwind_table::Rule;
use sidewinder_vm::LoopCode;

use crate::VmCode;

/// The file and file offset of a rule that a walk needs and that is not loaded.
pub(crate) type MissingRule = (FileId, FileOffset);

/// The code at an address of a process.
#[derive(Debug)]
pub(crate) enum CodeLocation {
    /// No code.
    Unmapped,
    /// Code that no file backs.
    Anonymous,
    /// Code of a file, with its rule, or the outcome of a walk there.
    File { file: FileId, offset: FileOffset, rule: Result<Rule, Outcome> },
    /// Code of a file whose table is not loaded yet.
    TableNotLoaded { file: FileId, offset: FileOffset },
}

/// The code that a process maps.
pub(crate) trait CodeLookup {
    /// The code at an address.
    fn locate(&mut self, address: Avma) -> CodeLocation;

    /// The code of a runtime at a location, if it executes frames that are not in snapshots.
    fn vm_code_at(&self, file: FileId, offset: FileOffset) -> Option<VmCode>;

    /// The runtime of whose functions code is that no file backs, if a snapshot says no more of these.
    fn generator(&mut self) -> Option<WalkedRuntime>;

    /// The bytes before an address, if they can be read.
    fn bytes_before(&mut self, address: Avma) -> Option<[u8; CALL_BYTES]>;

    /// The runtime of which the code at a location executes a function, if that can't be found any more.
    fn unknown_function_at(&mut self, location: &CodeLocation) -> Option<WalkedRuntime> {
        match *location {
            CodeLocation::Anonymous => self.generator(),
            CodeLocation::File { file, offset, .. } => match self.vm_code_at(file, offset)? {
                VmCode { runtime, code: LoopCode::OneFunction } => Some(runtime),
                VmCode { code: LoopCode::Group(_), .. } => None,
            },
            CodeLocation::Unmapped | CodeLocation::TableNotLoaded { .. } => None,
        }
    }
}
