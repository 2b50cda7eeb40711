//! The newest events, in bounded room, for those who look while profiling goes on.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sidewinder_bpf::monotonic_ns;
use sidewinder_config::Ui;
use sidewinder_kind::Kind;
use sidewinder_otlp::builder::Link;
use sidewinder_process::{ProcessDescription, ProcessKey};
use sidewinder_render::{
    DocumentBuilder, LiveUpdate, OutcomeCount, Profile, ProfileSample, ProfileSpan, SampleType, SpanIndex,
    TableLengths, ThreadIndex,
};

use super::profile_builder::{ProfileBuilder, ThreadKey};
use crate::naming::Namer;
use crate::sampling::message::{Message, SampleEvent};

/// How long a slice of time is.
pub(crate) const SLICE: Duration = Duration::from_millis(100);
const SLICE_NS: u64 = SLICE.as_nanos() as u64;
/// Events are merged into rows over so much time, unless somebody asks earlier.
const MERGED_SLICES: u32 = 10;
/// Rows that may be merged at a time.
const UNMERGED_MAX: usize = 1 << 13;

/// What is known of processes.
type ProcessDescriptions = HashMap<ProcessKey, Arc<ProcessDescription>>;

/// How much is held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WindowLimits {
    /// How long events are held.
    pub(crate) max_age: Duration,
    /// What all of it may take.
    pub(crate) max_bytes: usize,
}

impl WindowLimits {
    /// Those of a page that is configured so.
    pub(crate) fn from_config(page: &Ui) -> Self {
        let mib = usize::try_from(page.memory_limit_mib.get()).unwrap_or(usize::MAX);
        Self { max_age: page.window, max_bytes: mib.saturating_mul(1 << 20) }
    }
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct SlidingWindow {
    limits: WindowLimits,
    kind: Kind,
    start_ns: u64,
    builder: ProfileBuilder,
    document: DocumentBuilder,
    thread_numbers: HashMap<ThreadKey, ThreadIndex>,
    span_numbers: HashMap<Link, SpanIndex>,
    /// The newest events, not yet rows, by what they have in common: samples that count nothing.
    unmerged: HashMap<ProfileSample, u64>,
    /// The first slice of `open`.
    unmerged_since: u32,
    /// About in the order of time.
    rows: VecDeque<ProfileSample>,
    /// How many rows were held before the first of `rows`.
    evicted_rows: u64,
    /// Slices before this one are no longer held whole.
    first_slice: u32,
    /// Events that were held and are no longer.
    evicted_events: u64,
    /// Tables are numbered anew in each. Begins anywhere: another window's is another one.
    generation: u32,
    is_closed: bool,
}

impl SlidingWindow {
    /// A window that opens now, on the events of this kind.
    pub(crate) fn new(title: String, kind: Kind, bounds: WindowLimits) -> Self {
        let measure = SampleType::from_kind(kind);
        let (start, start_ns) = (SystemTime::now(), monotonic_ns());
        Self {
            limits: bounds,
            kind,
            start_ns,
            builder: ProfileBuilder::new(Profile { start, slice: SLICE, ..Profile::new(title, measure) }),
            document: DocumentBuilder::default(),
            thread_numbers: HashMap::new(),
            span_numbers: HashMap::new(),
            unmerged: HashMap::new(),
            unmerged_since: 0,
            rows: VecDeque::new(),
            evicted_rows: 0,
            first_slice: 0,
            evicted_events: 0,
            generation: rand::random(),
            is_closed: false,
        }
    }

    /// Takes what sampling says; `namer` and `processes` know of it what came before.
    pub(crate) fn handle(&mut self, message: &Message, namer: &mut Namer, processes: &ProcessDescriptions) {
        match message {
            // Frames of this file may have a better name now.
            Message::File(..) => self.builder.invalidate_names(),
            Message::JitSource(..) => self.builder.invalidate_jit_names(),
            Message::Event(event) if event.kind == self.kind => self.add_event(event, namer, processes),
            Message::Event(_) | Message::Process(..) | Message::ProcessExited(_) | Message::ForgetFile(_) => {
            }
        }
    }

    /// Nothing more will come.
    pub(crate) fn close(&mut self) {
        self.is_closed = true;
    }

