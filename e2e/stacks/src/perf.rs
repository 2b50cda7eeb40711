//! A third opinion: `perf record --call-graph dwarf`, which copies each sample's stack and unwinds it afterwards.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Of each sample's stack: more than the programs use that it is asked about.
const STACK_BYTES: u32 = 16_384;

/// A perf that samples one process.
#[derive(Debug)]
pub struct Perf {
    process: Child,
    folder: tempfile::TempDir,
}

impl Perf {
    /// Starts to sample.
    ///
    /// # Errors
    /// When perf cannot be run.
    pub fn start(pid: u32, samples_per_second: u32) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let process = Command::new("perf")
            .args(["record", "--event", "cpu-clock:u", "--freq", &samples_per_second.to_string()])
            .args(["--call-graph", &format!("dwarf,{STACK_BYTES}"), "--pid", &pid.to_string(), "--output"])
            .arg(folder.path().join("perf.data"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot run perf")?;
        Ok(Self { process, folder })
    }

    /// Ends it, and returns how often each stack was seen.
    ///
    /// # Errors
    /// When it fails.
    pub fn stop(mut self) -> Result<Stacks> {
        // It ends by itself with its process.
        let _ = kill(Pid::from_raw(i32::try_from(self.process.id())?), Signal::SIGINT);
        self.process.wait()?;
        Stacks::by_perf(&self.folder.path().join("perf.data"))
    }
}

/// How often each stack was seen, by the names of its functions, outermost first.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Stacks(BTreeMap<Vec<String>, u64>);

impl Stacks {
    fn by_perf(data: &Path) -> Result<Self> {
        let mut script = Command::new("perf");
        script.args(["script", "--no-inline", "--fields", "ip,sym", "--input"]).arg(data);
        let output = script.stderr(Stdio::null()).output().context("cannot run perf script")?;
        ensure!(output.status.success(), "perf script ended with {}", output.status);
        let stacks = Self::parse(&String::from_utf8_lossy(&output.stdout));
        if stacks.0.is_empty() {
            bail!("perf has seen no stack");
        }
        Ok(stacks)
    }

    /// Reads stacks, leaf first, each frame on a line of its address and its function, with empty lines between.
    fn parse(script: &str) -> Self {
        let mut stacks = Self::default();
        for stack in script.split("\n\n") {
            let names = stack.lines().filter_map(|line| line.split_whitespace().nth(1));
            let mut names: Vec<String> = names.map(str::to_owned).collect();
            names.reverse();
            if !names.is_empty() {
                stacks.add(names);
            }
        }
        stacks
    }

    /// Adds a stack once more.
    pub fn add(&mut self, names: Vec<String>) {
        *self.0.entry(names).or_default() += 1;
    }

    /// How many there are in all.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.values().sum()
    }

    /// From each stack's first function of this name on, which it must have.
    #[must_use]
    pub fn below(&self, name: &str) -> Self {
        let mut below = Self::default();
        for (names, count) in &self.0 {
            let start = names.iter().position(|candidate| candidate == name).unwrap_or(names.len());
            *below.0.entry(names.get(start..).unwrap_or_default().to_vec()).or_default() += count;
        }
        below
    }

    /// The share of stacks that both have: 1 where each stack makes up the same share of either.
    #[must_use]
    pub fn overlap(&self, other: &Self) -> f64 {
        let share = |of: &Self, names: &Vec<String>| {
            of.0.get(names).copied().unwrap_or_default() as f64 / of.count().max(1) as f64
        };
        self.0.keys().map(|names| share(self, names).min(share(other, names))).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_are_read_outermost_first_and_overlap_by_their_shares() {
        let seen = Stacks::parse(
            "  143b burn\n  11ca main\n\n  143b burn\n  11ca main\n\n  11ca main\n  1 [unknown]\n\n",
        );
        assert_eq!(seen.count(), 3);
        let mut ours = Stacks::default();
        ours.add(vec!["main".to_owned(), "burn".to_owned()]);
        assert!((seen.overlap(&ours) - 2.0 / 3.0).abs() < 1e-9);
        assert!((seen.below("main").overlap(&seen.below("main")) - 1.0).abs() < 1e-9);
        assert_eq!(seen.below("burn").0.get(&vec!["burn".to_owned()]), Some(&2));
    }
}
