//! Where the events of a recording go, on the thread that names them.

use std::sync::mpsc::Receiver;

use sidewinder_kind::{Kind, KindSet};
use sidewinder_render::ProfileFormat;

use super::RecordingStats;
use super::gaps::{GapSamples, NameGaps};
use crate::collect::ProfileCollector;
use crate::live::LiveFeeds;
use crate::naming::NamingContext;
use crate::report::Reporter;
use crate::sampling::message::{Message, SampleEvent};

/// Selects events of a span, a trace, or some threads. Without any, all events match.
#[derive(Clone, Copy)]
pub(super) struct EventFilter<'a> {
    pub(super) span: Option<[u8; 8]>,
    pub(super) trace: Option<[u8; 16]>,
    pub(super) tids: &'a [u32],
}

impl EventFilter<'_> {
    fn matches(self, message: &Message) -> bool {
        let Message::Event(event) = message else { return true };
        let (span, trace) = (event.span.map(|link| link.span_id), event.span.map(|link| link.trace_id));
        (self.span.is_none() || self.span == span)
            && (self.trace.is_none() || self.trace == trace)
            && (self.tids.is_empty() || self.tids.contains(&event.tid))
    }
}

/// Collects events, by the format of the output.
pub(super) enum EventSink {
    Report {
        reporter: Box<Reporter>,
        /// Events that are named when the recording has ended, if debug files may arrive until then.
        held: Option<Vec<SampleEvent>>,
        /// The sum of the events of each kind, in the order of the kinds.
        totals: Vec<(Kind, u64)>,
    },
    Profile(Box<ProfileCollector>, ProfileFormat),
}

impl EventSink {
    /// Events of these kinds become a report: at once, or when the recording has ended.
    pub(super) fn report(reporter: Reporter, kinds: &KindSet, names_at_end: bool) -> Self {
        Self::Report {
            reporter: Box::new(reporter),
            held: names_at_end.then(Vec::new),
            totals: kinds.iter().map(|kind| (kind, 0)).collect(),
        }
    }

    /// Handles all messages that match the filter until the queue is closed, and tees them to the page. The queue is not
    /// bounded: it is small compared with what a recording keeps.
    pub(super) fn run(
        &mut self,
        incoming: Receiver<Vec<Message>>,
        filter: EventFilter<'_>,
        feeds: Option<&LiveFeeds>,
        gaps: &mut GapSamples,
    ) {
        for message in incoming.into_iter().flatten().filter(|message| filter.matches(message)) {
            let Some(message) = self.naming_context().namer.sift(message) else { continue };
            gaps.note(&message);
            if let Some(feeds) = feeds {
                feeds.tee(&message, self.naming_context());
            }
            self.handle(message);
        }
        if let Some(feeds) = feeds {
            feeds.close();
        }
    }

    /// Names what is not named yet, with the debug files that servers have been asked for.
    pub(super) fn finish_naming(&mut self) {
        self.naming_context().namer.wait_for_debug_files();
        if let Self::Report { reporter, held, .. } = self {
            for event in held.take().unwrap_or_default() {
                reporter.handle(Message::Event(event));
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
        if let Self::Report { reporter, .. } = self {
            // Names that can be read only after its frames have been named are not in it.
            reporter.add_waiting();
            reporter.stop_reading();
        }
        let namer = self.naming_context().namer;
        NameGaps {
            stripped: samples.innermost.stripped_binaries(namer, asks_servers),
            unnamed: samples.unnamed.groups(namer, &recorded.denied_interpreters, recorded.end_ns),
        }
    }

    pub(super) fn naming_context(&mut self) -> NamingContext<'_> {
        match self {
            Self::Report { reporter, .. } => reporter.naming_context(),
            Self::Profile(collector, _) => collector.naming_context(),
        }
    }

    fn handle(&mut self, message: Message) {
        if let (Self::Report { totals, .. }, Message::Event(event)) = (&mut *self, &message) {
            let of_kind = totals.iter_mut().find(|(kind, _)| *kind == event.kind);
            of_kind.into_iter().for_each(|(_, total)| *total = total.saturating_add(event.value));
        }
        match self {
            Self::Report { reporter, held: Some(held), .. } => match message {
                Message::Event(event) => {
                    let namer = reporter.naming_context().namer;
                    if let Some(stack) = &event.stack {
                        namer.read_functions(event.process, stack);
                        namer.request_debug_files(stack);
                    }
                    held.push(event);
                }
                // Events that are held may refer to them.
                Message::ProcessExited(_) | Message::ForgetFile(_) => {}
                message => reporter.handle(message),
            },
            Self::Report { reporter, held: None, .. } => reporter.handle(message),
            Self::Profile(collector, _) => collector.handle(message),
        }
    }
}
