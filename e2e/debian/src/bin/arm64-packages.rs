//! Unpacks Debian's packages for arm64 that `make oracle ARCH=arm64` reads, and prints the folder.
#![forbid(unsafe_code)]

use anyhow::{Context as _, Result};
use sidewinder_e2e_debian::arm64;

fn main() -> Result<()> {
    for package in arm64::PACKAGES {
        arm64::files(package).with_context(|| format!("no {package}"))?;
    }
    println!("{}", arm64::folder().display());
    Ok(())
}
