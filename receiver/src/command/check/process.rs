//! What a process runs, and whether that can be read now: by trying it.
//!
//! Nothing of the process is stopped or changed. Its memory and mappings are read by the threads of
//! [`ForeignReader`], since such reads may never return.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use sidewinder_base::causes::error_chain;
use sidewinder_base::exit::Failure;
use sidewinder_base::foreign::{ForeignProcess, ForeignReader, ReadFailure, ReadProgress, ReadTarget};
use sidewinder_bpf::{Opener, WalkedRuntime};
use sidewinder_message::{JitSource, PublishedNames};
use sidewinder_process::{
    Backing, ExecutableMapping, MappedFile, OpenError, OpenedFile, Pid, ProcRoot, ProcessRoot, ProcfsError,
    read_executable_mappings,
};
use sidewinder_text::ExternalText;
use sidewinder_vm::{
    Finding, Inspection, LanguageRuntime, PthreadLayout, Runtime, RuntimeDescription, RuntimeSet,
    TargetProcess, Unsupported, describe, describe_walked, detect, find_runtimes,
};

use super::limit::architecture_limit;
use super::native::NativeReport;
use crate::runtime_advice::{MEMORY_ADVICE, for_process};

/// How long to wait for the mappings or for memory of a process.
const TIMEOUT: Duration = Duration::from_secs(2);
/// The most mappings that are read.
const MAPPINGS_MAX: usize = 64 << 10;

/// What was found out about a process.
#[derive(Debug)]
pub(super) struct ProcessReport {
    pub(super) pid: u32,
    /// The path of its program; empty if that is not known.
    pub(super) executable: ExternalText<'static>,
    /// The runtimes that its files contain; empty: it runs native code only.
    pub(super) runtimes: Vec<RuntimeReport>,
    /// Which of its files have symbols.
    pub(super) native: NativeReport,
    pub(super) obstacle: Option<Obstacle>,
}

/// Why a process could not be looked at.
#[derive(Debug)]
pub(super) enum Obstacle {
    /// There is no such process.
    Gone,
    /// A privilege is missing.
    Denied(ExternalText<'static>),
    /// It could not be read for another reason.
    Failed(ExternalText<'static>),
}

impl Obstacle {
    /// The state, as in the document.
    pub(super) const fn label(&self) -> &'static str {
        match self {
            Self::Gone => "gone",
            Self::Denied(_) => "denied",
            Self::Failed(_) => "failed",
        }
    }

    pub(super) fn why(&self) -> ExternalText<'_> {
        match self {
            Self::Gone => "there is no such process".into(),
            Self::Denied(why) | Self::Failed(why) => why.clone(),
        }
    }

    pub(super) const fn next(&self) -> &'static str {
        match self {
            Self::Gone => "find it with `pgrep -a NAME`, in sidewinder's PID namespace",
            Self::Denied(_) => MEMORY_ADVICE,
            Self::Failed(_) => "try again; `SIDEWINDER_LOG=debug` shows more",
        }
    }
}

/// What was found out about a runtime of a process.
#[derive(Debug)]
pub(super) struct RuntimeReport {
    pub(super) support: &'static RuntimeDescription,
    /// As far as its file says.
    pub(super) version: Option<ExternalText<'static>>,
    /// The file that contains it; empty if none is known.
    pub(super) file: ExternalText<'static>,
    pub(super) frames: Finding,
    pub(super) names: Finding,
    /// The next step, unless both can be read.
    pub(super) next: Option<String>,
}

/// Looks at processes.
///
/// # Errors
/// If the threads that read memory can't be started.
pub(super) fn look_at(pids: &[u32]) -> Result<Vec<ProcessReport>, Failure> {
    if pids.is_empty() {
        return Ok(Vec::new());
    }
    let reader = Opener::start()
        .and_then(|opener| ForeignReader::start(&opener, None))
        .map_err(|error| Failure::runtime("can't start a thread", error))?;
    Ok(pids.iter().map(|pid| ProcessReport::read(*pid, &reader)).collect())
}

impl ProcessReport {
    fn read(pid: u32, reader: &ForeignReader) -> Self {
        let mut report = Self {
            pid,
            executable: "".into(),
            runtimes: Vec::new(),
            native: NativeReport::default(),
            obstacle: None,
        };
        report.obstacle = report.read_runtimes(Pid(pid), reader).err();
        report
    }

