//! Where the events of a recording go, on the thread that names them.

use std::sync::mpsc::Receiver;

use sidewinder_kind::{Kind, KindSet};
use sidewinder_message::{Message, SampleEvent};
use sidewinder_naming::{NamingStage, Update};
use sidewinder_render::ProfileFormat;
use sidewinder_report::Reporter;
use sidewinder_report::collect::ProfileCollector;
use sidewinder_server::live::LiveFeeds;

use super::RecordingStats;
use super::gaps::{GapSamples, NameGaps};

/// Selects events of a span, a trace, or some threads. Without any, all events match.
#[derive(Clone, Copy)]
pub(super) struct EventFilter<'a> {
    pub(super) span: Option<[u8; 8]>,
    pub(super) trace: Option<[u8; 16]>,
    pub(super) tids: &'a [u32],
}

impl EventFilter<'_> {
    fn matches(self, event: &SampleEvent) -> bool {
        let (span, trace) = (event.span.map(|link| link.span_id), event.span.map(|link| link.trace_id));
        (self.span.is_none() || self.span == span)
            && (self.trace.is_none() || self.trace == trace)
            && (self.tids.is_empty() || self.tids.contains(&event.tid))
    }
}

/// The events of a recording, and what names them.
pub(super) struct EventSink {
    pub(super) stage: NamingStage,
    pub(super) collected: CollectedEvents,
}

/// Events, by the format of the output.
pub(super) enum CollectedEvents {
    Report {
        reporter: Box<Reporter>,
        /// Events that are named when the recording has ended, if debug files may arrive until then.
        held: Option<Vec<SampleEvent>>,
        /// The sum of the events of each kind, in the order of the kinds.
        totals: Vec<(Kind, u64)>,
    },
    Profile(Box<ProfileCollector>, ProfileFormat),
}

impl CollectedEvents {
    fn handle(&mut self, update: Update, stage: &mut NamingStage) {
        if let (Self::Report { totals, .. }, Update::Event(event)) = (&mut *self, &update) {
            let of_kind = totals.iter_mut().find(|(kind, _)| *kind == event.kind);
            of_kind.into_iter().for_each(|(_, total)| *total = total.saturating_add(event.value));
        }
        match (self, update) {
            (Self::Report { held: Some(held), .. }, Update::Event(event)) => {
                if let Some(stack) = &event.stack {
                    stage.namer.read_functions(event.process, stack);
                    stage.namer.request_debug_files(stack);
                }
                held.push(event);
            }
            (Self::Report { reporter, .. }, update) => reporter.handle(update, stage),
            (Self::Profile(collector, _), Update::Event(event)) => {
                collector.add_event(event, &mut stage.namer);
            }
            // All of it is named at the end.
            (Self::Profile(..), Update::Renamed(_) | Update::Described(_)) => {}
        }
    }
}

impl EventSink {
    /// Events of these kinds become a report: they are named as they come, or when the recording has ended.
    pub(super) fn report(
        stage: NamingStage,
        reporter: Reporter,
        kinds: &KindSet,
        names_at_end: bool,
    ) -> Self {
        let stage = if names_at_end { stage.keeping_all() } else { stage };
        let collected = CollectedEvents::Report {
            reporter: Box::new(reporter),
            held: names_at_end.then(Vec::new),
            totals: kinds.iter().map(|kind| (kind, 0)).collect(),
        };
        Self { stage, collected }
    }

    /// Events become profiles, which are named when the recording has ended.
    pub(super) fn profile(stage: NamingStage, collector: ProfileCollector, format: ProfileFormat) -> Self {
        let collected = CollectedEvents::Profile(Box::new(collector), format);
        Self { stage: stage.keeping_all(), collected }
    }

    /// Handles all messages until the queue is closed, of events those that match the filter, and tees them to the page. The queue
    /// is not bounded: it is small compared with what a recording keeps.
    pub(super) fn run(
        &mut self,
        incoming: Receiver<Vec<Message>>,
        filter: EventFilter<'_>,
        feeds: Option<&LiveFeeds>,
        gaps: &mut GapSamples,
    ) {
        let Self { stage, collected } = self;
        for message in incoming.into_iter().flatten() {
            let Some(update) = stage.read(message) else { continue };
            if matches!(&update, Update::Event(event) if !filter.matches(event)) {
                continue;
            }
            gaps.note(&update, stage);
            if let Some(feeds) = feeds {
                feeds.tee(&update, stage);
            }
            collected.handle(update, stage);
        }
        if let Some(feeds) = feeds {
            feeds.close();
        }
    }

    /// Names what is not named yet, with the debug files that servers have been asked for.
    pub(super) fn finish_naming(&mut self) {
        let Self { stage, collected } = self;
        stage.namer.wait_for_debug_files();
        if let CollectedEvents::Report { reporter, held, .. } = collected {
            for event in held.take().unwrap_or_default() {
                reporter.handle(Update::Event(event), stage);
            }
        }
    }

    /// What has no name in the output. `asks_servers`: servers have been asked for symbols.
    pub(super) fn name_gaps(
        &mut self,
        samples: &GapSamples,
        recorded: &RecordingStats,
        asks_servers: bool,
    ) -> NameGaps {
        let Self { stage, collected } = self;
        if let CollectedEvents::Report { reporter, .. } = collected {
            // Names that can be read only after its frames have been named are not in it.
            reporter.add_waiting(stage);
            stage.namer.stop_reading();
        }
        let namer = &mut stage.namer;
        NameGaps {
            stripped: samples.innermost.stripped_binaries(namer, asks_servers),
            unnamed: samples.unnamed.groups(namer, &recorded.denied_runtimes, recorded.end_ns),
        }
    }
}
