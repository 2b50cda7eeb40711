//! CPU time per event, from the call of the builder to the encoded report.
//!
//! The load: 50,000 distinct stacks of 40 named frames, a tenth of them new in each report. The caller keeps the indices
//! of frames, stacks and attribute sets next to its own data, like the receiver.

use std::time::Duration;

use sidewinder_kind::Kind;
use sidewinder_otlp::builder::{SampleAttributes, SampleIdentity};
use sidewinder_otlp::{ReportBuilder, ReportOptions};
use sidewinder_profile::{
    AttributeSetIndex, BuildIds, Dictionary, FrameType, Line, LinkIndex, Location, LocationIndex, Mapping,
    StackIndex, Value, key,
};

const START: u64 = 1_700_000_000_000_000_000;
const STACKS: usize = 50_000;
const DEPTH: usize = 40;
const FRAMES: u64 = 80_000;
const REPORTS: usize = 10;

/// A pseudo-random sequence that is always the same (splitmix64).
struct Sequence(u64);

impl Sequence {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }
}

/// What the receiver has in addition to the builder: the frames that it has named.
struct Workload {
    sequence: Sequence,
    frames: Vec<LocationIndex>,
    stacks: Vec<[LocationIndex; DEPTH]>,
}

impl Workload {
    fn new(dictionary: &mut Dictionary) -> Self {
        let htlhash = Some("000102030405060708090a0b0c0d0e0f");
        let mapping = Mapping {
            memory_start: 0x40_0000,
            memory_limit: 0x4000_0000,
            file_offset: 0,
            filename: dictionary.add_string("/usr/bin/workload"),
            attributes: dictionary.add_build_ids(&BuildIds { htlhash, ..BuildIds::default() }),
        };
        let mapping = dictionary.add_mapping(mapping);
        let frames: Vec<_> = (0..FRAMES)
            .map(|frame| {
                let name = format!("workload::module_{}::function_{}", frame % 100, frame / 4);
                let function = dictionary.add_function_named(&name);
                dictionary.add_location(&Location {
                    mapping,
                    address: 0x40_0000 + frame * 16,
                    frame_type: FrameType::Rust,
                    lines: &[Line::new(function)],
                    ..Location::default()
                })
            })
            .collect();
        let stacks = vec![[frames[0]; DEPTH]];
        Self { sequence: Sequence(1), frames, stacks }
    }

    /// A stack that shares its outer frames with a previous one, like the paths of a call tree.
    fn new_stack(&mut self, dictionary: &mut Dictionary) -> StackIndex {
        let parent = self.sequence.below(self.stacks.len() as u64) as usize;
        let mut stack = self.stacks[parent];
        let own = 1 + self.sequence.below(DEPTH as u64) as usize;
        for frame in &mut stack[..own] {
            // Some functions are called far more often than others.
            let limit = 1 + self.sequence.below(FRAMES);
            *frame = self.frames[self.sequence.below(limit) as usize];
        }
        if self.stacks.len() < STACKS {
            self.stacks.push(stack);
        } else {
            self.stacks[parent] = stack;
        }
        dictionary.add_stack(&stack)
    }
}

/// User and system time of this process.
fn cpu_time() -> Duration {
    let clock = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let nanoseconds = clock.split_whitespace().next().and_then(|field| field.parse().ok());
    Duration::from_nanos(nanoseconds.unwrap_or_default())
}

fn main() {
    if cfg!(debug_assertions) {
        eprintln!("built with checks: use `cargo bench --profile release`");
        std::process::exit(2);
    }
    for events_per_stack in [1, 4, 20] {
        measure(events_per_stack);
    }
}

fn measure(events_per_stack: usize) {
    let mut dictionary = Dictionary::default();
    let mut builder = ReportBuilder::new(ReportOptions::new("bench"));
    let mut workload = Workload::new(&mut dictionary);
    let resource = dictionary.add_attributes([(key::SERVICE_NAME, Value::Str("bench"))]);
    let threads: Vec<AttributeSetIndex> = (0..16)
        .map(|thread| {
            let attributes = SampleAttributes {
                thread_id: Some(thread),
                thread_name: Some("worker"),
                ..Default::default()
            };
            attributes.add_to(&mut dictionary)
        })
        .collect();
    let mut stacks: Vec<_> = (0..STACKS).map(|_| workload.new_stack(&mut dictionary)).collect();
    let events = STACKS * events_per_stack;
    let (mut naming, mut adding, mut encoding) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
    let mut bytes = 0;
    for _ in 0..REPORTS {
        timed(&mut naming, || {
            for _ in 0..STACKS / 10 {
                let replaced = workload.sequence.below(STACKS as u64) as usize;
                stacks[replaced] = workload.new_stack(&mut dictionary);
            }
        });
        timed(&mut adding, || {
            for event in 0..events {
                let stack = event % STACKS;
                let identity = SampleIdentity {
                    resource,
                    profile_type: builder.kind(Kind::Cpu { samples_per_second: 997 }),
                    stack: stacks[stack],
                    attributes: threads[stack % threads.len()],
                    link: LinkIndex::default(),
                };
                builder.event(&identity, START + event as u64 * 1000, 1);
            }
        });
        timed(&mut encoding, || {
            let reports = builder.drain(&mut dictionary, START..START + 5_000_000_000, usize::MAX);
            bytes += reports.iter().map(|report| report.as_bytes().len()).sum::<usize>();
        });
    }
    let each = |total: Duration| total.as_nanos() as f64 / (events * REPORTS) as f64;
    println!(
        "{events_per_stack:3} events of each stack in a report: {:6.1} ns CPU per event \
         (new stacks {:5.1}, events {:5.1}, encoding {:6.1}), {:5.1} bytes",
        each(naming + adding + encoding),
        each(naming),
        each(adding),
        each(encoding),
        bytes as f64 / (events * REPORTS) as f64,
    );
}

/// Adds the CPU time of `work` to `total`.
fn timed(total: &mut Duration, work: impl FnOnce()) {
    let before = cpu_time();
    work();
    *total += cpu_time().saturating_sub(before);
}
