//! The language runtimes that processes run: in which of their files, and where their threads have their state.
//!
//! Owner: the sampling thread. Input: the runtimes of files, from the table builder, and the mappings of processes.
//! Output: what walks need to find the runtimes' frames, and what the reporter needs to name them.

use std::collections::HashMap;
use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sidewinder_address::FileOffset;
use sidewinder_base::foreign::{ForeignProcess, ForeignReader, PendingRead, ReadProgress, ReadTarget};
use sidewinder_bpf::{PublishedRuntime, RuntimeCode, WalkedRuntime};
use sidewinder_message::RuntimeSource;
use sidewinder_process::{FileId, FileTable, Process, ProcessKey};
use sidewinder_vm::{
    LanguageRuntime, LocateError, LocatedRuntime, LoopCode, PthreadLayout, RuntimeFunctions, TargetProcess,
    describe_walked,
};
use tracing::debug;

use super::contexts::take_completed_read;
use super::processes::ProcessTracker;
use super::variables::thread_vector;

/// The first time between two attempts to locate a runtime's state, which it creates a few milliseconds after it has
/// started. It doubles with each attempt.
const RETRY_INTERVAL: Duration = Duration::from_millis(2);
const RETRY_INTERVAL_MAX: Duration = Duration::from_secs(30);

/// Code of a runtime whose frames are not in snapshots of stacks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct VmCode {
    pub(crate) runtime: WalkedRuntime,
    pub(crate) code: LoopCode,
}

type LocateResult = Result<LocatedRuntime, LocateError>;

/// The runtimes of files and processes.
#[derive(Debug, Default)]
pub(crate) struct RuntimeTracker {
    by_file: HashMap<FileId, FileRuntime>,
    /// Files of C libraries, where their layouts have to be read.
    c_libraries: HashMap<FileId, PthreadLayout>,
    processes: HashMap<RuntimeKey, ProcessRuntime>,
    reads: Vec<(RuntimeKey, PendingRead<LocateResult>)>,
    refused: u64,
}

/// A process, and by what walks know the code of a runtime: they know one runtime of each.
type RuntimeKey = (ProcessKey, RuntimeCode);

#[derive(Debug)]
struct FileRuntime {
    runtime: Arc<dyn LanguageRuntime>,
    /// What was published of the process that was located last.
    usual: Option<PublishedRuntime>,
}

#[derive(Debug)]
struct ProcessRuntime {
    file: FileId,
    bias: u64,
    runtime: Arc<dyn LanguageRuntime>,
    /// How the process's C library lays out threads, once that was read.
    pthread: Option<PthreadLayout>,
    /// What walks need to find its frames, once that is known.
    published: Option<PublishedRuntime>,
    /// Until there is a source.
    memory: Option<ForeignProcess>,
    source: Option<Arc<RuntimeSource>>,
    is_announced: bool,
    /// Whether the state could not be located because we may not read the process's memory.
    is_denied: bool,
    /// When to locate the state again.
    retry: Option<Instant>,
    retry_interval: Duration,
}

impl ProcessRuntime {
    /// Records what reads its functions, the first time that this is known.
    fn set_functions(&mut self, functions: Option<Arc<dyn RuntimeFunctions>>) {
        if let Some(functions) = functions
            && let Some(memory) = self.memory.take()
        {
            self.source = Some(Arc::new(RuntimeSource::new(functions, memory)));
        }
    }
}

impl RuntimeTracker {
    /// Adds the runtime that a file contains. Returns whether walks can find its frames.
    pub(super) fn add_file(&mut self, file: FileId, runtime: Arc<dyn LanguageRuntime>) -> bool {
        let can_be_walked = runtime.can_be_walked();
        if can_be_walked {
            self.by_file.insert(file, FileRuntime { runtime, usual: None });
        } else {
            self.refused += 1;
        }
        can_be_walked
    }

    /// Adds how a C library lays out threads.
    pub(super) fn add_c_library(&mut self, file: FileId, layout: PthreadLayout) {
        self.c_libraries.insert(file, layout);
    }

    /// The number of files with a runtime whose loop is too scattered for walks.
    pub(super) fn refused(&self) -> u64 {
        self.refused
    }

    /// Forgets a file.
    pub(super) fn forget_file(&mut self, file: FileId) {
        self.by_file.remove(&file);
        self.c_libraries.remove(&file);
    }

