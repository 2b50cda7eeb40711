//! Whether the functions of a process's CPython can be read now: its threads' states are located, and one name is read.

use std::error::Error;
use std::io;

use sidewinder_address::Avma;
use sidewinder_process::tls::TlsVariableError;
use sidewinder_process::{ExecutableMapping, ForeignMemory, OpenedFile};
use sidewinder_text::ExternalText;
use sidewinder_vm::cpython::{Interpreter, Version};
use sidewinder_vm::{Function, PthreadLayout, Runtime};

use super::process::{Finding, InspectedProcess, RuntimeReport, TIMEOUT};
use crate::causes::error_chain;
use crate::foreign::ForeignProcess;
use crate::runtime_advice::MEMORY_ADVICE;

/// How often a name is tried to be read: a thread that runs may leave its function meanwhile.
const ATTEMPTS: u32 = 8;
/// The next step if the process runs another build than those that are supported.
fn build_advice() -> String {
    format!("use a build of 3.{} to 3.14, 3.13t or 3.14t", Version::OLDEST.minor)
}

/// What was read of a process.
struct PythonState {
    threads: usize,
    /// Whether one of the threads has its state where walks look for it; `None` if that was not compared.
    is_found: Option<bool>,
    function: Option<Function>,
}

/// Why nothing was read.
enum PythonObstacle {
    NotInitialized,
    Denied(String),
    Failed(String),
}

pub(super) fn inspect(
    process: &InspectedProcess<'_>,
    version: Option<ExternalText<'static>>,
    path: ExternalText<'static>,
    file: &OpenedFile,
    mapping: &ExecutableMapping,
) -> RuntimeReport {
    let report = |version, frames, names, next: Option<&str>| RuntimeReport {
        support: Runtime::CPython.description(),
        version,
        file: path,
        frames,
        names,
        next: next.map(str::to_owned),
    };
    let both = |text: &str| {
        let finding = Finding::limited(text.to_owned());
        (finding.clone(), finding)
    };
    let interpreter = Interpreter::read(file).ok().flatten();
    let Some((interpreter, bias)) =
        interpreter.and_then(|found| Some((found.clone(), found.bias_of(mapping)?)))
    else {
        let (frames, names) = both("this build of CPython is not supported");
        return report(version, frames, names, Some(&build_advice()));
    };
    let version = version.or_else(|| Some(interpreter.version.to_string().into()));
    let pthread = pthread_layout(process);
    let memory = ForeignProcess::from_pid(process.pid, process.reader.clone());
    let read = memory.map_err(|error| PythonObstacle::Failed(error_chain(&error))).and_then(|memory| {
        memory
            .read_within(TIMEOUT, move |memory| read_state(&interpreter, bias, memory, pthread))
            .unwrap_or_else(|failure| Err(PythonObstacle::Failed(failure.to_string())))
    });
    match read {
        Ok(state) => {
            let (frames, next) = match state.is_found {
                Some(false) => (
                    Finding::limited("no thread has its state where it is expected"),
                    Some("report this build of CPython as a bug"),
                ),
                _ => (Finding::ok(format!("found the state of {} threads", state.threads)), None),
            };
            report(version, frames, Finding::ok(name_that_was_read(state.function.as_ref())), next)
        }
        Err(PythonObstacle::NotInitialized) => {
            let (frames, names) = both("the interpreter is not initialized yet, or not any more");
            report(version, frames, names, Some("try it again while Python code runs"))
        }
        Err(PythonObstacle::Denied(why)) => {
            let (frames, names) = both(&format!("its memory can't be read: {why}"));
            report(version, frames, names, Some(MEMORY_ADVICE))
        }
        Err(PythonObstacle::Failed(why)) => {
            let (frames, names) = both(&format!("its memory can't be read: {why}"));
            report(version, frames, names, Some("try it again"))
        }
    }
}

/// How the process's C library lays out threads, where that has to be read.
fn pthread_layout(process: &InspectedProcess<'_>) -> Option<PthreadLayout> {
    if !PthreadLayout::IS_READ {
        return None;
    }
    process.files().find_map(|(_, _, file)| PthreadLayout::read(&file).ok()?)
}

fn name_that_was_read(function: Option<&Function>) -> String {
    match function {
        Some(function) => format!("read {} ({}:{})", function.name(), function.path(), function.first_line),
        None => "its memory can be read, but no thread runs a function now".to_owned(),
    }
}

fn read_state(
    interpreter: &Interpreter,
    bias: u64,
    memory: &impl ForeignMemory,
    pthread: Option<PthreadLayout>,
) -> Result<PythonState, PythonObstacle> {
    let location = interpreter.locate_thread_state(bias, memory, pthread)?;
    let states = interpreter.thread_states(bias, memory)?;
    if states.is_empty() {
        return Err(PythonObstacle::NotInitialized);
    }
    let is_found = states
        .iter()
        .filter_map(|state| interpreter.is_state_at(location, *state, memory, pthread).ok().flatten())
        .reduce(|one, other| one || other);
    let innermost = |state: &Avma| interpreter.layout.innermost_function(*state, memory).ok().flatten();
    let function = (0..ATTEMPTS).find_map(|_| states.iter().find_map(innermost));
    Ok(PythonState { threads: states.len(), is_found, function })
}

impl From<TlsVariableError> for PythonObstacle {
    fn from(error: TlsVariableError) -> Self {
        match error {
            TlsVariableError::NotYet => Self::NotInitialized,
            TlsVariableError::Unreadable(error) => Self::from(error),
        }
    }
}

impl From<io::Error> for PythonObstacle {
    fn from(error: io::Error) -> Self {
        let why = error_chain(&error as &dyn Error);
        match error.kind() {
            io::ErrorKind::PermissionDenied => Self::Denied(why),
            _ => Self::Failed(why),
        }
    }
}
