//! Builds OTLP reports from events.
//!
//! Input: [`Update`]s of the naming stage. Output: the [`Report`]s of each list of processors for a reporting interval. Owner: the
//! reporting thread.

mod attributes;
mod pending;
mod wall_clock;

use std::ops::Range;

use sidewinder_config::ResourceProcessor;
use sidewinder_message::SampleEvent;
use sidewinder_naming::{Forgotten, NamingStage, Update, WalkedStack};
use sidewinder_otlp::Report;
use sidewinder_process::ProcessDescription;
use sidewinder_profile::LinkIndex;

use self::attributes::EventAttributes;
pub(crate) use self::attributes::LOCK_ID;
use self::pending::{NamedEvent, PendingReport};
use self::wall_clock::WallClock;

/// The most events in an interval's reports: this keeps them far below the size limit of a Collector, and takes little memory to
/// build. With more events, reports are made more often.
const EVENTS_MAX: usize = 100_000;

/// The share of the memory for interned data that events may take while they wait for names, as a divisor.
const WAITING_SHARE: usize = 4;

/// Builds the reports of one receiver.
///
/// Events wait, and their code in files is named together, in the order of addresses: so each part of a file's symbols and debug
/// information is read once for all of them. What is in the memory of a process is named at once.
#[derive(Debug)]
pub struct Reporter {
    pending_reports: Vec<PendingReport>,
    attributes: EventAttributes,
    /// Events that wait for names, and their size in bytes.
    waiting: Vec<SampleEvent>,
    waiting_bytes: usize,
    /// Interned data is dropped when its total size exceeds this.
    interned_bytes_max: usize,
    /// The size that a report may have, unless it is of one event.
    report_bytes_max: usize,
    clock: WallClock,
}

impl Reporter {
    /// A reporter that makes reports for each list of processors, of which there is at least one.
    pub fn new(
        processors: &[&[ResourceProcessor]],
        interned_bytes_max: usize,
        report_bytes_max: usize,
    ) -> Self {
        Self {
            report_bytes_max,
            interned_bytes_max,
            attributes: EventAttributes::default(),
            waiting: Vec::new(),
            waiting_bytes: 0,
            pending_reports: processors
                .iter()
                .map(|processors| PendingReport::new(processors.to_vec()))
                .collect(),
            clock: WallClock::now(),
        }
    }

    /// Makes reports for other lists of processors from now on. If they differ, events that have not been drained are lost.
    pub fn change_processors(&mut self, processors: &[&[ResourceProcessor]]) {
        if !self
            .pending_reports
            .iter()
            .map(|pending| pending.processors.as_slice())
            .eq(processors.iter().copied())
        {
            self.pending_reports =
                processors.iter().map(|processors| PendingReport::new(processors.to_vec())).collect();
        }
    }

    /// Takes what a message means, in the order of messages.
    pub fn handle(&mut self, update: Update, stage: &mut NamingStage) {
        match update {
            Update::Event(event) => self.take_event(event, stage),
            Update::Described(process) => {
                self.pending_reports.iter_mut().for_each(|pending| pending.remove_resource(process));
            }
            Update::Renamed(_) => {}
        }
    }

    fn take_event(&mut self, event: SampleEvent, stage: &mut NamingStage) {
        stage.name_process_specific(WalkedStack::from(&event));
        let frames = event.stack.as_ref().map_or(&[][..], |stack| &stack.frames);
        self.waiting_bytes += size_of::<SampleEvent>() + size_of_val(frames);
        self.waiting.push(event);
        if self.waiting_bytes >= self.interned_bytes_max / WAITING_SHARE {
            self.add_waiting(stage);
        }
    }

    /// Names the events that wait for it, and adds them to the reports. Nothing refers to what is gone after that.
    pub fn add_waiting(&mut self, stage: &mut NamingStage) {
        let events = std::mem::take(&mut self.waiting);
        self.waiting_bytes = 0;
        stage.name_files(events.iter().filter_map(|event| event.stack.as_deref()));
        events.iter().for_each(|event| self.add_event(event, stage));
        for process in stage.forget_gone() {
            self.pending_reports.iter_mut().for_each(|pending| pending.remove_resource(process));
        }
    }

    /// Whether the next reports should be made now rather than when they are due.
    pub fn is_full(&self) -> bool {
        self.pending_reports.iter().any(|pending| pending.events() + self.waiting.len() >= EVENTS_MAX)
    }

