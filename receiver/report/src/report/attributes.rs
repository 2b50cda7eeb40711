//! The attributes of events.

use std::collections::HashMap;

use sidewinder_bpf::{Outcome, WaitReason};
use sidewinder_message::{Labels, LockId, SampleEvent};
use sidewinder_otlp::Value;
use sidewinder_otlp::builder::SampleAttributes;
use sidewinder_profile::{AttributeSetIndex, Dictionary};
use sidewinder_render::ThreadState;

use sidewinder_naming::STACK_MISSING;

/// On a sample of waits for a lock: which lock.
pub(crate) const LOCK_ID: &str = "sidewinder.lock.id";

/// The sets of attributes of events, each in the dictionary once.
#[derive(Debug, Default)]
pub(super) struct EventAttributes(HashMap<EventProperties, AttributeSetIndex>);

/// The properties of an event that become its attributes.
#[derive(PartialEq, Eq, Hash, Debug)]
struct EventProperties {
    tid: u32,
    comm: [u8; 16],
    cpu: u32,
    outcome: Option<&'static str>,
    labels: Labels,
    wait: Option<WaitReason>,
    lock: Option<LockId>,
}

impl EventAttributes {
    /// The attributes of an event.
    pub(super) fn add(&mut self, dictionary: &mut Dictionary, event: &SampleEvent) -> AttributeSetIndex {
        let outcome = match (&event.stack, event.outcome) {
            (None, _) => Some(STACK_MISSING),
            (_, Outcome::Complete) => None,
            (_, other) => Some(other.label()),
        };
        let lock = event.lock.and_then(|lock| lock.id);
        let properties = EventProperties {
            tid: event.tid,
            comm: event.comm,
            cpu: event.cpu,
            outcome,
            labels: Labels::clone(&event.labels),
            wait: event.wait,
            lock,
        };
        *self.0.entry(properties).or_insert_with(|| {
            let name = event.comm.split(|byte| *byte == 0).next().unwrap_or_default();
            let lock_id = lock.map(|id| id.to_string());
            let attributes = SampleAttributes {
                thread_id: Some(event.tid.into()),
                thread_name: Some(&String::from_utf8_lossy(name)),
                cpu: Some(event.cpu),
                outcome,
                extra: &extra_attributes(event, lock_id.as_deref()),
            };
            attributes.add_to(dictionary)
        })
    }

    /// Forgets all: they are for another dictionary from now on.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// The approximate size in bytes.
    pub(super) fn bytes(&self) -> usize {
        // A hash map is three quarters full on average.
        size_of::<(EventProperties, AttributeSetIndex)>() * self.0.len() / 3 * 4
    }
}

/// What the thread has published, and what it waited for.
fn extra_attributes<'a>(event: &'a SampleEvent, lock_id: Option<&'a str>) -> Vec<(&'a str, Value<'a>)> {
    let labels = event.labels.iter().map(|(key, value)| (&**key, Value::Str(value)));
    let state = event.wait.iter().map(|wait| (ThreadState::STATE_KEY, Value::Str(wait.state)));
    let cause = event.wait.iter().filter_map(|wait| Some((ThreadState::CAUSE_KEY, Value::Str(wait.cause?))));
    labels.chain(state).chain(cause).chain(lock_id.map(|id| (LOCK_ID, Value::Str(id)))).collect()
}
