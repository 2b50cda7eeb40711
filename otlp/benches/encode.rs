//! CPU time for each event, from the call of the builder to the encoded report.
//!
//! The load: 50,000 distinct stacks of 40 named frames, a tenth of them new in each report. The
//! caller keeps the indices of stacks and attribute sets beside its own data, as a receiver does.

use std::time::{Duration, Instant};

use sidewinder_otlp::builder::{
    AttributeSetIndex, BuildIds, Frame, Function, Line, Mapping, SampleAttributes, SampleIdentity, StackIndex,
};
use sidewinder_otlp::{FrameType, Kind, ReportBuilder, ReportOptions, Value, key};

const START: u64 = 1_700_000_000_000_000_000;
const STACKS: usize = 50_000;
const DEPTH: usize = 40;
const FUNCTIONS: u64 = 20_000;
const REPORTS: usize = 10;

/// A sequence that looks random and is the same every time (splitmix64).
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

/// A stack that has not been before.
fn new_stack(builder: &mut ReportBuilder, sequence: &mut Sequence) -> StackIndex {
    let mapping = builder.mapping(&Mapping {
        memory_start: 0x40_0000,
        memory_limit: 0x4000_0000,
        file_offset: 0,
        filename: "/usr/bin/workload",
        build_ids: BuildIds { htlhash: "000102030405060708090a0b0c0d0e0f", gnu: None, go: None },
    });
    let locations: Vec<_> = (0..DEPTH)
        .map(|_| {
            let number = sequence.below(FUNCTIONS);
            let name = format!("workload::module_{}::function_{number}", number % 100);
            let function = builder.function(&Function { name: &name, ..Function::default() });
            builder.location(&Frame {
                mapping: Some(mapping),
                address: 0x40_0000 + number * 64 + sequence.below(4),
                frame_type: FrameType::Rust,
                lines: &[Line::of(function)],
            })
        })
        .collect();
    builder.stack(&locations)
}

/// User and system time of this process.
fn cpu_time() -> Duration {
    let clock = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let nanoseconds = clock.split_whitespace().next().and_then(|field| field.parse().ok());
    Duration::from_nanos(nanoseconds.unwrap_or_default())
}

fn main() {
    for events_per_stack in [1, 4, 20] {
        measure(events_per_stack);
    }
}

fn measure(events_per_stack: usize) {
    let mut builder = ReportBuilder::new(ReportOptions::new("bench"));
    let mut sequence = Sequence(1);
    let resource = builder.resource(&[(key::SERVICE_NAME, Value::Str("bench"))]);
    let threads: Vec<AttributeSetIndex> = (0..16)
        .map(|thread| {
            let attributes = SampleAttributes {
                thread_id: Some(thread),
                thread_name: Some("worker"),
                ..Default::default()
            };
            builder.attributes(&attributes)
        })
        .collect();
    let mut stacks: Vec<_> = (0..STACKS).map(|_| new_stack(&mut builder, &mut sequence)).collect();
    let events = STACKS * events_per_stack;
    let (mut cpu, mut wall, mut bytes) = (Duration::ZERO, Duration::ZERO, 0);
    for _ in 0..REPORTS {
        let (cpu_before, begun) = (cpu_time(), Instant::now());
        for _ in 0..STACKS / 10 {
            let replaced = sequence.below(STACKS as u64) as usize;
            stacks[replaced] = new_stack(&mut builder, &mut sequence);
        }
        for event in 0..events {
            let stack = event % STACKS;
            let identity = SampleIdentity {
                resource,
                kind: Kind::Cpu { samples_per_second: 997 },
                stack: stacks[stack],
                attributes: threads[stack % threads.len()],
                link: None,
            };
            builder.event(&identity, START + event as u64 * 1000, 1);
        }
        let report = builder.drain(START..START + 5_000_000_000);
        bytes += report.map_or(0, |report| report.as_bytes().len());
        cpu += cpu_time() - cpu_before;
        wall += begun.elapsed();
    }
    let total = (events * REPORTS) as f64;
    println!(
        "{events_per_stack:3} events of each stack in a report: {:6.1} ns CPU and {:6.1} ns of time per event, {:5.1} bytes",
        cpu.as_nanos() as f64 / total,
        wall.as_nanos() as f64 / total,
        bytes as f64 / total,
    );
}
