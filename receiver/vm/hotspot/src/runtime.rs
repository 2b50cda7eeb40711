//! HotSpot, as a [`LanguageRuntime`].

use std::io;
use std::sync::Arc;

use sidewinder_bpf::{PublishedRuntime, TlsVector, VmForm, VmFunction, WalkedRuntime};
use sidewinder_process::{ExecutableMapping, FileId, ForeignMemory};
use sidewinder_vm_runtime::{
    Code, Finding, FunctionError, Inspection, LanguageRuntime, LocateError, LocatedRuntime, RuntimeFunctions,
    TargetProcess,
};

use super::code::CodePlace;
use super::machine::{JvmLibrary, VirtualMachine};
use super::named_fields::MachineError;
use super::published::published;

impl LanguageRuntime for JvmLibrary {
    fn runtime(&self) -> WalkedRuntime {
        WalkedRuntime::HotSpot
    }

    fn bias_of(&self, mapping: &ExecutableMapping) -> Option<u64> {
        self.bias_of(mapping)
    }

    fn unlocated(&self, _: FileId, _: Option<&PublishedRuntime>) -> LocatedRuntime {
        LocatedRuntime { published: None, functions: None }
    }

    fn locate(
        &self,
        _: FileId,
        process: &TargetProcess<'_>,
        _: TlsVector,
    ) -> Result<LocatedRuntime, LocateError> {
        let machine = self.locate(process.bias, &process.memory)?;
        Ok(LocatedRuntime { published: Some(published(&machine)), functions: Some(Arc::new(machine)) })
    }

    /// Its tables are read.
    fn inspect(&self, process: &TargetProcess<'_>) -> io::Result<Inspection> {
        let machine = match self.locate(process.bias, &process.memory) {
            Ok(machine) => machine,
            Err(MachineError::Unreadable(error)) => return Err(error),
            Err(error @ MachineError::NotYet) => {
                return Ok(Inspection::limited(error.to_string(), "try it again while Java code runs"));
            }
            Err(error @ MachineError::Missing(_)) => {
                let next = "use a JDK from 8 to 26, or report this one as a bug";
                return Ok(Inspection::limited(error.to_string(), next));
            }
        };
        let (version, update) = machine.version;
        let bytes: u64 = machine.heaps.iter().map(|heap| heap.bytes).sum();
        Ok(Inspection {
            version: Some(format!("{version}.0.{update}")),
            frames: Finding::ok(format!("found its code cache of {} MiB", bytes >> 20)),
            names: Finding::ok("its memory can be read"),
            next: None,
        })
    }
}

impl From<MachineError> for LocateError {
    fn from(error: MachineError) -> Self {
        match error {
            MachineError::Unreadable(error) => Self::Unreadable(error),
            other => Self::NotFound(Box::new(other)),
        }
    }
}

impl RuntimeFunctions for VirtualMachine {
    fn runtime(&self) -> WalkedRuntime {
        WalkedRuntime::HotSpot
    }

    fn read(&self, memory: &dyn ForeignMemory, wanted: VmFunction) -> Result<Code, FunctionError> {
        let VmFunction { object, cookie, place, form, .. } = wanted;
        match form {
            VmForm::Compiled { is_return_address } => {
                let place = CodePlace { offset: place.cast_unsigned(), is_return_address };
                self.read_blob(&memory, object, cookie, place)
            }
            _ => self.read_interpreted(&memory, object, cookie),
        }
    }
}
