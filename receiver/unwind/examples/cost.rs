//! What making tables costs: time, and heap beyond the tables themselves.
//!
//! `cargo run --release -p sidewinder-unwind --example cost -- /usr/lib/x86_64-linux-gnu/libLLVM-14.so.1`
#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use peak_alloc::PeakAlloc;
use sidewinder_unwind::{Entry, UnwindTable, unwind_table};

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

/// The quickest of so many runs counts: the others waited for something.
const RUNS: u32 = 5;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("{:>9} rows {:>11} rows/s {:>8} ms {:>12} KiB beyond", "", "", "", "");
    for path in std::env::args_os().skip(1) {
        let data = std::fs::read(&path)?;
        let file = object::File::parse(&*data)?;
        let before = HEAP.current_usage();
        HEAP.reset_peak_usage();
        let table = unwind_table(&file)?;
        let beyond = HEAP.peak_usage().saturating_sub(before + heap_bytes(&table));
        let quickest = (0..RUNS)
            .map(|_| {
                let began = Instant::now();
                let _ = std::hint::black_box(unwind_table(&file));
                began.elapsed()
            })
            .min()
            .unwrap_or(Duration::MAX);
        println!(
            "{:>9} rows {:>11.0} rows/s {:>8.1} ms {:>12} KiB beyond  {}",
            table.len(),
            table.len() as f64 / quickest.as_secs_f64(),
            quickest.as_secs_f64() * 1e3,
            beyond >> 10,
            path.display()
        );
    }
    Ok(())
}

fn heap_bytes(table: &UnwindTable) -> usize {
    table.len() * (size_of::<u32>() + size_of::<u16>()) + size_of_val::<[Entry]>(table.entries())
}
