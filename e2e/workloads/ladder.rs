//! A known call chain in Rust, built as `rustc` builds a release: main, climb, DEPTH rungs, burn.
//!
//! Usage: ladder SECONDS DEPTH

use std::hint::black_box;
use std::io::BufRead;
use std::time::{Duration, Instant};

#[inline(never)]
#[unsafe(no_mangle)]
fn burn(mut value: u64) -> u64 {
    for i in 0..1_000_000 {
        value = black_box(value + i);
    }
    value
}

/// One rung: a function of its own that calls the next, never as its last action.
macro_rules! rung {
    ($name:ident, $next:ident) => {
        #[inline(never)]
        #[unsafe(no_mangle)]
        fn $name(left: u64, value: u64) -> u64 {
            let deeper = if left == 0 { burn(value) } else { $next(left - 1, black_box(value + left)) };
            black_box(deeper) ^ line!() as u64
        }
    };
}

rung!(rung_0, rung_1);
rung!(rung_1, rung_2);
rung!(rung_2, rung_3);
rung!(rung_3, rung_0);

#[inline(never)]
#[unsafe(no_mangle)]
fn climb(depth: u64, value: u64) -> u64 {
    black_box(rung_0(depth - 1, value)) + 1
}

/// CPU time of this process, from its own accounting file (ticks would be too coarse).
fn cpu_ns() -> u64 {
    let schedstat = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    schedstat.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let seconds: f64 = arguments.next().and_then(|text| text.parse().ok()).expect("SECONDS");
    let depth: u64 = arguments.next().and_then(|text| text.parse().ok()).expect("DEPTH");
    let pid = std::process::id();
    println!("{{\"ready\":{pid}}}");
    if std::env::var_os("WORKLOAD_GATE").is_some() {
        std::io::stdin().lock().read_line(&mut String::new()).expect("a line on standard input");
    }
    let (cpu_at_gate_ns, start) = (cpu_ns(), Instant::now());
    let mut value = 1;
    while start.elapsed() < Duration::from_secs_f64(seconds) {
        value = climb(depth, value);
    }
    black_box(value);
    let rungs: String = (0..depth).map(|n| format!("\"rung_{}\",", n % 4)).collect();
    println!(
        "{{\"pid\":{pid},\"cpu_ns\":{},\"tids\":[{pid}],\"chain\":[\"climb\",{rungs}\"burn\"]}}",
        cpu_ns() - cpu_at_gate_ns
    );
}
