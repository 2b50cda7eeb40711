//! Prints the rows of files that contradict their code, and a summary for each file.
//!
//! `cargo run --release -p sidewinder-unwind --example validate -- /lib/x86_64-linux-gnu/libc.so.6 ...`
#![forbid(unsafe_code)]

use std::time::Instant;

use sidewinder_unwind::unwind_table;
use sidewinder_unwind::validate::validate;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for path in std::env::args_os().skip(1) {
        let data = std::fs::read(&path)?;
        let Ok(file) = object::File::parse(&*data) else { continue };
        let Ok(table) = unwind_table(&file) else { continue };
        let began = Instant::now();
        let validation = validate(&file, &table)?;
        let took = began.elapsed();
        for mismatch in &validation.mismatches {
            println!("{mismatch}");
        }
        println!(
            "{}: {} wrong rows; {} functions ({} given up), {} rows, {} instructions right, {} open, \
             {} without a claim; {:.0} rows/s",
            path.display(),
            validation.rows_wrong,
            validation.functions,
            validation.functions_given_up,
            validation.rows,
            validation.instructions_right,
            validation.instructions_open,
            validation.instructions_without_claim,
            validation.rows as f64 / took.as_secs_f64()
        );
    }
    Ok(())
}
