//! A report under construction, as one list of processors changes its events.

use std::collections::HashMap;
use std::ops::Range;

use sidewinder_config::ResourceProcessor;
use sidewinder_kind::Kind;
use sidewinder_otlp::builder::SampleIdentity;
use sidewinder_otlp::{Report, ReportBuilder, ReportOptions};
use sidewinder_process::{ProcessDescription, ProcessKey};
use sidewinder_profile::{AttributeSetIndex, Dictionary, LinkIndex, StackIndex};

use crate::processor;
use crate::resource::resource_attributes;

/// A report under construction, with the events as one list of processors changes them.
#[derive(Debug)]
pub(super) struct PendingReport {
    pub(super) processors: Vec<ResourceProcessor>,
    builder: ReportBuilder,
    /// By the dictionary of its events.
    resources: HashMap<ProcessKey, AttributeSetIndex>,
}

/// An event, by the dictionary.
#[derive(Clone, Copy)]
pub(super) struct NamedEvent {
    pub(super) kind: Kind,
    pub(super) unix_ns: u64,
    pub(super) value: u64,
    pub(super) stack: StackIndex,
    pub(super) attributes: AttributeSetIndex,
    pub(super) link: LinkIndex,
}

impl PendingReport {
    pub(super) fn new(processors: Vec<ResourceProcessor>) -> Self {
        let builder = ReportBuilder::new(ReportOptions::new(env!("CARGO_PKG_VERSION")));
        Self { processors, builder, resources: HashMap::new() }
    }

    /// What was added since the last call, in reports of at most this size, none if there is nothing.
    pub(super) fn drain(
        &mut self,
        dictionary: &mut Dictionary,
        unix_ns: Range<u64>,
        report_bytes_max: usize,
    ) -> Vec<Report> {
        self.builder.drain(dictionary, unix_ns, report_bytes_max)
    }

    /// Adds an event of a process.
    pub(super) fn add(
        &mut self,
        dictionary: &mut Dictionary,
        (process, description): (ProcessKey, &ProcessDescription),
        event: &NamedEvent,
    ) {
        let processors = &self.processors;
        let resource = *self.resources.entry(process).or_insert_with(|| {
            let mut attributes = resource_attributes(process, description);
            processor::apply(processors, &mut attributes);
            dictionary.add_attributes(attributes.borrowed())
        });
        let identity = SampleIdentity {
            resource,
            profile_type: self.builder.kind(event.kind),
            stack: event.stack,
            attributes: event.attributes,
            link: event.link,
        };
        self.builder.event(&identity, event.unix_ns, i64::try_from(event.value).unwrap_or(i64::MAX));
    }

    /// The number of events that were added since it was last drained.
    pub(super) fn events(&self) -> usize {
        self.builder.pending_events()
    }

    /// Describes a process again.
    pub(super) fn remove_resource(&mut self, process: ProcessKey) {
        self.resources.remove(&process);
    }

    /// Describes all processes again, in another dictionary.
    pub(super) fn clear_resources(&mut self) {
        self.resources.clear();
    }

    /// The approximate size of what it remembers, in bytes.
    pub(super) fn bytes(&self) -> usize {
        // A hash map is three quarters full on average.
        size_of::<(ProcessKey, AttributeSetIndex)>() * self.resources.len() / 3 * 4
    }
}
