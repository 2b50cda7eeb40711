//! Compares, for each file, what the machine code alone gives with what the file says of itself.
//!
//! `cargo run --release -p sidewinder-unwind --example synthesis -- [-v] /usr/bin/* /usr/lib/x86_64-linux-gnu/*.so.*`
#![forbid(unsafe_code)]

#[path = "../tests/support/blind.rs"]
mod blind;

use blind::{Comparison, Outcome, compare};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut total = Comparison::default();
    let mut verbose = false;
    for path in std::env::args_os().skip(1) {
        if path == "-v" {
            verbose = true;
            continue;
        }
        let data = std::fs::read(&path)?;
        let Some(comparison) = compare(&data).filter(|comparison| comparison.total() > 0) else { continue };
        for (outcome, at, bytes, stated, synthesized) in comparison.examples.iter().filter(|_| verbose) {
            println!("{outcome:?}\t{at}\t{bytes}\t{stated}\t{synthesized}");
        }
        println!("{}: {comparison}", path.display());
        total.add(&comparison);
    }
    println!("total: {total}");
    println!("agree: {:.2}%", total.percent(Outcome::Equal) + total.percent(Outcome::Equivalent));
    Ok(())
}
