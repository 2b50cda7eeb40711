//! `make image-test` with arm64 among its architectures: the image's half for arm64 in a guest, unpacked as the root of a
//! container, by another user than root with what Kubernetes grants a sidecar.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use sidewinder_e2e_debian::archive::Archive;
use sidewinder_e2e_support::oci::{Layout, file_capabilities};
use sidewinder_e2e_support::workload::{CONTAINER, LADDER_SIGNED, PRIVILEGES};

use crate::guest::{Root, Told};
use crate::kernels::image;
use crate::machine::Machine;
use crate::recording::Recording;
use crate::{FEW_CPUS, Failures, arm64, or_skip};

/// The kernel, as the command line of `vm-test arm64` calls it.
const KERNEL: &str = "trixie";
const PATIENCE: Duration = Duration::from_secs(600);
const CONFIGURATION: &str = "{receivers: {profiling: }, \
     exporters: {otlp_grpc: {endpoint: '127.0.0.1:4317', tls: {insecure: true}}}, \
     service: {pipelines: {profiles: {receivers: [profiling], exporters: [otlp_grpc]}}}}";
/// `CAP_PERFMON` and `CAP_BPF`, as /proc/PID/status writes sets.
const TWO_CAPABILITIES: &str = "000000c000000000";
const NO_CAPABILITY: &str = "0000000000000000";

/// Runs the image of the folder `built`, which `make image` wrote.
pub(crate) fn test(built: &Path) -> Result<ExitCode> {
    let Some(archive) = or_skip("the image for arm64", arm64::archive())? else {
        return Ok(ExitCode::SUCCESS);
    };
    let kernel = image(&archive, arm64::kernel(KERNEL).context("no such kernel")?)?;
    let told = root(&archive, built)?.boot(&kernel, FEW_CPUS, PATIENCE)?;
    let recording = Recording::read(&told, "image", "image")?;
    println!("{}", told.section("release")?.trim());
    print!("{}", recording.row("image"));
    let cpus = told.section("cpus")?.trim().parse()?;
    let found = recording.failures(arm64::LIMITS, cpus).chain(failures(&told)?);
    let mut failures = Failures::default();
    failures.tell(found.map(|failure| format!("the image for arm64: {failure}")));
    Ok(failures.exit_code())
}

fn root(archive: &Archive, built: &Path) -> Result<Root> {
    let layout = Layout::open(built)?;
    let images = layout.images()?;
    let image = images.iter().find(|image| image.architecture == "arm64");
    let image = image.with_context(|| format!("{} has no image for arm64", built.display()))?;
    let folder = tempfile::tempdir()?;
    let (unpacked, aside) = (folder.path().join("image"), folder.path().join("aside"));
    fs::create_dir(&unpacked)?;
    fs::create_dir(&aside)?;
    image.unpack(&unpacked)?;
    let capabilities = file_capabilities(&unpacked.join("sidewinder"))?;
    let capabilities = hex::encode(capabilities);
    fs::write(aside.join("file-capabilities"), capabilities)?;
    fs::write(aside.join("configuration"), CONFIGURATION)?;
    let mut files: Vec<(PathBuf, PathBuf)> = Vec::new();
    for (from, to) in [(unpacked.join("licenses"), "/image/licenses"), (aside, "/")] {
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            files.push((entry.path(), Path::new(to).join(entry.file_name())));
        }
    }
    let programs = [
        (unpacked.join("sidewinder"), "/image/sidewinder"),
        (LADDER_SIGNED.compiled_for_arm64()?, "/ladder-pac"),
        (PRIVILEGES.compiled_for_arm64()?, "/privileges"),
        (CONTAINER.compiled_for_arm64()?, "/container-run"),
    ];
    let programs = programs.map(|(program, name)| (program, name.to_owned()));
    Root::of(Machine::Arm64, "init-image", &arm64::busybox(archive)?, programs, files)
}

/// What else than the recording went wrong.
fn failures(told: &Told) -> Result<Vec<String>> {
    let mut failures = Vec::new();
    for (name, expected, code) in [
        ("version", concat!("sidewinder ", env!("CARGO_PKG_VERSION")), 0),
        ("validate", "", 0),
        ("inspect", "rows", 0),
        ("check", "Ready to profile", 0),
        ("check.nothing", "CAP_BPF", 3),
    ] {
        let said = told.section(name)?;
        if !said.contains(expected) || !said.ends_with(&format!("exit code {code}\n")) {
            failures.push(format!("{name}: {said}"));
        }
    }
    let threads: Vec<&str> = told.section("status")?.split("Name:\t").skip(1).collect();
    if !threads.iter().any(|thread| thread.starts_with("opener\n") && has(thread, "CapPrm", TWO_CAPABILITIES))
    {
        failures.push(format!("none of {} threads may open events", threads.len()));
    }
    for thread in threads {
        if !has(thread, "CapPrm", TWO_CAPABILITIES) && !has(thread, "CapPrm", NO_CAPABILITY) {
            failures.push(format!("a thread has others than two capabilities:\n{thread}"));
        }
        let sets = [
            ("CapBnd", TWO_CAPABILITIES),
            ("CapInh", NO_CAPABILITY),
            ("CapAmb", NO_CAPABILITY),
            ("NoNewPrivs", "1"),
            ("Uid", "65532\t65532\t65532\t65532"),
        ];
        let breaches = sets.iter().filter(|(field, value)| !has(thread, field, value));
        failures.extend(breaches.map(|(field, value)| format!("{field} is not {value}:\n{thread}")));
    }
    Ok(failures)
}

/// Whether the status of a thread, as /proc writes it, has a field with this value.
fn has(status: &str, field: &str, value: &str) -> bool {
    status.contains(&format!("{field}:\t{value}\n"))
}
