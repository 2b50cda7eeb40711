//! The events of samples and of waits, in each kind of profile that counts them.

use sidewinder_bpf::{SampleKind, WaitReason};
use sidewinder_message::SampleEvent;

use super::Data;
use super::ready::{Ready, WalkedSample};
use super::waits::ChargedWait;

impl Data {
    /// The events of what is ready. `attribute_keys`: the names of the attributes that the threads of its process publish, by
    /// index.
    pub(crate) fn events_of(&mut self, ready: Ready, attribute_keys: &[Box<str>]) -> Vec<SampleEvent> {
        let events = match ready {
            Ready::Sample(walked) => self.events_of_sample(walked, attribute_keys),
            Ready::Event(event) => vec![event],
        };
        self.events += events.len() as u64;
        self.stack_bodies_missing += events.iter().filter(|event| event.stack.is_none()).count() as u64;
        events
    }

    fn events_of_sample(&mut self, walked: WalkedSample, attribute_keys: &[Box<str>]) -> Vec<SampleEvent> {
        let sample_kind = walked.sample.kind;
        let (span, labels) = self.labels.span_and_labels(&walked.sample, attribute_keys);
        let event = walked.into_event(span, labels);
        match sample_kind {
            SampleKind::OffCpu | SampleKind::FoundWait => {
                let charged = self.waits.begin(event, sample_kind == SampleKind::FoundWait);
                charged.map(|charged| self.events_of_wait(charged)).unwrap_or_default()
            }
            SampleKind::Waker => self.wakers.add_sample(event).into_iter().collect(),
            SampleKind::Cpu => self.events_of_running(event),
            _ => vec![event],
        }
    }

    /// The events of a thread that was on a CPU: its CPU time, and as much wall time.
    fn events_of_running(&self, event: SampleEvent) -> Vec<SampleEvent> {
        let wall = self.profiles.wall().zip(event.kind.descriptor().period).map(|(kind, period)| {
            let wait = Some(WaitReason::RUNNING);
            SampleEvent { kind, value: period.amount, wait, ..event.clone() }
        });
        let on_cpu = self.profiles.contains(event.kind).then_some(event);
        wall.into_iter().chain(on_cpu).collect()
    }

    /// The events of a wait in each kind of profile that includes it, and of the thread that ended it.
    pub(super) fn events_of_wait(&mut self, charged: ChargedWait) -> Vec<SampleEvent> {
        let release = self.wait_events.release_of(&charged);
        let of_waker = release.and_then(|release| self.wakers.add_release(release));
        of_waker.into_iter().chain(self.wait_events.of(charged)).collect()
    }
}