    /// The code of a runtime at a location in a file, if it executes frames that are not in snapshots of stacks.
    pub(crate) fn code_at(&self, file: FileId, offset: FileOffset) -> Option<VmCode> {
        let runtime = &self.by_file.get(&file)?.runtime;
        Some(VmCode { runtime: runtime.runtime(), code: runtime.loop_code_at(offset)? })
    }

    /// The runtime that a file contains, if the code that it generates is of its functions.
    pub(crate) fn generator(&self, file: FileId) -> Option<WalkedRuntime> {
        let runtime = &self.by_file.get(&file)?.runtime;
        runtime.generates_functions().then(|| runtime.runtime())
    }

    /// Whether any file contains such a runtime.
    pub(crate) fn has_generator(&self) -> bool {
        self.by_file.values().any(|known| known.runtime.generates_functions())
    }

    /// What walks need to find the frames of a process's runtimes, of those that are known. Locates a runtime's state when the
    /// process is seen with it for the first time.
    pub(super) fn published(
        &mut self,
        process: &Process,
        files: &mut FileTable,
        reader: &ForeignReader,
    ) -> Vec<&PublishedRuntime> {
        let keys = RuntimeCode::ALL.map(|code| (ProcessKey::from(process), code));
        for key in keys {
            match self.find_in(process, files, key.1) {
                Some((file, bias)) => {
                    let pthread = self.pthread_layout(process, files);
                    self.add_runtime(key, (file, bias), pthread, process, reader);
                }
                None => drop(self.processes.remove(&key)),
            }
        }
        keys.iter().filter_map(|key| self.processes.get(key)?.published.as_ref()).collect()
    }

    fn add_runtime(
        &mut self,
        key: RuntimeKey,
        (file, bias): (FileId, u64),
        pthread: Option<PthreadLayout>,
        process: &Process,
        reader: &ForeignReader,
    ) {
        let known = self.processes.get_mut(&key).filter(|known| known.file == file && known.bias == bias);
        let is_known = known.is_some();
        // The C library may be read after the runtime.
        if let Some(known) = known.filter(|known| known.pthread != pthread) {
            known.pthread = pthread;
            if describe_walked(known.runtime.runtime()).needs_pthread {
                self.locate(key, process, reader);
            }
        }
        if !is_known && let Some(FileRuntime { runtime, usual }) = self.by_file.get(&file) {
            let LocatedRuntime { published, functions } = runtime.unlocated(file, usual.as_ref());
            let is_located = runtime.is_located_by_file();
            let mut added = ProcessRuntime {
                file,
                bias,
                runtime: Arc::clone(runtime),
                pthread,
                published,
                memory: ForeignProcess::from_pid(process.pid(), reader.clone()).ok(),
                source: None,
                is_announced: false,
                is_denied: false,
                retry: None,
                retry_interval: RETRY_INTERVAL,
            };
            added.set_functions(functions);
            self.processes.insert(key, added);
            if !is_located {
                self.locate(key, process, reader);
            }
        }
    }

    /// The first file of a process that contains a runtime whose code walks know in this way, and its load bias.
    fn find_in(&self, process: &Process, files: &mut FileTable, code: RuntimeCode) -> Option<(FileId, u64)> {
        let is_wanted = |runtime: &dyn LanguageRuntime| runtime.runtime().code() == code;
        if !self.by_file.values().any(|known| is_wanted(&*known.runtime)) {
            return None;
        }
        process.mappings().find_map(|mapping| {
            let file = files.identify(process, mapping)?.id;
            let runtime = &self.by_file.get(&file)?.runtime;
            let bias = runtime.bias_of(mapping).filter(|_| is_wanted(&**runtime))?;
            Some((file, bias))
        })
    }

    /// How the C library of a process lays out threads, where that has to be read, and was.
    fn pthread_layout(&self, process: &Process, files: &mut FileTable) -> Option<PthreadLayout> {
        if self.c_libraries.is_empty() {
            return None;
        }
        let mut files = process.mappings().filter_map(|mapping| files.identify(process, mapping));
        files.find_map(|file| self.c_libraries.get(&file.id).copied())
    }

