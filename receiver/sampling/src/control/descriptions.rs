//! The process descriptions that the reporter has. Each process is announced before its first event, and again when its
//! environment or its context changes the description.
//!
//! Owner: the sampling thread. Input: sampled processes, their environments and their contexts. Output: messages to the
//! reporter, and the variables in which threads publish their span.

use std::collections::HashSet;
use std::sync::Arc;

use sidewinder_base::foreign::{ForeignReader, ReadProgress};
use sidewinder_bpf::{Pointee, TlsVariable};
use sidewinder_config::TraceContext;
use sidewinder_message::{JitSource, Message};
use sidewinder_process::{FileId, Pid, Process, ProcessDescription, ProcessKey};
use tracing::debug;

use super::contexts::{Contexts, ThreadContextSource};
use super::files::FileTracker;
use super::jit_sources::JitSources;
use super::processes::ProcessTracker;
use super::variables::ContextVariables;

/// The announced processes, with their contexts, variables and JIT sources.
#[derive(Debug)]
pub(crate) struct Descriptions {
    /// The processes that the reporter knows. After an exec two of them have the same PID for some time: samples of the first
    /// that are walked late may come after those of the second.
    announced: HashSet<ProcessKey>,
    contexts: Contexts,
    variables: ContextVariables,
    jit_sources: JitSources,
}

impl Descriptions {
    pub(super) fn new(options: &TraceContext, reader: ForeignReader) -> Self {
        Self {
            announced: HashSet::new(),
            contexts: Contexts::new(options, reader),
            variables: ContextVariables::default(),
            jit_sources: JitSources::default(),
        }
    }

    /// Looks for the JIT source of a process that a sample has arrived from, while the process exists.
    pub(super) fn find_jit_source(&mut self, pid: Pid, processes: &ProcessTracker) {
        self.jit_sources.find_jit_source(pid, processes);
    }

    /// Announces a process before its first event. One that ended before it could be read has the name of the thread that the
    /// event is from.
    pub(crate) fn announce(
        &mut self,
        key: ProcessKey,
        thread_name: &[u8],
        processes: &mut ProcessTracker,
    ) -> Option<Message> {
        if !self.announced.insert(key) {
            return None;
        }
        let description = if processes.running(key).is_some() {
            self.contexts.follow(key);
            processes.describe(Pid(key.pid))
        } else {
            processes.running_or_exited(key).and_then(Process::description)
        };
        let description = description.unwrap_or_else(|| {
            let name = thread_name.split(|byte| *byte == 0).next().filter(|name| !name.is_empty());
            Arc::new(ProcessDescription { comm: name.map(Into::into), ..ProcessDescription::default() })
        });
        Some(self.announcement(key, description))
    }

    fn announcement(&self, key: ProcessKey, description: Arc<ProcessDescription>) -> Message {
        Message::Process(key, self.contexts.add_context_to(key, description))
    }

    /// Where the runtime of a process publishes the names of its code, if it is not announced yet.
    pub(crate) fn take_jit_source(&mut self, key: ProcessKey) -> Option<Arc<JitSource>> {
        self.jit_sources.take_unannounced(key)
    }

    /// The keys of the attributes that the threads of a process publish, by key index.
    pub(crate) fn attribute_keys(&self, key: ProcessKey) -> &[Box<str>] {
        self.contexts.attribute_keys(key)
    }

    /// The variables in which the threads of a process publish their span.
    pub(super) fn variables(&self, key: ProcessKey) -> &[TlsVariable] {
        self.contexts.variables(key)
    }

    /// The number of processes whose context can't be read because a privilege is missing.
    pub(crate) fn contexts_refused(&self) -> u64 {
        self.contexts.refused()
    }

    /// Whether reads are in progress.
    pub(super) fn has_pending_reads(&self) -> bool {
        self.contexts.has_pending_reads()
    }

    /// Records that a process has changed its mappings.
    pub(super) fn mappings_changed(&mut self, pid: Pid) {
        self.contexts.expedite(pid.0);
        self.jit_sources.mappings_changed(pid);
    }