    /// Keeps to other bounds from now on.
    pub(crate) fn set_limits(&mut self, bounds: WindowLimits) {
        self.limits = bounds;
    }

    fn add_event(&mut self, event: &SampleEvent, namer: &mut Namer, processes: &ProcessDescriptions) {
        let slice = self.slice_at(event.time_ns);
        if self.unmerged.len() >= UNMERGED_MAX || slice >= self.unmerged_since.saturating_add(MERGED_SLICES) {
            self.flush();
            self.unmerged_since = slice;
        }
        let sample = ProfileSample {
            slice,
            thread: self.thread(event, processes),
            span: event.span.map(|link| self.span(link)),
            stack: self.builder.stack(
                namer,
                event.process,
                event.stack.as_deref(),
                event.outcome,
                event.time_ns,
            ),
            count: 0,
        };
        let count = self.unmerged.entry(sample).or_default();
        *count = count.saturating_add(event.value);
    }

    fn slice_at(&self, time_ns: u64) -> u32 {
        u32::try_from(time_ns.saturating_sub(self.start_ns) / SLICE_NS).unwrap_or(u32::MAX)
    }

    fn thread(&mut self, event: &SampleEvent, processes: &ProcessDescriptions) -> ThreadIndex {
        let key = ThreadKey { process: event.process, tid: event.tid, comm: event.comm };
        let threads = &mut self.builder.profile.threads;
        *self.thread_numbers.entry(key).or_insert_with(|| {
            threads.push(key.to_profile_thread(processes.get(&key.process).map(|process| &**process)));
            ThreadIndex(threads.len() as u32 - 1)
        })
    }

    fn span(&mut self, link: Link) -> SpanIndex {
        let spans = &mut self.builder.profile.spans;
        *self.span_numbers.entry(link).or_insert_with(|| {
            spans.push(ProfileSpan { trace_id: link.trace_id, span_id: link.span_id });
            SpanIndex(spans.len() as u32 - 1)
        })
    }

    /// Makes rows of the events so far, and lets go what is beyond the bounds.
    fn flush(&mut self) {
        let mut settled: Vec<_> =
            self.unmerged.drain().map(|(sample, count)| ProfileSample { count, ..sample }).collect();
        settled.sort_unstable();
        self.rows.extend(settled);
        // What runtimes write of their code may be another's by now.
        self.builder.invalidate_jit_names();
        self.document.update(&self.builder.profile);
        let slices_held =
            u32::try_from(self.limits.max_age.as_nanos() / SLICE.as_nanos()).unwrap_or(u32::MAX);
        let oldest = self.slice_at(monotonic_ns()).saturating_sub(slices_held);
        while self.rows.front().is_some_and(|row| row.slice < oldest) {
            self.evict_row();
        }
        self.first_slice = self.first_slice.max(oldest);
        let half = self.limits.max_bytes / 2;
        while self.rows.len() * size_of::<ProfileSample>() > half {
            self.evict_row();
        }
        if self.tables_bytes() > half {
            self.compact();
            // With hardly any room left the next time would come at once.
            while self.tables_bytes() > half / 4 * 3 && !self.rows.is_empty() {
                (0..self.rows.len().div_ceil(2)).for_each(|_| self.evict_row());
                self.compact();
            }
        }
    }

    fn evict_row(&mut self) {
        let Some(row) = self.rows.pop_front() else { return };
        self.evicted_rows += 1;
        self.evicted_events += row.count;
        self.first_slice = self.first_slice.max(row.slice.saturating_add(1));
    }

    /// About what stacks, names, threads and spans take.
    fn tables_bytes(&self) -> usize {
        let entries = size_of::<(ThreadKey, ThreadIndex)>() * self.thread_numbers.len()
            + size_of::<(Link, SpanIndex)>() * self.span_numbers.len();
        self.builder.bytes() + self.document.bytes() + entries / 3 * 4
    }

    /// Keeps of the tables what rows refer to.
    fn compact(&mut self) {
        let (threads, spans) = self.builder.retain_referenced(self.rows.iter_mut());
        self.thread_numbers =
            threads.remap_values(std::mem::take(&mut self.thread_numbers), |thread| thread.0);
        self.span_numbers = spans.remap_values(std::mem::take(&mut self.span_numbers), |span| span.0);
        self.document = DocumentBuilder::default();
        self.document.update(&self.builder.profile);
        self.generation = self.generation.wrapping_add(1);
    }

