//! A sliding window of the newest events, in bounded memory, for the live page.
//!
//! Input: the [`Update`]s of one receiver, or profiles that are received. Output: incremental updates for the page, and a [`Profile`] of a range of time.
//! Owner: the live feed of a receiver, which locks it.

mod received;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::ops::Range;
use std::time::{Duration, SystemTime};

use sidewinder_bpf::{WaitReason, monotonic_ns};
use sidewinder_config::Ui;
use sidewinder_kind::Kind;
use sidewinder_message::SampleEvent;
use sidewinder_naming::{NamingStage, RenamedFrames, Update};
use sidewinder_render::{
    DocumentBuilder, LiveUpdate, OutcomeCount, PageFunction, PageViews, Profile, ProfileSample, SampleType,
    StateIndex, StatedAttributes, TableLengths, ThreadIndex,
};

use super::profile_builder::{ProfileBuilder, ThreadKey};
use super::thread_state;

/// The length of a slice of time.
pub const SLICE: Duration = Duration::from_millis(100);
const SLICE_NS: u64 = SLICE.as_nanos() as u64;
/// How long before a window is created its profiles may have been taken: profilers report every five seconds.
const RECEIVED_DELAY: Duration = Duration::from_secs(10);
/// Events within this time are merged into rows, unless a page requests an update earlier.
const MERGED_SLICES: u32 = 10;
/// The most distinct rows that are merged at a time.
const UNMERGED_MAX: usize = 1 << 13;

/// How much a window holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WindowLimits {
    /// How long events are held.
    pub max_age: Duration,
    /// The size of the whole window, approximately.
    pub max_bytes: usize,
}

impl WindowLimits {
    /// The limits in the configuration of a page.
    pub fn from_config(page: &Ui) -> Self {
        let mib = usize::try_from(page.memory_limit_mib.get()).unwrap_or(usize::MAX);
        Self { max_age: page.window, max_bytes: mib.saturating_mul(1 << 20) }
    }
}

/// The newest events of one receiver, with the tables that name them.
#[derive(Debug)]
pub struct SlidingWindow {
    limits: WindowLimits,
    /// `None`: only profiles that are received are added.
    kind: Option<Kind>,
    start_ns: u64,
    builder: ProfileBuilder,
    document: DocumentBuilder,
    thread_indices: HashMap<ThreadKey, ThreadIndex>,
    /// There are few of them: each stays.
    state_indices: HashMap<WaitReason, StateIndex>,
    /// The newest events, not yet in `rows`, by what they have in common: samples whose count is 0.
    unmerged: HashMap<ProfileSample, u64>,
    /// The first slice of `unmerged`.
    unmerged_since: u32,
    /// Approximately in the order of time.
    rows: VecDeque<ProfileSample>,
    /// How many rows were evicted before the first of `rows`.
    evicted_rows: u64,
    /// The first slice that is still complete.
    first_slice: u32,
    /// How many events were evicted.
    evicted_events: u64,
    /// Changes whenever table indices change. Starts at random, so that the cursor of another window doesn't match.
    generation: u32,
    is_closed: bool,
}

impl SlidingWindow {
    /// An empty window that starts now, for the events of one kind.
    pub fn new(title: String, kind: Kind, limits: WindowLimits) -> Self {
        let profile = Profile::of_kind(title, kind);
        Self::since(Duration::ZERO, profile, Some(kind), limits)
    }

    /// An empty window for profiles of this measure that are received.
    pub fn for_received(title: String, measure: SampleType, limits: WindowLimits) -> Self {
        Self::since(RECEIVED_DELAY, Profile::new(title, measure), None, limits)
    }

