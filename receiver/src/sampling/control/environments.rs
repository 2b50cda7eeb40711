//! What the environments of processes say of them, which is memory of theirs: it is read when a process is met, and taken up
//! when it is there.

use std::sync::Arc;

use sidewinder_process::{Pid, Process, ProcessDescription, Registry, ResourceVariables};
use tracing::debug;

use super::contexts::take_answer;
use crate::foreign::{Asked, ForeignReader, Pending, Target};
use crate::sampling::Sampler;
use crate::sampling::feed::{Message, ProcessKey};

/// See the [module](self).
#[derive(Debug)]
pub(in crate::sampling) struct Environments {
    reader: ForeignReader,
    pending: Vec<(ProcessKey, Pending<ResourceVariables>)>,
}

impl Environments {
    pub(in crate::sampling) fn new(reader: ForeignReader) -> Self {
        Self { reader, pending: Vec::new() }
    }

    /// What a living process says about itself. What its environment says is part of it if that can be had at once.
    pub(in crate::sampling) fn describe(
        &mut self,
        pid: Pid,
        registry: &mut Registry,
    ) -> Option<Arc<ProcessDescription>> {
        let mut pending = None;
        let description = registry.describe_with(pid, |start_ticks| {
            let target = Target { pid, start_ticks };
            let read = move || {
                let variables = target.open().ok().map(|directory| ResourceVariables::read(&directory));
                variables.unwrap_or_default()
            };
            match self.reader.ask_briefly(target, read) {
                Ok(Asked::Answered(variables)) => variables,
                Ok(Asked::Pending(answer)) => {
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
            self.pending.push((ProcessKey::of(process), answer));
        }
        description
    }

    /// Reads the memory of processes.
    pub(in crate::sampling) fn reader(&self) -> &ForeignReader {
        &self.reader
    }

    /// Whether answers are still to come.
    pub(in crate::sampling) fn are_waiting(&self) -> bool {
        !self.pending.is_empty()
    }
}

impl Sampler<'_> {
    /// Tells of processes anew whose environments have been read meanwhile.
    pub(in crate::sampling) fn take_environments(&mut self, messages: &mut Vec<Message>) {
        while let Some((key, answer)) = take_answer(&mut self.environments.pending) {
            let Ok(variables) = answer else { continue };
            if variables == ResourceVariables::default() {
                continue;
            }
            let pid = Pid(key.pid);
            if self.registry.learn_resource(pid, key.instance, variables)
                && self.introduced.get(&key.pid) == Some(&key)
                && let Some(description) = self.registry.process(pid).and_then(Process::description)
            {
                messages.push(Message::Process(key, self.contexts.complete(key, description)));
            }
        }
    }
}
