//! What is ready for the reporter, once it knows the process: samples with their stacks, and events of waits.

use std::sync::Arc;

use sidewinder_bpf::{CodeObject, SampleRecord};
use sidewinder_kind::Kind;
use sidewinder_process::ProcessKey;
use sidewinder_profile::Link;

use sidewinder_message::{Labels, SampleEvent, Stack};

/// What can be sent to the reporter once it knows the process.
#[derive(Debug)]
pub(crate) enum Ready {
    /// A sample. Its events are made when the process is known, whose context names its attributes.
    Sample(WalkedSample),
    /// An event of a wait that was sampled before.
    Event(SampleEvent),
}

/// A sample in scope whose walk has ended.
#[derive(Debug)]
pub(crate) struct WalkedSample {
    pub(super) kind: Kind,
    pub(super) process: ProcessKey,
    pub(super) sample: SampleRecord,
    pub(super) stack: Option<Arc<Stack>>,
    /// Functions that its process has sent until then.
    pub(super) functions: Vec<CodeObject>,
}

impl Ready {
    pub(crate) fn process(&self) -> ProcessKey {
        match self {
            Self::Sample(walked) => walked.process,
            Self::Event(event) => event.process,
        }
    }

    /// The name of its thread, up to the first NUL.
    pub(crate) fn comm(&self) -> [u8; 16] {
        match self {
            Self::Sample(walked) => walked.sample.comm,
            Self::Event(event) => event.comm,
        }
    }

    /// The stack, if it is new to the reporter: that of a wait came with the sample.
    pub(crate) fn new_stack(&self) -> Option<&Stack> {
        match self {
            Self::Sample(walked) => walked.stack.as_deref(),
            Self::Event(_) => None,
        }
    }

    /// Takes the functions that the process has sent, which name frames of the stack.
    pub(crate) fn take_functions(&mut self) -> Vec<CodeObject> {
        match self {
            Self::Sample(walked) => std::mem::take(&mut walked.functions),
            Self::Event(_) => Vec::new(),
        }
    }
}

impl WalkedSample {
    pub(super) fn into_event(self, span: Option<Link>, labels: Labels) -> SampleEvent {
        let Self { kind, process, sample, stack, functions: _ } = self;
        SampleEvent {
            kind,
            value: sample.value,
            time_ns: sample.time_ns,
            process,
            tid: sample.tid,
            cpu: sample.cpu,
            comm: sample.comm,
            outcome: sample.outcome,
            stack,
            span,
            labels,
            wait: sample.wait,
            lock: None,
            ended: None,
        }
    }
}