    /// What there is to tell somebody who was told everything up to `asked`, which is what [`LiveUpdate::next`] said;
    /// everything, where that is not known.
    pub(crate) fn update_since(&mut self, asked: &str, outcomes: Vec<OutcomeCount>) -> Vec<u8> {
        self.flush();
        self.update_metadata(outcomes);
        let known = Cursor::parse(asked).filter(|cursor| self.is_valid_cursor(cursor));
        let is_whole = known.is_none();
        let since =
            known.unwrap_or(Cursor { generation: self.generation, row: 0, lengths: TableLengths::default() });
        let next = Cursor {
            generation: self.generation,
            row: self.evicted_rows + self.rows.len() as u64,
            lengths: self.document.lengths(),
        };
        let live = LiveUpdate {
            next: next.to_string(),
            is_whole,
            first_slice: self.first_slice,
            forgotten: self.evicted_events,
            has_ended: self.is_closed,
        };
        let skipped = usize::try_from(since.row.saturating_sub(self.evicted_rows)).unwrap_or(usize::MAX);
        let rows = self.rows.iter().skip(skipped).copied();
        let mut out = Vec::new();
        // Writing into memory does not fail.
        let _ = self.document.write_since(since.lengths, &self.builder.profile, rows, Some(live), &mut out);
        out
    }

    /// The events of a range of slices, as one recording.
    pub(crate) fn profile(&mut self, slices: Range<u32>, outcomes: Vec<OutcomeCount>) -> Profile {
        self.flush();
        self.update_metadata(outcomes);
        let all = &self.builder.profile;
        let from = slices.start.max(self.first_slice);
        let to = slices.end.min(self.slice_at(monotonic_ns()).saturating_add(1)).max(from);
        let within = self.rows.iter().filter(|row| (from..to).contains(&row.slice));
        let samples = within.map(|row| ProfileSample { slice: row.slice - from, ..*row }).collect();
        Profile { start: all.start + SLICE * from, duration: SLICE * (to - from), samples, ..all.clone() }
    }

    /// How many slices ended before now.
    pub(crate) fn slices(&self) -> u32 {
        self.slice_at(monotonic_ns())
    }

    fn update_metadata(&mut self, outcomes: Vec<OutcomeCount>) {
        let profile = &mut self.builder.profile;
        profile.outcomes = outcomes;
        profile.duration = Duration::from_nanos(monotonic_ns().saturating_sub(self.start_ns));
    }

