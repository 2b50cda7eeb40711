//! Loads the programs of each way to walk that this kernel has, and prints what verifying them took, tab-separated: the
//! way, the program (or `load_ms`), the number of instructions (or of milliseconds).

use sidewinder_bpf::{Walk, verify};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let ways: &[Walk] = match Walk::of_this_kernel() {
        Walk::Loop => &[Walk::Loop, Walk::TailCalls],
        Walk::TailCalls => &[Walk::TailCalls],
    };
    for way in ways {
        let verified = verify(*way)?;
        for (program, instructions) in &verified.programs {
            println!("{}\t{program}\t{instructions}", way.label());
        }
        println!("{}\tload_ms\t{}", way.label(), verified.load_time.as_millis());
    }
    Ok(())
}