    /// The reports of all events since the previous call, for each list of processors; none if there were no events.
    /// `monotonic_ns` is the time that they cover, by `CLOCK_MONOTONIC`.
    pub fn drain(&mut self, monotonic_ns: Range<u64>, stage: &mut NamingStage) -> Vec<Vec<Report>> {
        self.add_waiting(stage);
        stage.namer.divide_memory();
        let interval = self.clock.unix_ns(monotonic_ns.start)..self.clock.unix_ns(monotonic_ns.end);
        let drain = |pending: &mut PendingReport| {
            pending.drain(&mut stage.dictionary, interval.clone(), self.report_bytes_max)
        };
        let reports = self.pending_reports.iter_mut().map(drain).collect();
        // Other code may be at the addresses of code that a process generated.
        stage.clear_process_specific();
        let own_bytes =
            self.attributes.bytes() + self.pending_reports.iter().map(PendingReport::bytes).sum::<usize>();
        if stage.limit_dictionary(own_bytes, self.interned_bytes_max) == Forgotten::All {
            self.attributes.clear();
            self.pending_reports.iter_mut().for_each(PendingReport::clear_resources);
        }
        self.clock = WallClock::now();
        reports
    }

    fn add_event(&mut self, event: &SampleEvent, stage: &mut NamingStage) {
        let named = NamedEvent {
            kind: event.kind,
            unix_ns: self.clock.unix_ns(event.time_ns),
            value: event.value,
            stack: stage.stack(event.into()),
            attributes: self.attributes.add(&mut stage.dictionary, event),
            link: event.span.map_or(LinkIndex::default(), |link| stage.dictionary.add_link(link)),
        };
        let unknown = ProcessDescription::default();
        let (description, dictionary) = stage.process_and_dictionary(event.process);
        for pending in &mut self.pending_reports {
            pending.add(dictionary, (event.process, description.unwrap_or(&unknown)), &named);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sidewinder_bpf::monotonic_ns;
    use sidewinder_kind::Kind;
    use sidewinder_message::{Labels, Message, Stack};
    use sidewinder_naming::test_support::naming_stage;
    use sidewinder_process::ProcessKey;
    use sidewinder_profile::Link;

    use super::*;

    /// One stack without a span, with one span, and with another span under two routes: four samples share one stack.
    #[test]
    fn samples_that_differ_in_their_span_or_labels_stay_apart_and_share_their_stack() {
        let (mut stage, mut reporter) = (naming_stage(), Reporter::new(&[&[]], usize::MAX, usize::MAX));
        let frame =
            sidewinder_bpf::RawFrame::new(sidewinder_bpf::RawFrameKind::Anonymous, 0x1000, false, false);
        let stack = Arc::new(Stack::new(1, [frame].into()));
        let link = |id| Some(Link { trace_id: [id; 16], span_id: [id; 8] });
        let route = |route: &str| Labels::from([("http.route".into(), route.into())]);
        let now_ns = monotonic_ns();
        let events = [
            (None, Labels::default()),
            (link(1), Labels::default()),
            (link(2), route("/a")),
            (link(2), route("/b")),
            (link(1), Labels::default()),
        ];
        for (index, (span, labels)) in events.into_iter().enumerate() {
            let event = SampleEvent {
                kind: Kind::Cpu { samples_per_second: 97 },
                value: 1,
                time_ns: now_ns + index as u64,
                process: ProcessKey { pid: 7, instance: 1 },
                tid: 7,
                cpu: 0,
                comm: [0; 16],
                outcome: sidewinder_bpf::Outcome::Complete,
                stack: Some(Arc::clone(&stack)),
                span,
                labels,
                wait: None,
                lock: None,
                ended: None,
            };
            reporter.handle(Update::Event(event), &mut stage);
        }
        let report = reporter.drain(now_ns..now_ns + 10, &mut stage).concat().remove(0);
        assert!(sidewinder_otlp::conformance::check(report.as_bytes()).is_empty());
        let profiles = sidewinder_otlp::decode::decode_profiles_data(report.as_bytes()).unwrap();
        let samples = &profiles[0].samples;
        let seen: Vec<_> = samples
            .iter()
            .map(|sample| {
                let route = sample.attributes.get("http.route").and_then(|value| value.as_str());
                (sample.link.map(|link| link.span_id[0]), route, sample.timestamps_unix_ns.len())
            })
            .collect();
        assert_eq!(
            seen,
            [(None, None, 1), (Some(1), None, 2), (Some(2), Some("/a"), 1), (Some(2), Some("/b"), 1)]
        );
        assert!(samples.iter().all(|sample| Arc::ptr_eq(&sample.stack, &samples[0].stack)), "one stack");
    }

    #[test]
    fn nothing_is_kept_of_an_exited_process() {
        let (mut stage, mut reporter) = (naming_stage(), Reporter::new(&[&[]], usize::MAX, usize::MAX));
        let processes = (1..=1_000).map(|instance| ProcessKey { pid: 7, instance });
        for process in processes {
            for message in [Message::Process(process, Arc::default()), Message::ProcessExited(process)] {
                if let Some(update) = stage.read(message) {
                    reporter.handle(update, &mut stage);
                }
            }
        }
        assert!(reporter.drain(0..1, &mut stage).concat().is_empty());
        assert_eq!(stage.process_count(), 0);
    }
}