    /// Starts to locate a runtime in the memory of a process, and waits briefly for the result. Returns whether what is published
    /// has changed.
    fn locate(&mut self, key: RuntimeKey, process: &Process, reader: &ForeignReader) -> bool {
        let Some(known) = self.processes.get(&key) else { return false };
        let runtime = Arc::clone(&known.runtime);
        let (file, bias, pthread) = (known.file, known.bias, known.pthread);
        let vector = thread_vector(process);
        let Ok(target) = ReadTarget::from_pid(process.pid()) else { return false };
        let memory = reader.memory().clone();
        let read = move || {
            let memory =
                memory.open(target).map_err(|error| LocateError::Unreadable(io::Error::other(error)))?;
            runtime.locate(file, &TargetProcess { memory: &memory, bias, pthread }, vector)
        };
        match reader.submit_and_wait(target, read) {
            Ok(ReadProgress::Done(located)) => return self.set_located(key, located),
            Ok(ReadProgress::Pending(pending)) => self.reads.push((key, pending)),
            Err(failure) => self.retry_later(key, &failure),
        }
        false
    }

    /// Takes the locations that have been read, and starts the attempts that are due. Returns the processes to publish
    /// again.
    pub(super) fn update(&mut self, processes: &ProcessTracker) -> Vec<ProcessKey> {
        let mut changed = Vec::new();
        while let Some((key, located)) = take_completed_read(&mut self.reads) {
            match located {
                Ok(located) => changed.extend(self.set_located(key, located).then_some(key.0)),
                Err(failure) => self.retry_later(key, &failure),
            }
        }
        let now = Instant::now();
        let due: Vec<_> = self
            .processes
            .iter_mut()
            .filter_map(|(key, known)| known.retry.take_if(|retry| *retry <= now).map(|_| *key))
            .collect();
        for key in due {
            let Some(process) = processes.running(key.0) else { continue };
            changed.extend(self.locate(key, process, processes.reader()).then_some(key.0));
        }
        changed
    }

    /// Whether reads are in progress.
    pub(super) fn has_pending_reads(&self) -> bool {
        !self.reads.is_empty()
    }

    /// Whether an attempt to locate a state is due within `within`.
    pub(super) fn has_retry_within(&self, within: Duration) -> bool {
        let until = Instant::now() + within;
        self.processes.values().any(|known| known.retry.is_some_and(|retry| retry <= until))
    }

    /// Records where the state is. Returns whether what is published has changed.
    fn set_located(&mut self, key: RuntimeKey, located: LocateResult) -> bool {
        let Some(known) = self.processes.get_mut(&key) else { return false };
        match located {
            Ok(LocatedRuntime { published, functions }) => {
                if let Some(file) = self.by_file.get_mut(&known.file) {
                    file.usual.clone_from(&published);
                }
                known.set_functions(functions);
                let has_changed = known.published != published;
                known.published = published;
                known.is_denied = false;
                has_changed
            }
            Err(error) => {
                known.is_denied = error.is_denied();
                self.retry_later(key, &error);
                false
            }
        }
    }

    fn retry_later(&mut self, key: RuntimeKey, reason: &impl Error) {
        debug!(pid = key.0.pid, %reason, "the runtime's state is not known yet");
        if let Some(known) = self.processes.get_mut(&key) {
            known.retry = Some(Instant::now() + known.retry_interval);
            known.retry_interval = (2 * known.retry_interval).min(RETRY_INTERVAL_MAX);
        }
    }

    /// What the reporter needs to name a process's functions, of each runtime once.
    pub(super) fn take_unannounced(&mut self, process: ProcessKey) -> Vec<Arc<RuntimeSource>> {
        let mut take = |code| {
            let known = self.processes.get_mut(&(process, code)).filter(|known| !known.is_announced)?;
            let source = known.source.clone()?;
            known.is_announced = true;
            Some(source)
        };
        RuntimeCode::ALL.into_iter().filter_map(&mut take).collect()
    }

    /// The processes whose state could not be located because we may not read their memory.
    pub(super) fn denied(&self) -> Vec<ProcessKey> {
        self.processes.iter().filter(|(_, known)| known.is_denied).map(|(key, _)| key.0).collect()
    }

    /// Forgets processes that no more samples can arrive from.
    pub(super) fn forget_exited(&mut self, processes: &ProcessTracker) {
        self.processes.retain(|(process, _), _| processes.running_or_exited(*process).is_some());
    }
}

#[cfg(test)]
mod tests;
