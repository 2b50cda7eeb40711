//! Regular expressions that V8 has compiled have frames of their own.

use std::path::Path;
use std::process::Stdio;

use anyhow::{Context as _, Result};
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::{paths, requirement};

use super::{ENOUGH, Node, PROFILED_SECONDS, command, profile, warm_samples};

/// What matches them.
const FUNCTION: &str = "scan";
const NAME: &str = "(regular expression)";
/// Of the samples in that function, those that are matching: most are, some are in what makes arrays of matches.
const MATCHING_SHARE: f64 = 0.3;

#[promise(V8, test_all)]
fn compiled_regular_expressions_have_a_name() -> Result<()> {
    let test = "compiled_regular_expressions_have_a_name";
    if !requirement::ebpf(test)? || !requirement::program(test, "node")? {
        return Ok(());
    }
    let mut command = command(Path::new("node"), "", &[], &paths::e2e().join("workloads/node/regexp.js"));
    let node = Node(command.stdout(Stdio::null()).spawn().context("cannot start node")?);
    let received = profile(&[node.0.id()], PROFILED_SECONDS)?;
    let samples = warm_samples(test, &received, node.0.id())?;
    let names =
        |sample: &super::Sample| sample.frames.iter().map(|frame| frame.name.clone()).collect::<Vec<_>>();
    let scanning: Vec<_> =
        samples.iter().map(names).filter(|names| names.contains(&FUNCTION.to_owned())).collect();
    let matching =
        scanning.iter().filter(|names| names.ends_with(&[FUNCTION.to_owned(), NAME.to_owned()])).count();
    eprintln!("{matching} of {} samples match a regular expression", scanning.len());
    assert!(scanning.len() >= ENOUGH, "{}", scanning.len());
    assert!(matching as f64 >= MATCHING_SHARE * scanning.len() as f64, "{matching} of {}", scanning.len());
    Ok(())
}
