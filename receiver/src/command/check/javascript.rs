//! Whether the functions of JavaScript that a process's V8 runs can be read now.

use std::io;

use sidewinder_process::{ExecutableMapping, OpenedFile};
use sidewinder_text::ExternalText;
use sidewinder_vm::Runtime;
use sidewinder_vm::v8::Library;

use super::process::{Finding, InspectedProcess, RuntimeReport, TIMEOUT};
use crate::causes::error_chain;
use crate::foreign::ForeignProcess;
use crate::runtime_advice::MEMORY_ADVICE;

/// `None`: walks don't find functions in this build of V8.
pub(super) fn inspect(
    process: &InspectedProcess<'_>,
    version: Option<ExternalText<'static>>,
    path: &ExternalText<'static>,
    file: &OpenedFile,
    mapping: &ExecutableMapping,
) -> Option<RuntimeReport> {
    let library = Library::read(file).ok().flatten()?;
    let bias = library.bias_of(mapping)?;
    let support = Runtime::V8.description();
    let (frames, frames_advice) = if library.loops.is_empty() {
        let text =
            "only compiled functions: the file has no symbol table, which says where the interpreter is";
        (Finding::limited(text), Some("use a build that is not stripped, as those of nodejs.org"))
    } else {
        (Finding::ok("each function has its frame on the native stack"), None)
    };
    let memory = ForeignProcess::from_pid(process.pid, process.reader.clone());
    let read = memory.map_err(|error| error_chain(&error)).and_then(|memory| {
        memory
            .read_within(TIMEOUT, move |memory| library.is_in(bias, memory))
            .map_err(|failure| failure.to_string())
    });
    let (names, names_advice) = match read {
        Ok(Ok(true)) => (Finding::ok("its memory can be read"), None),
        Ok(Ok(false)) => {
            (Finding::limited("its memory is not that of its file"), Some("report this as a bug"))
        }
        Ok(Err(error)) => {
            let is_denied = error.kind() == io::ErrorKind::PermissionDenied;
            let advice = if is_denied { MEMORY_ADVICE } else { "try it again" };
            (Finding::limited(format!("its memory can't be read: {}", error_chain(&error))), Some(advice))
        }
        Err(why) => (Finding::limited(format!("its memory can't be read: {why}")), Some("try it again")),
    };
    let next = names_advice.or(frames_advice).map(str::to_owned);
    Some(RuntimeReport { support, version, file: path.clone(), frames, names, next })
}
