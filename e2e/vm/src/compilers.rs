//! What different compilers make of the eBPF programs has to load on the oldest kernel, whose verifier knows the least.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use sidewinder_e2e_debian::archive::Archive;
use sidewinder_e2e_support::requirement;
use sidewinder_e2e_vm::verifier::Verified;

use crate::guest::{Root, busybox};
use crate::kernels::{Package, Wanted, image};
use crate::machine::Machine;

const KERNEL: Wanted = Wanted::Of("bullseye");
const RELEASE: &str = "5.10.";
const PATIENCE: Duration = Duration::from_secs(120);
/// Under which names the guest looks for what loads them.
const NAMES: [&str; 2] = ["/verify-0", "/verify-1"];
/// That 5.10 loads for its one way to walk at the least: three that follow processes, and two that sample and walk.
const PROGRAMS_MIN: usize = 5;
/// Outside and inside of a PID namespace, where programs translate numbers.
const PLACES: [&str; 2] = ["initial", "nested"];

/// Has the kernel load what each of these programs holds (`bpf/examples/verify.rs`, one for each compiler).
pub(crate) fn test(archive: &Archive, loaders: &[String]) -> Result<ExitCode> {
    ensure!(loaders.len() == NAMES.len(), "name {} programs, one for each compiler", NAMES.len());
    let kernel = match image(archive, Package::amd64(KERNEL)) {
        Ok(kernel) => kernel,
        Err(error) => {
            requirement::skip("compilers-test", &format!("{error:#}"))?;
            return Ok(ExitCode::SUCCESS);
        }
    };
    let programs = loaders.iter().map(PathBuf::from).zip(NAMES.map(str::to_owned));
    let root = Root::of(Machine::Amd64, "init-compilers", &busybox()?, programs, [])?;
    let told = root.boot(&kernel, 2, PATIENCE)?;
    let release = told.section("release")?.trim();
    ensure!(release.starts_with(RELEASE), "this is Linux {release}");
    for (loader, name) in loaders.iter().zip(NAMES) {
        for place in PLACES {
            let said = told.section(&format!("{}.{place}", name.trim_start_matches('/')))?;
            let verified = Verified::parse(said);
            println!("{release} {place} {loader}: {:?}", verified.instructions);
            let is_whole = verified.instructions.len() >= PROGRAMS_MIN
                && verified.instructions.values().all(|count| *count > 0);
            ensure!(
                is_whole && said.contains("\nexit code 0"),
                "Linux {release} refuses the programs of {loader}: {said}"
            );
        }
    }
    told.section("end").context("the guest")?;
    Ok(ExitCode::SUCCESS)
}