    /// A window that starts this long ago, or when the machine was started.
    fn since(age: Duration, profile: Profile, kind: Option<Kind>, limits: WindowLimits) -> Self {
        let now_ns = monotonic_ns();
        let start_ns = now_ns.saturating_sub(u64::try_from(age.as_nanos()).unwrap_or(u64::MAX));
        let start = SystemTime::now() - Duration::from_nanos(now_ns - start_ns);
        Self {
            limits,
            kind,
            start_ns,
            builder: ProfileBuilder::new(Profile { start, slice: SLICE, ..profile }),
            document: DocumentBuilder::default(),
            thread_indices: HashMap::new(),
            state_indices: HashMap::new(),
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

    /// Adds what a message means, which `stage` has read.
    pub fn handle(&mut self, update: &Update, stage: &mut NamingStage) {
        match update {
            Update::Event(event) if Some(event.kind) == self.kind => self.add_event(event, stage),
            Update::Renamed(RenamedFrames::All) => self.builder.invalidate_names(),
            Update::Renamed(RenamedFrames::ProcessSpecific) => self.builder.invalidate_jit_names(),
            Update::Event(_) | Update::Described(_) => {}
        }
    }

    /// Marks the end: no more messages follow.
    pub fn close(&mut self) {
        self.is_closed = true;
    }

    /// Applies other limits from the next flush on.
    pub fn set_limits(&mut self, limits: WindowLimits) {
        self.limits = limits;
    }

    fn add_event(&mut self, event: &SampleEvent, stage: &mut NamingStage) {
        let slice = self.slice_at(event.time_ns);
        if self.unmerged.len() >= UNMERGED_MAX || slice >= self.unmerged_since.saturating_add(MERGED_SLICES) {
            self.flush();
            self.unmerged_since = slice;
        }
        let sample = ProfileSample {
            slice,
            thread: self.thread(event, stage),
            span: event.span.map(|span| self.builder.profile.dictionary.add_link(span)).unwrap_or_default(),
            state: event.wait.map(|wait| self.state(wait)),
            stated: StatedAttributes::default(),
            stack: self.builder.stack(&mut stage.namer, event.into(), event.lock.and_then(|lock| lock.id)),
            count: 0,
        };
        let count = self.unmerged.entry(sample).or_default();
        *count = count.saturating_add(event.value);
    }

    fn slice_at(&self, time_ns: u64) -> u32 {
        u32::try_from(time_ns.saturating_sub(self.start_ns) / SLICE_NS).unwrap_or(u32::MAX)
    }

    fn thread(&mut self, event: &SampleEvent, stage: &NamingStage) -> ThreadIndex {
        let key = ThreadKey { process: event.process, tid: event.tid, comm: event.comm };
        let threads = &mut self.builder.profile.threads;
        *self.thread_indices.entry(key).or_insert_with(|| {
            threads.push(key.to_profile_thread(stage.process(key.process)));
            ThreadIndex(threads.len() as u32 - 1)
        })
    }

    fn state(&mut self, wait: WaitReason) -> StateIndex {
        let states = &mut self.builder.profile.states;
        *self.state_indices.entry(wait).or_insert_with(|| {
            states.push(thread_state(wait));
            StateIndex(states.len() as u32 - 1)
        })
    }

    /// Merges the events so far into rows, and evicts what exceeds the limits.
    fn flush(&mut self) {
        let mut merged: Vec<_> =
            self.unmerged.drain().map(|(sample, count)| ProfileSample { count, ..sample }).collect();
        merged.sort_unstable();
        self.document.update(&self.builder.profile, &merged);
        self.rows.extend(merged);
        // Runtimes may have placed other code at the same addresses by now.
        self.builder.invalidate_jit_names();
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
            // If the tables still nearly filled their half, the next compaction would follow at once.
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

    /// The approximate size of stacks, names, threads and spans in bytes.
    fn tables_bytes(&self) -> usize {
        let entries = size_of::<(ThreadKey, ThreadIndex)>() * self.thread_indices.len();
        self.builder.bytes() + self.document.bytes() + entries / 3 * 4
    }

    /// Drops the table entries that no row refers to. All indices change.
    fn compact(&mut self) {
        let threads = self.builder.retain_referenced(self.rows.iter_mut());
        let known = std::mem::take(&mut self.thread_indices).into_iter();
        self.thread_indices = known.filter_map(|(key, old)| Some((key, *threads.get(&old)?))).collect();
        self.document = DocumentBuilder::default();
        self.document.update(&self.builder.profile, &self.rows);
        self.generation = self.generation.wrapping_add(1);
    }

    /// The document of what is new since `cursor`, the [`LiveUpdate::next`] of an earlier update. If the cursor is not valid,
    /// the update has everything.
    pub fn update_since(&mut self, cursor: &str, outcomes: Vec<OutcomeCount>, views: PageViews) -> Vec<u8> {
        self.flush();
        self.update_metadata(outcomes);
        let known = Cursor::parse(cursor).filter(|cursor| self.is_valid_cursor(cursor));
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
            views,
        };
        let skipped = usize::try_from(since.row.saturating_sub(self.evicted_rows)).unwrap_or(usize::MAX);
        let rows = self.rows.iter().skip(skipped).copied();
        let mut out = Vec::new();
        // Writing to memory does not fail.
        let _ = self.document.write_since(since.lengths, &self.builder.profile, rows, Some(live), &mut out);
        out
    }

    /// A profile of the events in a range of slices.
    pub fn profile(&mut self, slices: Range<u32>, outcomes: Vec<OutcomeCount>) -> Profile {
        self.flush();
        self.update_metadata(outcomes);
        let all = &self.builder.profile;
        let from = slices.start.max(self.first_slice);
        let to = slices.end.min(self.slice_at(monotonic_ns()).saturating_add(1)).max(from);
        let within = self.rows.iter().filter(|row| (from..to).contains(&row.slice));
        let samples = within.map(|row| ProfileSample { slice: row.slice - from, ..*row }).collect();
        Profile { start: all.start + SLICE * from, duration: SLICE * (to - from), samples, ..all.clone() }
    }

    /// A profile of all events that are held, whose slices have the numbers that updates have; and the function with a number
    /// in these, if there is one.
    pub fn profile_with_function(&mut self, number: usize) -> Option<(PageFunction, Profile)> {
        self.flush();
        let function = self.document.function(number)?;
        Some((
            function,
            Profile { samples: self.rows.iter().copied().collect(), ..self.builder.profile.clone() },
        ))
    }

    /// How many slices have ended.
    pub fn slices(&self) -> u32 {
        self.slice_at(monotonic_ns())
    }

    fn update_metadata(&mut self, outcomes: Vec<OutcomeCount>) {
        let profile = &mut self.builder.profile;
        profile.outcomes = outcomes;
        profile.duration = Duration::from_nanos(monotonic_ns().saturating_sub(self.start_ns));
    }

    /// Whether an update can continue at this cursor: it is from this window, with the same table indices.
    fn is_valid_cursor(&self, cursor: &Cursor) -> bool {
        let rows = self.evicted_rows..=self.evicted_rows + self.rows.len() as u64;
        cursor.generation == self.generation
            && rows.contains(&cursor.row)
            && self.document.covers(cursor.lengths)
    }
}

/// How far a page has been updated: `GENERATION.ROW.LENGTHS`.
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
    use sidewinder_message::test_support::{CPU, event};
    use sidewinder_naming::test_support::naming_stage;
    use sidewinder_profile::Link;
    use sidewinder_render::decode_document;

    use super::*;

    fn window(bytes: usize) -> SlidingWindow {
        SlidingWindow::new(
            "test".to_owned(),
            CPU,
            WindowLimits { max_age: Duration::from_secs(600), max_bytes: bytes },
        )
    }

    fn fill(window: &mut SlidingWindow, stacks: impl Iterator<Item = u64>) {
        let mut stage = naming_stage();
        for stack in stacks {
            let id = stack.to_be_bytes();
            let link = Link { trace_id: [1; 16], span_id: id };
            window.handle(&Update::Event(event(stack, Some(link))), &mut stage);
        }
    }

    fn update(window: &mut SlidingWindow, cursor: &str) -> Value {
        decode_document(&window.update_since(cursor, Vec::new(), PageViews::default())).unwrap()
    }

    fn next(update: &Value) -> &str {
        update["live"]["next"].as_str().unwrap()
    }

    fn events(update: &Value) -> u64 {
        update["samples"]["count"].as_array().unwrap().iter().map(|count| count.as_u64().unwrap()).sum()
    }

    #[test]
    fn an_update_has_only_what_is_new_since_its_cursor() {
        let mut window = window(1 << 20);
        fill(&mut window, 1..=10);
        let first = update(&mut window, "");
        assert_eq!((events(&first), &first["live"]["is_whole"]), (10, &true.into()));
        let nothing = update(&mut window, next(&first));
        assert_eq!((events(&nothing), &nothing["live"]["is_whole"]), (0, &false.into()));
        fill(&mut window, 9..=11);
        let second = update(&mut window, next(&nothing));
        assert_eq!(events(&second), 3);
        assert_eq!(
            second["nodes"]["place"].as_array().unwrap().len(),
            1,
            "two of the stacks were in an earlier update"
        );
        assert_eq!(second["spans"]["span"].as_array().unwrap().len(), 1);
        // The cursor is not valid in another window.
        assert_eq!(update(&mut self::window(1 << 20), next(&second))["live"]["is_whole"], true);
        let garbage = [
            "",
            "x",
            "1",
            "1.2",
            "1.2.3.4.5.6.7.8",
            "1.2.3.4.5.6.7.8.9.10",
            "-1.0.0.0.0.0.0.0.0",
            "../../etc/passwd",
        ];
        for cursor in garbage {
            assert_eq!(events(&update(&mut window, cursor)), 13, "{cursor}");
        }
    }

    #[test]
    fn a_window_stays_within_its_size_and_counts_evicted_events() {
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
        let whole = update(&mut window, "");
        let forgotten = whole["live"]["forgotten"].as_u64().unwrap();
        assert!(forgotten > 0 && events(&whole) > 0, "{forgotten} of {EVENTS}");
        assert_eq!(events(&whole) + forgotten, EVENTS, "each event is either held or counted");
        let newest = format!("[anonymous]+{:#x}", EVENTS << 12);
        let has_newest = whole["strings"].as_array().unwrap().iter().any(|text| *text == *newest);
        assert!(has_newest, "the oldest are evicted");
    }

    #[test]
    fn compaction_keeps_the_meaning_of_samples() {
        let mut window = window(1 << 20);
        fill(&mut window, 1..=100);
        let before = update(&mut window, "");
        (0..50).for_each(|_| window.evict_row());
        window.compact();
        let after = update(&mut window, next(&before));
        assert_eq!(after["live"]["is_whole"], true, "indices have changed");
        assert_eq!((events(&after), &after["live"]["forgotten"]), (50, &50.into()));
        let profile = window.profile(0..u32::MAX, Vec::new());
        for (sample, stack) in profile.samples.iter().zip(51_u64..) {
            // Within a slice, rows are in the order of their stacks.
            let leaf = profile.frames_of(sample.stack).next().unwrap();
            assert_eq!(leaf.location.address, stack << 12);
            assert_eq!(profile.dictionary.link(sample.span).span_id, stack.to_be_bytes());
        }
        fill(&mut window, 100..=100);
        let stacks = window.builder.profile.dictionary.stack_count();
        assert_eq!(stacks, 50 + 1, "a known stack is found again, and the empty one");
        assert_eq!(window.builder.profile.threads.len(), 1);
    }

    #[test]
    fn rows_older_than_the_window_are_evicted() {
        let mut window = window(1 << 20);
        fill(&mut window, 1..=3);
        window.flush();
        window.set_limits(WindowLimits { max_age: Duration::ZERO, max_bytes: 1 << 20 });
        std::thread::sleep(2 * SLICE);
        let update = update(&mut window, "");
        assert_eq!((events(&update), &update["live"]["forgotten"]), (0, &3.into()));
        assert!(update["live"]["first_slice"].as_u64() >= Some(2));
    }
}
