//! Off-CPU time, page faults, waits for locks and probes in a guest, compared with what its programs count themselves.

use anyhow::{Context as _, Result};
use sidewinder_e2e_support::workload::{Convoy, convoys_in};

use crate::guest::Told;

/// The largest difference of the waits and of their time, as a fraction of those of the busiest lock. The emulated machine is
/// slow: what a program does besides waiting is a part of the time that it counts.
const LOCKS_MOST: f64 = 0.1;
/// The same of page faults, of which each 16th has an event.
const FAULTS_MOST: f64 = 0.15;
/// The same of hits of probes, and of the values of these. Those that no sample counts for are few.
const PROBES_MOST: f64 = 0.02;
/// The profiles of probes, each with its file, and which of the numbers of `writes` it has.
const PROBES: [(&str, &str, usize); 2] =
    [("uprobe", "probes.folded", 0), ("tracepoint", "probes.tracepoint_raw_syscalls_sys_exit.folded", 1)];

/// What `record` found in a function, and what the program says.
pub(crate) struct Kinds {
    rows: Vec<Row>,
}

struct Row {
    sample_type: &'static str,
    function: String,
    found: f64,
    counted: f64,
    /// The largest difference between the two.
    most: f64,
}

/// The sum of the values of a folded profile over the stacks with a function in them.
fn sum(folded: &str, function: &str) -> f64 {
    let rows = folded.lines().filter_map(|line| line.rsplit_once(' '));
    let of_function = rows.filter(|(stack, _)| stack.split(';').any(|name| name == function));
    of_function.filter_map(|(_, value)| value.parse::<f64>().ok()).sum()
}

impl Kinds {
    pub(crate) fn read(told: &Told) -> Result<Self> {
        let convoys = convoys_in(told.section("convoys.said")?)
            .with_context(|| told.section("convoys.log").unwrap_or_default().to_owned())?;
        let largest = |of: fn(&Convoy) -> i64| LOCKS_MOST * convoys.iter().map(of).max().unwrap_or(0) as f64;
        let (most_waits, most_ns) = (largest(|convoy| convoy.waits), largest(|convoy| convoy.waited_ns));
        let mut rows = Vec::new();
        for convoy in &convoys {
            let (waits, waited_ns) = (convoy.waits as f64, convoy.waited_ns as f64);
            // The first kind has the name of the file.
            for (sample_type, file, counted, most) in [
                ("contentions", "convoys.contentions.folded", waits, most_waits),
                ("delay", "convoys.delay.folded", waited_ns, most_ns),
                ("off_cpu", "convoys.folded", waited_ns, most_ns),
            ] {
                let folded = told.section(file)?;
                let found = sum(folded, &convoy.function);
                rows.push(Row { sample_type, function: convoy.function.clone(), found, counted, most });
            }
        }
        let said = told.section("faults.said")?;
        for line in said.lines().filter(|line| line.starts_with("grow_")) {
            let (function, numbers) = line.split_once(' ').context("no function")?;
            let counted: f64 = numbers.split(' ').filter_map(|number| number.parse::<f64>().ok()).sum();
            let found = sum(told.section("faults.faults.folded")?, function);
            let most = FAULTS_MOST * counted;
            rows.push(Row { sample_type: "faults", function: function.to_owned(), found, counted, most });
        }
        rows.extend(probes(told)?);
        Ok(Self { rows })
    }

    pub(crate) fn rows(&self) -> impl Iterator<Item = String> {
        self.rows.iter().map(|Row { sample_type, function, found, counted, .. }| {
            format!("  {sample_type:<11} {function:<15} {found:>12} of {counted:>12}")
        })
    }

    pub(crate) fn failures(&self) -> impl Iterator<Item = String> {
        // Three locks in three kinds, two functions with faults, and a function of each probe with one more of the second.
        let is_short = (self.rows.len() != 14).then(|| format!("{} sums of other kinds", self.rows.len()));
        let is_wrong = |row: &&Row| row.counted <= 0.0 || (row.found - row.counted).abs() > row.most;
        let wrong = self.rows.iter().filter(is_wrong).map(|row| {
            let Row { sample_type, function, found, counted, .. } = row;
            format!("{sample_type} in {function}: {found}, but {counted} were counted")
        });
        wrong.chain(is_short)
    }
}

/// The hits of a function, and the sums of the results of system calls in two.
fn probes(told: &Told) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for line in told.section("probes.said")?.lines().filter(|line| line.starts_with("write_")) {
        let (function, numbers) = line.split_once(' ').context("no function")?;
        let numbers: Vec<f64> = numbers.split(' ').filter_map(|number| number.parse().ok()).collect();
        for (sample_type, file, number) in PROBES {
            // The other function has no probe of its own.
            if (sample_type, function) == ("uprobe", "write_large") {
                continue;
            }
            let log = || told.section("probes.log").unwrap_or_default().to_owned();
            let found = sum(told.section(file).with_context(log)?, function);
            let counted = numbers.get(number).copied().with_context(log)?;
            let most = PROBES_MOST * counted;
            rows.push(Row { sample_type, function: function.to_owned(), found, counted, most });
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_summed_over_the_stacks_with_a_function() {
        assert_eq!(
            sum("p;main;grow_small 32\np;main;grow_large;f 48\np;grow_larger 5\n", "grow_large"),
            48.0
        );
    }
}
