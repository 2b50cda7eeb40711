//! The environments of processes, which are part of their description.
//!
//! An environment is memory of its process. A read that does not return at once goes on beside sampling, and its result is
//! taken later.

use std::sync::Arc;

use sidewinder_process::{Pid, ProcessDescription, ProcessKey, Registry, ResourceVariables};
use tracing::debug;

use super::contexts::take_answer;
use crate::foreign::{ForeignReader, PendingRead, ReadProgress, ReadTarget};

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Environments {
    reader: ForeignReader,
    pending: Vec<(ProcessKey, PendingRead<ResourceVariables>)>,
}

impl Environments {
    pub(super) fn new(reader: ForeignReader) -> Self {
        Self { reader, pending: Vec::new() }
    }

    /// The description of a running process, with its environment if that is read at once.
    pub(super) fn describe(&mut self, pid: Pid, registry: &mut Registry) -> Option<Arc<ProcessDescription>> {
        let mut pending = None;
        let description = registry.describe_with(pid, |start_ticks| {
            let target = ReadTarget { pid, start_ticks };
            let read = move || {
                let variables = target.open_dir().ok().map(|directory| ResourceVariables::read(&directory));
                variables.unwrap_or_default()
            };
            match self.reader.submit_and_wait(target, read) {
                Ok(ReadProgress::Done(variables)) => variables,
                Ok(ReadProgress::Pending(answer)) => {
                    pending = Some(answer);
                    ResourceVariables::default()
                }
                Err(none) => {
                    debug!(%pid, %none, "the environment of a process is not read");
                    ResourceVariables::default()
                }
            }
        });
        if let Some((answer, process)) = pending.zip(registry.process(pid)) {
            self.pending.push((ProcessKey::from(process), answer));
        }
        description
    }

    /// Whether reads are in progress.
    pub(super) fn has_pending_reads(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Gives the registry the environments that have been read since they were asked for. Returns whose they are.
    pub(super) fn take_completed(&mut self, registry: &mut Registry) -> Vec<ProcessKey> {
        let mut read = Vec::new();
        while let Some((key, answer)) = take_answer(&mut self.pending) {
            let Ok(variables) = answer else { continue };
            if variables != ResourceVariables::default()
                && registry.set_resource(Pid(key.pid), key.instance, variables)
            {
                read.push(key);
            }
        }
        read
    }
}
