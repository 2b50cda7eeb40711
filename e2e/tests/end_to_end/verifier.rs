//! The programs stay small enough for every kernel's verifier.

use anyhow::{Result, ensure};
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::{requirement, sidewinder};
use sidewinder_e2e_vm::verifier::{Baseline, Verified, series};

/// On the running kernel; `make vm-test` asks those of Debian.
#[promise(OlderKernels)]
fn no_program_takes_noticeably_more_verifying_than_it_is_known_to() -> Result<()> {
    if !requirement::ebpf("verifier instructions")? {
        return Ok(());
    }
    let verified = Verified::parse(&sidewinder::run(&["check", "--verify"])?.log);
    ensure!(verified.instructions.len() > 3, "programs were not loaded: {verified:?}");
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let breaches = Baseline::read()?.breaches(&series(release.trim()), &verified);
    ensure!(breaches.is_empty(), "{}", breaches.join("\n"));
    Ok(())
}