    /// Whether it told that itself, and can go on from there.
    fn is_valid_cursor(&self, cursor: &Cursor) -> bool {
        let rows = self.evicted_rows..=self.evicted_rows + self.rows.len() as u64;
        cursor.generation == self.generation
            && rows.contains(&cursor.row)
            && self.document.covers(cursor.lengths)
    }
}

/// How far somebody was told: `generation.row.MARK`.
struct Cursor {
    generation: u32,
    row: u64,
    lengths: TableLengths,
}

impl Cursor {
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, '.');
        let (generation, row) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        Some(Self { generation, row, lengths: parts.next()?.parse().ok()? })
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.generation, self.row, self.lengths)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::collect::tests::{CPU, event, nothing_known};

    fn window(bytes: usize) -> SlidingWindow {
        SlidingWindow::new(
            "test".to_owned(),
            CPU,
            WindowLimits { max_age: Duration::from_secs(600), max_bytes: bytes },
        )
    }

    fn fill(window: &mut SlidingWindow, stacks: impl Iterator<Item = u64>) {
        let (mut namer, processes) = nothing_known();
        for stack in stacks {
            let id = stack.to_be_bytes();
            let link = Link { trace_id: [1; 16], span_id: id };
            window.handle(&event(stack, Some(link)), &mut namer, &processes);
        }
    }

    fn told(window: &mut SlidingWindow, asked: &str) -> Value {
        serde_json::from_slice(&window.update_since(asked, Vec::new())).unwrap()
    }

    fn next(told: &Value) -> &str {
        told["live"]["next"].as_str().unwrap()
    }

    fn events(told: &Value) -> u64 {
        told["samples"]["count"].as_array().unwrap().iter().map(|count| count.as_u64().unwrap()).sum()
    }

    #[test]
    fn who_asks_again_is_told_what_is_new_and_nothing_twice() {
        let mut window = window(1 << 20);
        fill(&mut window, 1..=10);
        let first = told(&mut window, "");
        assert_eq!((events(&first), &first["live"]["is_whole"]), (10, &true.into()));
        let nothing = told(&mut window, next(&first));
        assert_eq!((events(&nothing), &nothing["live"]["is_whole"]), (0, &false.into()));
        fill(&mut window, 9..=11);
        let second = told(&mut window, next(&nothing));
        assert_eq!(events(&second), 3);
        assert_eq!(second["nodes"]["place"].as_array().unwrap().len(), 1, "two stacks were told of before");
        assert_eq!(second["spans"]["span"].as_array().unwrap().len(), 1);
        // Another window knows nothing of this.
        assert_eq!(told(&mut self::window(1 << 20), next(&second))["live"]["is_whole"], true);
        let garbage = ["", "x", "1", "1.2", "1.2.3.4.5.6.7.8", "-1.0.0.0.0.0.0.0", "../../etc/passwd"];
        for asked in garbage {
            assert_eq!(events(&told(&mut window, asked)), 13, "{asked}");
        }
    }

    #[test]
    fn what_is_held_stays_within_its_bytes_and_what_is_let_go_is_counted() {
        const EVENTS: u64 = 50_000;
        const BYTES: usize = 1 << 20;
        let mut window = window(BYTES);
        let mut most = 0;
        for stacks in (1..=EVENTS).collect::<Vec<_>>().chunks(1_000) {
            fill(&mut window, stacks.iter().copied());
            window.flush();
            most = most.max(window.tables_bytes() + window.rows.len() * size_of::<ProfileSample>());
        }
        assert!(most <= BYTES, "{most} bytes");
        let whole = told(&mut window, "");
        let forgotten = whole["live"]["forgotten"].as_u64().unwrap();
        assert!(forgotten > 0 && events(&whole) > 0, "{forgotten} of {EVENTS}");
        assert_eq!(events(&whole) + forgotten, EVENTS, "none is lost without a word");
        let newest = format!("[anonymous]+{:#x}", EVENTS << 12);
        let is_held = whole["strings"].as_array().unwrap().iter().any(|text| *text == *newest);
        assert!(is_held, "it is the oldest that are let go");
    }

    #[test]
    fn tables_that_are_numbered_anew_say_the_same() {
        let mut window = window(1 << 20);
        fill(&mut window, 1..=100);
        let before = told(&mut window, "");
        (0..50).for_each(|_| window.evict_row());
        window.compact();
        let after = told(&mut window, next(&before));
        assert_eq!(after["live"]["is_whole"], true, "numbers mean something else now");
        assert_eq!((events(&after), &after["live"]["forgotten"]), (50, &50.into()));
        let profile = window.profile(0..u32::MAX, Vec::new());
        for (sample, stack) in profile.samples.iter().zip(51_u64..) {
            // Within a slice rows are in the order of their stacks.
            let frame = &profile.frames[profile.stacks[sample.stack.0 as usize][0].0 as usize];
            assert_eq!(frame.address, stack << 12);
            assert_eq!(profile.spans[sample.span.unwrap().0 as usize].span_id, stack.to_be_bytes());
        }
        fill(&mut window, 100..=100);
        assert_eq!(window.builder.profile.stacks.len(), 50, "what is known is found again");
        assert_eq!(window.builder.profile.threads.len(), 1);
    }

    #[test]
    fn what_is_older_than_the_window_is_let_go() {
        let mut window = window(1 << 20);
        fill(&mut window, 1..=3);
        window.flush();
        window.set_limits(WindowLimits { max_age: Duration::ZERO, max_bytes: 1 << 20 });
        std::thread::sleep(2 * SLICE);
        let told = told(&mut window, "");
        assert_eq!((events(&told), &told["live"]["forgotten"]), (0, &3.into()));
        assert!(told["live"]["first_slice"].as_u64() >= Some(2));
    }
}
