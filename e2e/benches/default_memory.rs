//! Real programs under the service with the chart's default memory, in a cgroup with the chart's limit: how much of their stacks
//! is complete and named, and what that takes.
//!
//! Each program has run for three seconds, some of them after a start that takes longer. The profiler samples it, with all that it forks, for as many seconds as
//! `SIDEWINDER_SECONDS` says (20), at 97 Hz. Rows for a whole node have the memory of the chart's DaemonSet. `late`: walked later,
//! from a copy of the stack. `named` leaves out frames without a name in stripped files; `left out` are look-ups for which there
//! was no room. CPU time is the kernel's, of the profiler's threads; memory in MiB, and `peak` includes cached pages of files.
//!
//! Beside it, where `OTEL_PROFILER` names OpenTelemetry's profiler: its CPU time and memory for the rows of the whole node.
#![forbid(unsafe_code)]

use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use sidewinder_e2e_corpus::{Gated, PROGRAMS, SidecarResult, SidecarRun, Subject, profile_beside};
use sidewinder_e2e_support::load::Load;
use sidewinder_e2e_support::session::SIDECAR_MEMORY_BYTES;
use sidewinder_e2e_support::{bench, observe, requirement};

const SAMPLES_PER_SECOND: u32 = 97;
/// The chart's default for a DaemonSet.
const NODE_MEMORY_BYTES: u64 = 128 << 20;

/// Programs of the corpus that are profiled by themselves.
const ALONE: [&str; 29] = [
    "go-vet",
    "babel",
    "terser",
    "typescript",
    "esbuild",
    "next",
    "groovy",
    "clojure",
    "jruby",
    "javac",
    "spring",
    "netty",
    "sympy",
    "sqlglot",
    "django",
    "sphinx",
    "ladder",
    "rec",
    "gcc",
    "clang",
    "rustc",
    "go-build",
    "redis",
    "postgres",
    "postgres-connect",
    "java",
    "classes",
    "kube-apiserver",
    "collector",
];

/// Those that are profiled together, with the whole node.
const TOGETHER: [&[&str]; 3] = [&["jruby", "terser", "sympy", "sqlglot"], &["rustc", "gcc"], &["chromium"]];

fn main() -> Result<()> {
    const NAME: &str = "default_memory";
    if bench::is_to_start_only() || !requirement::ebpf(NAME)? {
        return Ok(());
    }
    let seconds = std::env::var("SIDEWINDER_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    let duration = Duration::from_secs(seconds.unwrap_or(20));
    let named = bench::named();
    let is_wanted = |name: &str| named.is_empty() || named.iter().any(|wanted| wanted == name);
    println!("{:<32} {}", "", SidecarResult::heads());
    let run = SidecarRun {
        samples_per_second: SAMPLES_PER_SECOND,
        duration,
        memory_bytes: SIDECAR_MEMORY_BYTES,
        is_of_node: false,
    };
    for name in ALONE.into_iter().filter(|name| is_wanted(name)) {
        measure(name, &[name], run)?;
    }
    for names in TOGETHER {
        let label = format!("node: {}", names.join(", "));
        if is_wanted("node") || is_wanted(&label) {
            measure(&label, names, SidecarRun { memory_bytes: NODE_MEMORY_BYTES, is_of_node: true, ..run })?;
            measure_peer(names, duration)?;
        }
    }
    Ok(())
}

/// A row. A program that can't be had here is skipped, and named.
fn measure(label: &str, names: &[&str], run: SidecarRun) -> Result<()> {
    let Some(subjects) = found(names)? else { return Ok(()) };
    match profile_beside(&subjects, run) {
        Ok(result) => println!("{label:<32} {result}"),
        Err(error) => println!("{label:<32} {error:#}"),
    }
    Ok(())
}

fn found(names: &[&str]) -> Result<Option<Vec<&'static Subject>>> {
    let subjects: Vec<&Subject> = PROGRAMS.iter().filter(|subject| names.contains(&subject.name)).collect();
    if let Some(tool) = subjects.iter().find_map(|subject| subject.missing_tool()) {
        requirement::skip(&names.join(", "), &format!("{tool} is not installed"))?;
        return Ok(None);
    }
    Ok(Some(subjects))
}

/// What OpenTelemetry's profiler takes for the same programs. Its receiver is nobody, as it counts only itself.
fn measure_peer(names: &[&str], duration: Duration) -> Result<()> {
    let (Some(program), Some(subjects)) = (std::env::var_os("OTEL_PROFILER"), found(names)?) else {
        return Ok(());
    };
    let seconds = u32::try_from(duration.as_secs())? + 30;
    let mut programs: Vec<_> =
        subjects.iter().map(|subject| Gated::start(subject, seconds)).collect::<Result<_>>()?;
    programs.iter_mut().try_for_each(Gated::open)?;
    let mut command = Command::new(program);
    let rate = SAMPLES_PER_SECOND.to_string();
    command.args(["-collection-agent", "127.0.0.1:9", "-disable-tls", "-samples-per-second", &rate]);
    let profiler = Load::start(command)?;
    let first = observe::cost_over(profiler.pid(), Duration::from_secs(10))?;
    let later = observe::cost_over(profiler.pid(), duration.saturating_sub(Duration::from_secs(10)))?;
    println!(
        "{:<32} {:>61.2} {:>7.2} {:>7.1}",
        "  OpenTelemetry's profiler",
        first.cpu_percent / 10.0,
        later.cpu_percent,
        later.resident_mib
    );
    Ok(())
}
