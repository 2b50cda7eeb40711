//! Whether the methods of a process's Java virtual machine can be read now: its tables are read.

use std::io;

use sidewinder_process::{ExecutableMapping, OpenedFile};
use sidewinder_text::ExternalText;
use sidewinder_vm::Runtime;
use sidewinder_vm::hotspot::{JvmLibrary, MachineError};

use super::process::{Finding, InspectedProcess, RuntimeReport, TIMEOUT};
use crate::causes::error_chain;
use crate::foreign::ForeignProcess;
use crate::runtime_advice::MEMORY_ADVICE;

pub(super) fn inspect(
    process: &InspectedProcess<'_>,
    version: Option<ExternalText<'static>>,
    path: ExternalText<'static>,
    file: &OpenedFile,
    mapping: &ExecutableMapping,
) -> RuntimeReport {
    let report = |version, frames, names, next: Option<&str>| RuntimeReport {
        support: Runtime::Jvm.description(),
        version,
        file: path.clone(),
        frames,
        names,
        next: next.map(str::to_owned),
    };
    let limited = |text: String, next| {
        report(version.clone(), Finding::limited(text.clone()), Finding::limited(text), Some(next))
    };
    let library = JvmLibrary::read(file).ok().flatten();
    let Some((library, bias)) =
        library.and_then(|library| Some((library.clone(), library.bias_of(mapping)?)))
    else {
        return limited("this virtual machine does not describe itself".to_owned(), "use HotSpot of OpenJDK");
    };
    let memory = ForeignProcess::from_pid(process.pid, process.reader.clone());
    let read = memory.map_err(|error| error_chain(&error)).and_then(|memory| {
        memory
            .read_within(TIMEOUT, move |memory| library.locate(bias, memory))
            .map_err(|failure| failure.to_string())
    });
    match read {
        Ok(Ok(machine)) => {
            let (version, update) = machine.version;
            let bytes: u64 = machine.heaps.iter().map(|heap| heap.bytes).sum();
            let frames = Finding::ok(format!("found its code cache of {} MiB", bytes >> 20));
            let names = Finding::ok("its memory can be read");
            report(Some(format!("{version}.0.{update}").into()), frames, names, None)
        }
        Ok(Err(MachineError::NotYet)) => {
            limited(MachineError::NotYet.to_string(), "try it again while Java code runs")
        }
        Ok(Err(error @ MachineError::Missing(_))) => {
            limited(error.to_string(), "use a JDK from 8 to 26, or report this one as a bug")
        }
        Ok(Err(MachineError::Unreadable(error))) => {
            let is_denied = error.kind() == io::ErrorKind::PermissionDenied;
            let next = if is_denied { MEMORY_ADVICE } else { "try it again" };
            limited(format!("its memory can't be read: {}", error_chain(&error)), next)
        }
        Err(why) => limited(format!("its memory can't be read: {why}"), "try it again"),
    }
}
