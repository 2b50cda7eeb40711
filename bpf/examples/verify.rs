//! Loads the eBPF programs for each walk mode that this kernel supports, and prints how many instructions its verifier
//! processed, like `sidewinder check --verify`. Small, so that programs from another compiler are quick to try.

use sidewinder_bpf::{LoadError, WalkMode, verify};

fn main() -> Result<(), LoadError> {
    for &walk in WalkMode::supported() {
        for (program, instructions) in verify(walk)?.programs {
            println!("{}\t{program}\t{instructions}", walk.label());
        }
    }
    Ok(())
}
