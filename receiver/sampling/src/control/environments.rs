//! Reads the environments of processes, which are part of their descriptions.
//!
//! Owner: the sampling thread. Input: processes to describe. Output: the resource variables from their environments, in the
//! registry. An environment is memory of its process, so a read may block. A read that doesn't complete at once continues on
//! a reader thread, and its result is taken later.

use std::sync::Arc;

use sidewinder_base::foreign::{ForeignReader, PendingRead, ReadProgress, ReadTarget};
use sidewinder_process::{Pid, ProcessDescription, ProcessKey, Registry, ResourceVariables};
use tracing::debug;

use super::contexts::take_completed_read;

/// The reads of environments in progress.
#[derive(Debug)]
pub(super) struct Environments {
    reader: ForeignReader,
    /// The names of the variables that are sent.
    included: Arc<[Box<str>]>,
    pending: Vec<(ProcessKey, PendingRead<ResourceVariables>)>,
}

impl Environments {
    pub(super) fn new(reader: ForeignReader, included: Arc<[Box<str>]>) -> Self {
        Self { reader, included, pending: Vec::new() }
    }

    /// The description of a running process, with its environment if the read completes at once.
    pub(super) fn describe(&mut self, pid: Pid, registry: &mut Registry) -> Option<Arc<ProcessDescription>> {
        let mut pending = None;
        let description = registry.describe_with(pid, |start_ticks| {
            let target = ReadTarget { pid, start_ticks };
            let included = Arc::clone(&self.included);
            let read = move || {
                let variables =
                    target.open_dir().ok().map(|directory| ResourceVariables::read(&directory, &included));
                variables.unwrap_or_default()
            };
            match self.reader.submit_and_wait(target, read) {
                Ok(ReadProgress::Done(variables)) => variables,
                Ok(ReadProgress::Pending(read)) => {
                    pending = Some(read);
                    ResourceVariables::default()
                }
                Err(none) => {
                    debug!(%pid, %none, "can't read the environment of a process");
                    ResourceVariables::default()
                }
            }
        });
        if let Some((read, process)) = pending.zip(registry.process(pid)) {
            self.pending.push((ProcessKey::from(process), read));
        }
        description
    }

    /// Whether reads are in progress.
    pub(super) fn has_pending_reads(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Stores the environments whose reads have completed in the registry. Returns their processes.
    pub(super) fn take_completed(&mut self, registry: &mut Registry) -> Vec<ProcessKey> {
        let mut completed = Vec::new();
        while let Some((key, result)) = take_completed_read(&mut self.pending) {
            let Ok(variables) = result else { continue };
            if variables != ResourceVariables::default()
                && registry.set_resource(Pid(key.pid), key.instance, variables)
            {
                completed.push(key);
            }
        }
        completed
    }
}