    fn read_runtimes(&mut self, pid: Pid, reader: &ForeignReader) -> Result<(), Obstacle> {
        let target = ReadTarget::from_pid(pid)?;
        let mappings = read_mappings(target, reader)?;
        if let Ok(path) = target.open_dir()?.link("exe") {
            self.executable = ExternalText::from_bytes(&path).into_owned();
        }
        let root = ProcessRoot::from_pid(&ProcRoot::default(), pid)?;
        let process = InspectedProcess { pid, root, mappings: &mappings, reader };
        let mut opened_files = Vec::new();
        // Of files that can't be opened, the runtimes are not known.
        for (mapping, file, opened) in process.files() {
            for (runtime, version) in find_runtimes(&opened).unwrap_or_default() {
                let path = ExternalText::from_bytes(file.path()).into_owned();
                let version = version.map(ExternalText::from);
                self.runtimes.push(process.inspect(runtime, version, path, &opened, mapping));
            }
            opened_files.push((file.path().to_vec(), opened));
        }
        self.native = NativeReport::new(pid, &opened_files);
        let has_generated_code = mappings.iter().any(|mapping| mapping.backing == Backing::Anonymous);
        if self.runtimes.is_empty() && has_generated_code {
            self.runtimes.push(process.inspect_generated(None, None, "".into()));
        }
        Ok(())
    }
}

/// A process, as far as each runtime is looked at in it.
struct InspectedProcess<'a> {
    pid: Pid,
    root: ProcessRoot,
    mappings: &'a [ExecutableMapping],
    reader: &'a ForeignReader,
}

impl InspectedProcess<'_> {
    /// The files that it has mapped, each once with its first mapping. Those that were replaced since can't be opened, and are left
    /// out.
    fn files(&self) -> impl Iterator<Item = (&ExecutableMapping, &Arc<MappedFile>, OpenedFile)> {
        let mut seen = HashSet::<&Arc<MappedFile>>::new();
        self.mappings.iter().filter_map(move |mapping| {
            let file = mapping.backing.file().filter(|file| seen.insert(*file))?;
            let opened = self.root.open_mapped(std::iter::once(&**file)).next()?.ok()?;
            Some((mapping, file, opened))
        })
    }

    fn inspect(
        &self,
        runtime: Runtime,
        version: Option<ExternalText<'static>>,
        path: ExternalText<'static>,
        file: &OpenedFile,
        mapping: &ExecutableMapping,
    ) -> RuntimeReport {
        let support = describe(Some(runtime));
        if let Some(limit) = architecture_limit(runtime) {
            let (frames, names) = (Finding::limited(limit.why), Finding::limited(limit.why));
            return RuntimeReport { support, version, file: path, frames, names, next: None };
        }
        if let Some(walked) = runtime.walked() {
            return self.inspect_walked(walked, version, path, file, mapping);
        }
        if support.is_complete() {
            let (frames, names) = (Finding::ok(support.frames), Finding::ok(support.names));
            return RuntimeReport { support, version, file: path, frames, names, next: None };
        }
        self.inspect_generated(Some(runtime), version, path)
    }

    /// A runtime whose frames walks find, in builds that are supported.
    fn inspect_walked(
        &self,
        walked: WalkedRuntime,
        version: Option<ExternalText<'static>>,
        file: ExternalText<'static>,
        content: &OpenedFile,
        mapping: &ExecutableMapping,
    ) -> RuntimeReport {
        let known = describe_walked(walked);
        let support = describe(Some(walked.into()));
        let found = detect(content, RuntimeSet::only(walked)).ok().flatten();
        let located = found.and_then(|found| Some((found.bias_of(mapping)?, found)));
        let Some((bias, found)) = located else {
            let Some(Unsupported { why, next }) = known.unsupported else {
                return self.inspect_generated(Some(walked.into()), version, file);
            };
            let (frames, names) = (Finding::limited(why), Finding::limited(why));
            return RuntimeReport { support, version, file, frames, names, next: Some(next()) };
        };
        let version = version.or_else(|| found.version().map(ExternalText::from));
        match self.try_to_read(&found, bias) {
            Ok(Inspection { version: better, frames, names, next }) => {
                let version = better.map(ExternalText::from).or(version);
                RuntimeReport { support, version, file, frames, names, next: next.map(str::to_owned) }
            }
            Err(UnreadableMemory { why, next }) => {
                let names = Finding::limited(format!("its memory can't be read: {why}"));
                let frames = found.frames_by_file().unwrap_or_else(|| names.clone());
                RuntimeReport { support, version, file, frames, names, next: Some(next.to_owned()) }
            }
        }
    }

    /// Tries to read the frames and names of a runtime.
    fn try_to_read(
        &self,
        found: &Arc<dyn LanguageRuntime>,
        bias: u64,
    ) -> Result<Inspection, UnreadableMemory> {
        let unreadable = |why: String| UnreadableMemory { why, next: "try again" };
        let memory = ForeignProcess::from_pid(self.pid, self.reader.clone());
        let memory = memory.map_err(|error| unreadable(error_chain(&error)))?;
        let (found, pthread) = (Arc::clone(found), self.pthread_layout(found.runtime()));
        let read = memory
            .read_within(TIMEOUT, move |memory| found.inspect(&TargetProcess { memory, bias, pthread }));
        match read {
            Ok(Err(error)) if error.kind() == io::ErrorKind::PermissionDenied => {
                Err(UnreadableMemory { why: error_chain(&error), next: MEMORY_ADVICE })
            }
            Ok(result) => result.map_err(|error| unreadable(error_chain(&error))),
            Err(failure) => Err(unreadable(failure.to_string())),
        }
    }

    /// How the process's C library lays out threads, where that has to be read for a runtime.
    fn pthread_layout(&self, walked: WalkedRuntime) -> Option<PthreadLayout> {
        if !RuntimeSet::only(walked).reads_pthread() {
            return None;
        }
        self.files().find_map(|(_, _, file)| PthreadLayout::read(&file).ok()?)
    }

    /// A runtime whose functions are visible as far as it has generated code for them.
    fn inspect_generated(
        &self,
        runtime: Option<Runtime>,
        version: Option<ExternalText<'static>>,
        file: ExternalText<'static>,
    ) -> RuntimeReport {
        let support = describe(runtime);
        let is_ok = support.frames_advice.is_none() && !support.is_interpreter_only();
        let frames = Finding { is_ok, detail: support.frames.into() };
        let source = JitSource::new(self.pid, self.mappings.iter(), self.reader);
        let own_pid = source.as_ref().map_or(self.pid, JitSource::own_pid);
        let published = source.filter(|_| support.advice.is_some()).map(|source| source.published());
        let names = match &published {
            Some(published) => published_names(published),
            None => Finding::limited(support.names),
        };
        let names_advice = support.advice.filter(|_| !names.is_ok);
        let advice = [support.frames_advice, names_advice].into_iter().flatten();
        let next: Vec<String> = advice.map(|advice| for_process(advice, own_pid.0)).collect();
        let next = (!next.is_empty()).then(|| next.join("; "));
        RuntimeReport { support, version, file, frames, names, next }
    }
}