    /// Reads the contexts that are due. Returns the announcements of the processes whose context has changed, and the
    /// processes whose variables have changed.
    pub(super) fn update_contexts(
        &mut self,
        processes: &mut ProcessTracker,
        files: &mut FileTracker,
    ) -> (Vec<Message>, Vec<ProcessKey>) {
        let (mut announcements, mut changed) = (Vec::new(), Vec::new());
        while let Some((key, located)) = self.contexts.next_location() {
            match located {
                Ok(variables) => changed.extend(self.set_variables(key, variables, processes)),
                Err(none) => debug!(pid = key.pid, %none, "no thread context"),
            }
        }
        while let Some(read) = self.contexts.next_read() {
            let (key, pid) = (read.key, Pid(read.key.pid));
            let Some(process) = processes.running(key) else { continue };
            let known = match read.threads {
                ThreadContextSource::Goroutines => {
                    ContextVariables::find_goroutine(process, &mut files.table)
                }
                ThreadContextSource::Records | ThreadContextSource::Unpublished => Vec::new(),
            };
            let wanted = [
                (Pointee::Record, read.threads == ThreadContextSource::Records),
                (Pointee::LabelSet, self.contexts.reads_label_sets()),
            ];
            let mut unlocated = Vec::new();
            for (pointee, _) in wanted.into_iter().filter(|(_, is_wanted)| *is_wanted) {
                unlocated.extend(self.variables.find(pointee, process, &mut files.table));
            }
            match self.contexts.locate(key, unlocated, &known) {
                Ok(ReadProgress::Done(located)) => {
                    changed.extend(self.set_variables(key, located, processes));
                }
                Ok(ReadProgress::Pending(pending)) => self.contexts.push_pending_location(key, pending),
                // The known variables are still valid.
                Err(none) => debug!(%pid, %none, "no thread context"),
            }
            if read.has_changed
                && let Some(description) = processes.describe(pid)
            {
                announcements.push(self.announcement(key, description));
            }
        }
        (announcements, changed)
    }

    /// Sets the variables of a process. Returns the process if it is running and they have changed.
    fn set_variables(
        &mut self,
        key: ProcessKey,
        mut variables: Vec<TlsVariable>,
        processes: &ProcessTracker,
    ) -> Option<ProcessKey> {
        variables.truncate(TlsVariable::MAX);
        let has_changed = processes.running(key).is_some() && self.contexts.set_variables(key, variables);
        has_changed.then_some(key)
    }

    /// Announces again the processes whose environment has been read.
    pub(super) fn update_environments(&mut self, processes: &mut ProcessTracker) -> Vec<Message> {
        let mut read = processes.finish_environments();
        read.retain(|key| self.announced.contains(key));
        let announce = |key: ProcessKey| {
            let description = processes.registry.process(Pid(key.pid)).and_then(Process::description);
            Some(self.announcement(key, description?))
        };
        read.into_iter().filter_map(announce).collect()
    }

    /// Forgets processes that no more samples can arrive from.
    pub(super) fn forget_exited(&mut self, processes: &ProcessTracker) -> Vec<Message> {
        self.jit_sources.forget_exited(processes);
        let gone = self.announced.extract_if(|key| processes.running_or_exited(*key).is_none());
        let forget = |key| {
            self.contexts.forget(key);
            Message::ProcessExited(key)
        };
        gone.map(forget).collect()
    }

    /// Forgets the symbols of a file.
    pub(super) fn forget_file(&mut self, file: FileId) {
        self.variables.forget(file);
    }
}

#[cfg(test)]
mod tests {
    use sidewinder_bpf::Opener;

    use super::*;

    /// Its late samples are those that were walked after the exec.
    #[test]
    fn late_samples_from_before_an_exec_leave_the_new_program_announced() {
        let reader = ForeignReader::start(&Opener::start().unwrap(), None).unwrap();
        let mut processes = ProcessTracker::new(reader.clone(), Arc::default(), 1 << 20);
        let mut descriptions =
            Descriptions::new(&TraceContext { enabled: true, ..TraceContext::default() }, reader);
        let pid = Pid(std::process::id());
        processes.scan(pid, std::time::Duration::from_secs(60)).unwrap();
        let instance = processes.registry.process(pid).unwrap().instance();
        let after = ProcessKey { pid: pid.0, instance };
        let before = ProcessKey { instance: after.instance + 1, ..after };
        let mut announce = |key| descriptions.announce(key, b"before\0\0", &mut processes);
        let messages: Vec<_> = [after, before, after].into_iter().filter_map(&mut announce).collect();
        let announced = |message: &Message| match message {
            Message::Process(key, description) => {
                Some((*key, description.comm.as_deref() == Some(b"before")))
            }
            _ => None,
        };
        // Nothing but the name of its thread is known of the program that is gone.
        let expected = [Some((after, false)), Some((before, true))];
        assert_eq!(messages.iter().map(announced).collect::<Vec<_>>(), expected);
        assert!(descriptions.contexts.is_followed(after));
        let messages = descriptions.forget_exited(&processes);
        assert!(matches!(messages[..], [Message::ProcessExited(key)] if key == before), "{messages:?}");
    }
}
