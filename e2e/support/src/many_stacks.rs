//! A large profile: a minute of 64 threads at 100 Hz, with 100,000 different stacks through 20,000 functions, as OTLP.
//!
//! Stacks are ways through a call graph. Each function has call sites on lines of their own, the first of which it takes
//! mostly, so that stacks share most of their callers, as those of programs do: they make a tree of some million nodes. All of it
//! follows from a seed.

use std::collections::HashSet;

use anyhow::{Context as _, Result};
use sidewinder_kind::Kind;
use sidewinder_otlp::builder::{SampleAttributes, SampleIdentity};
use sidewinder_otlp::{Report, ReportBuilder, ReportOptions};
use sidewinder_profile::{
    AttributeSetIndex, Dictionary, FrameType, Function, Line, LinkIndex, Location, LocationIndex, Value,
};

/// The number of different stacks.
pub const STACKS: usize = 100_000;
/// The number of events.
pub const EVENTS: u64 = SECONDS * THREADS * SAMPLES_PER_SECOND as u64;
/// How long the profile took.
pub const SECONDS: u64 = 60;
const THREADS: u64 = 64;
const SAMPLES_PER_SECOND: u32 = 100;
const FUNCTIONS: u64 = 20_000;
/// The call sites of a function.
const SITES: u64 = 6;
/// Of a hundred calls, those from the same call site as the one before.
const SAME_SITE_PERCENT: u64 = 88;
const DEPTH_MIN: u64 = 8;
const DEPTH_MAX: u64 = 120;
/// Of a hundred frames below the least depth, those that call another one.
const DEEPER_PERCENT: u64 = 97;
const START_UNIX_NS: u64 = 1_790_000_000_000_000_000;
const SEED: u64 = 88_172_645_463_325_252;

/// `#` is the function's number.
const NAMES: [(&str, FrameType); 8] = [
    ("server::connection::Connection<S>::serve_#", FrameType::Rust),
    ("<server::router::Router# as tower::Service<http::Request<Body>>>::call", FrameType::Rust),
    ("serde_json::de::Deserializer<R>::parse_value_#", FrameType::Rust),
    ("std::vector<app::Item#, std::allocator<app::Item#> >::push_back(app::Item#&&)", FrameType::Native),
    ("sqlite3VdbeExec_#", FrameType::Native),
    ("_int_malloc_#", FrameType::Native),
    ("github.com/example/shop/cart#.(*Cart).Add", FrameType::Go),
    ("do_syscall_64_#", FrameType::Kernel),
];

/// Marsaglia's xorshift: its numbers are the same everywhere.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }
}

/// The profile.
///
/// # Errors
/// If it cannot be encoded.
pub fn report() -> Result<Report> {
    let mut dictionary = Dictionary::default();
    let mut builder = ReportBuilder::new(ReportOptions::new("many stacks"));
    let mut numbers = Numbers(SEED);
    let locations = locations(&mut dictionary);
    let mut stacks = Vec::with_capacity(STACKS);
    let mut known = HashSet::with_capacity(STACKS);
    while stacks.len() < STACKS {
        let mut stack = way(&mut numbers);
        stack.reverse();
        if known.insert(stack.clone()) {
            let frames: Vec<_> =
                stack.iter().filter_map(|site| locations.get(*site as usize).copied()).collect();
            stacks.push(dictionary.add_stack(&frames));
        }
    }
    let threads: Vec<_> = (0..THREADS).map(|number| thread(&mut dictionary, number)).collect();
    let profile_type = builder.kind(Kind::Cpu { samples_per_second: SAMPLES_PER_SECOND });
    for event in 0..EVENTS {
        // Each stack has an event, and some have many.
        let stack = if event < STACKS as u64 { event } else { numbers.below(STACKS as u64 / 8) };
        let (resource, attributes) = threads[numbers.below(THREADS) as usize];
        let stack = stacks[stack as usize];
        let time = START_UNIX_NS + numbers.below(SECONDS * 1_000_000_000);
        let link = LinkIndex::default();
        builder.event(&SampleIdentity { resource, profile_type, stack, attributes, link }, time, 1);
    }
    let times = START_UNIX_NS..START_UNIX_NS + SECONDS * 1_000_000_000;
    builder.finish(&mut dictionary, times).context("the profile has no samples")
}

/// The call sites of all functions: those of function `n` begin at `n * SITES`.
fn locations(dictionary: &mut Dictionary) -> Vec<LocationIndex> {
    let mut locations = Vec::new();
    for (number, (pattern, frame_type)) in (0..FUNCTIONS).zip(NAMES.iter().cycle()) {
        let name = pattern.replace('#', &number.to_string());
        let filename = format!("src/module_{}/file_{}.rs", number / 400, number / 20);
        let function = Function {
            name: dictionary.add_string(&name),
            filename: dictionary.add_string(&filename),
            ..Function::default()
        };
        let function = dictionary.add_function(function);
        for site in 0..SITES {
            let line = u32::try_from(number % 20 * 50 + site + 1).unwrap_or(0);
            locations.push(dictionary.add_location(&Location {
                address: 0,
                frame_type: *frame_type,
                lines: &[Line { function, line, column: 0 }],
                ..Location::default()
            }));
        }
    }
    locations
}

/// A way through the call graph, from its root: a call site of each function.
fn way(numbers: &mut Numbers) -> Vec<u64> {
    let (mut function, mut way) = (0, Vec::new());
    for depth in 0..DEPTH_MAX {
        let is_same = numbers.below(100) < SAME_SITE_PERCENT;
        let site = if is_same { 0 } else { 1 + numbers.below(SITES - 1) };
        way.push(function * SITES + site);
        if depth >= DEPTH_MIN && numbers.below(100) >= DEEPER_PERCENT {
            break;
        }
        // Fibonacci hashing: what a call site calls is anywhere.
        function = ((function * SITES + site + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) % FUNCTIONS;
    }
    way
}

fn thread(dictionary: &mut Dictionary, number: u64) -> (AttributeSetIndex, AttributeSetIndex) {
    let resource = dictionary.add_attributes([
        ("process.executable.name", Value::Str("server")),
        ("process.pid", Value::Int(100)),
    ]);
    let attributes = SampleAttributes {
        thread_id: i64::try_from(101 + number).ok(),
        thread_name: Some("worker"),
        ..SampleAttributes::default()
    };
    let attributes = attributes.add_to(dictionary);
    (resource, attributes)
}
