//! Prints the rows of a file, and on standard error their sources and the time taken.
//!
//! `cargo run --release -p sidewinder-unwind --example rows -- /lib/x86_64-linux-gnu/libc.so.6`
#![forbid(unsafe_code)]

use std::io::{BufWriter, Write as _};
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args_os().nth(1).ok_or("usage: rows FILE")?;
    let data = std::fs::read(path)?;
    let file = object::File::parse(&*data)?;
    let began = Instant::now();
    let table = sidewinder_unwind::unwind_table(&file)?;
    let took = began.elapsed();
    eprintln!("{} rows, {} entries, {took:?}: {:#?}", table.len(), table.entries().len(), table.summary());
    let mut out = BufWriter::new(std::io::stdout().lock());
    for row in table.rows() {
        writeln!(out, "{row}")?;
    }
    Ok(())
}
