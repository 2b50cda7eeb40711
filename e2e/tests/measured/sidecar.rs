//! Real programs under the service as the chart runs it: with a sidecar's memory, in a cgroup with its limit.

use std::time::Duration;

use anyhow::Result;
use sidewinder_e2e_corpus::{PROGRAMS, SidecarResult, SidecarRun, profile_beside};
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::requirement;
use sidewinder_e2e_support::session::SIDECAR_MEMORY_BYTES;

/// More than its first ten seconds.
const DURATION: Duration = Duration::from_secs(14);
/// Some 1,300 samples of each program. What is left are stacks of processes that have just begun.
const COMPLETE_SHARE: f64 = 0.99;
/// Look-ups of names for which there was no room, of all frames.
const LEFT_OUT_SHARE: f64 = 0.01;
/// Walked later, from a copy: while a new process is not known yet.
const LATE_SHARE: f64 = 0.05;
/// Where processes live for 50 ms: their first 10 ms.
const LATE_SHARE_OF_SHORT_PROCESSES: f64 = 0.4;

fn check(name: &str, late_share: f64) -> Result<()> {
    let Some(subject) = PROGRAMS.iter().find(|subject| subject.name == name) else {
        anyhow::bail!("no program of the corpus has this name: {name}")
    };
    if !requirement::ebpf(name)? {
        return Ok(());
    }
    if let Some(tool) = subject.missing_tool() {
        requirement::skip(name, &format!("{tool} is not installed"))?;
        return Ok(());
    }
    let run = SidecarRun {
        samples_per_second: 97,
        duration: DURATION,
        memory_bytes: SIDECAR_MEMORY_BYTES,
        is_of_node: false,
    };
    let result = profile_beside(&[subject], run)?;
    eprintln!("{:<10} {}\n{name:<10} {result}", "", SidecarResult::heads());
    assert!(result.events > 800, "{result}");
    assert!(result.complete_share() >= COMPLETE_SHARE, "{result}");
    assert!(result.late_share() <= late_share, "{result}");
    assert!((result.names_left_out as f64) <= LEFT_OUT_SHARE * result.frames as f64, "{result}");
    assert!(result.peak_bytes <= SIDECAR_MEMORY_BYTES, "{result}");
    Ok(())
}

/// Its table is made of Go's, which has 8 MB.
#[promise(PodMemory)]
fn gos_compiler_is_profiled_with_the_memory_of_a_sidecar() -> Result<()> {
    check("go-vet", LATE_SHARE_OF_SHORT_PROCESSES)
}

/// Node.js has 26 MB of code, 1 MB of which nothing describes.
#[promise(PodMemory, test_all)]
fn node_is_profiled_with_the_memory_of_a_sidecar() -> Result<()> {
    check("node", LATE_SHARE)
}

#[promise(PodMemory, test_all)]
fn java_is_profiled_with_the_memory_of_a_sidecar() -> Result<()> {
    check("java", LATE_SHARE)
}