/// Why the memory of a process can't be read, and the next step.
struct UnreadableMemory {
    why: String,
    next: &'static str,
}

/// What a process publishes for profilers, in words.
fn published_names(published: &PublishedNames) -> Finding {
    let mut parts = Vec::new();
    let mut refusals = Vec::new();
    for (path, functions) in &published.files {
        let path = ExternalText::from_bytes(path);
        match functions {
            Ok(functions) => parts.push(format!("{functions} functions in {path}")),
            Err(OpenError::NotFound) => {}
            Err(error) => {
                refusals.push(format!("{path}: {}", error_chain(error)));
            }
        }
    }
    if published.symbol_files > 0 {
        parts.push(format!("{} symbol files in memory, for debuggers", published.symbol_files));
    }
    if published.any() {
        return Finding::ok(parts.join("; "));
    }
    parts.extend(refusals);
    match parts[..] {
        [] => Finding::limited("it publishes no names: no perf map, jitdump or GDB JIT interface"),
        _ => Finding::limited(parts.join("; ")),
    }
}

/// Reads the executable mappings of a process.
fn read_mappings(target: ReadTarget, reader: &ForeignReader) -> Result<Vec<ExecutableMapping>, Obstacle> {
    let read = move || {
        let directory = target.open_dir()?;
        let state = directory.state()?;
        if state.has_ended() {
            return Err(ProcfsError::Gone { pid: target.pid });
        }
        let mut mappings = Vec::new();
        let maps = directory.with_memory(&state).file("maps")?;
        read_executable_mappings(maps, |mapping| {
            if mappings.len() < MAPPINGS_MAX {
                mappings.push(mapping);
            }
        })
        .map_err(|source| ProcfsError::Read { pid: target.pid, path: "maps".to_owned(), source })?;
        Ok(mappings)
    };
    match reader.submit(target, read).and_then(|pending| pending.wait(TIMEOUT)) {
        Ok(ReadProgress::Done(mappings)) => Ok(mappings?),
        Ok(ReadProgress::Pending(_)) => Err(Obstacle::Failed(ReadFailure::TimedOut.to_string().into())),
        Err(failure) => Err(Obstacle::Failed(failure.to_string().into())),
    }
}

impl From<ProcfsError> for Obstacle {
    fn from(error: ProcfsError) -> Self {
        match error {
            ProcfsError::Gone { .. } => Self::Gone,
            ProcfsError::Permission { .. } => Self::Denied(error.to_string().into()),
            _ => Self::Failed(error_chain(&error).into()),
        }
    }
}

impl From<OpenError> for Obstacle {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Gone => Self::Gone,
            OpenError::Permission | OpenError::Denied => {
                Self::Denied(format!("can't follow its root: {error}").into())
            }
            _ => Self::Failed(format!("can't follow its root: {}", error_chain(&error)).into()),
        }
    }
}
