//! Loads the eBPF programs for each way to walk that this kernel has, and prints how many instructions its verifier followed,
//! as `sidewinder check --verify` does. Small, so that what another compiler made of the programs is tried soon.

use sidewinder_bpf::{LoadError, WalkMode, verify};

fn main() -> Result<(), LoadError> {
    for &walk in WalkMode::supported() {
        for (program, instructions) in verify(walk)?.programs {
            println!("{}\t{program}\t{instructions}", walk.label());
        }
    }
    Ok(())
}
