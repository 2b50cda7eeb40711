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
/// Debian's Linux 5.10 does not describe the variables of CPUs, without which there are no probes at tracepoints.
const WITHOUT_TRACEPOINTS: &str = "5.10";

/// What `record` found in a function, and what the program says.
pub(crate) struct Kinds {
    rows: Vec<Row>,
    has_tracepoints: bool,
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
        let log = |section| move || told.section(section).unwrap_or_default().to_owned();
        rows.push(probe(told).with_context(log("probe.log"))?);
        let has_tracepoints = !told.section("release")?.starts_with(WITHOUT_TRACEPOINTS);
        if has_tracepoints {
            rows.extend(tracepoint(told).with_context(log("tracepoint.log"))?);
        }
        Ok(Self { rows, has_tracepoints })
    }

    pub(crate) fn rows(&self) -> impl Iterator<Item = String> {
        self.rows.iter().map(|Row { sample_type, function, found, counted, .. }| {
            format!("  {sample_type:<11} {function:<15} {found:>12} of {counted:>12}")
        })
    }

    pub(crate) fn failures(&self) -> impl Iterator<Item = String> {
        // Three locks in three kinds, two functions with faults, one with a probe, and two that pass a tracepoint.
        let expected = if self.has_tracepoints { 14 } else { 12 };
        let is_short =
            (self.rows.len() != expected).then(|| format!("{} sums of other kinds", self.rows.len()));
        let is_wrong = |row: &&Row| row.counted <= 0.0 || (row.found - row.counted).abs() > row.most;
        let wrong = self.rows.iter().filter(is_wrong).map(|row| {
            let Row { sample_type, function, found, counted, .. } = row;
            format!("{sample_type} in {function}: {found}, but {counted} were counted")
        });
        wrong.chain(is_short)
    }
}

/// The numbers that `writes` says of a function: its calls, and the sum of their results.
fn counts_of_writes(told: &Told, section: &str, function: &str) -> Result<[f64; 2]> {
    let said = told.section(section)?;
    let line = said.lines().find_map(|line| line.strip_prefix(function)?.strip_prefix(' '));
    let numbers: Vec<f64> =
        line.unwrap_or_default().split(' ').filter_map(|number| number.parse().ok()).collect();
    numbers.try_into().map_err(|_| anyhow::anyhow!("{function} in {section}: {said}"))
}

/// The hits of a function.
fn probe(told: &Told) -> Result<Row> {
    let function = "write_small";
    let [counted, _] = counts_of_writes(told, "probe.said", function)?;
    let found = sum(told.section("probe.folded")?, function);
    Ok(Row {
        sample_type: "uprobe",
        function: function.to_owned(),
        found,
        counted,
        most: PROBES_MOST * counted,
    })
}

/// The sums of the results of system calls in two functions.
fn tracepoint(told: &Told) -> Result<[Row; 2]> {
    let row = |function: &str| -> Result<Row> {
        let [_, counted] = counts_of_writes(told, "tracepoint.said", function)?;
        let found = sum(told.section("tracepoint.folded")?, function);
        let (function, most) = (function.to_owned(), PROBES_MOST * counted);
        Ok(Row { sample_type: "tracepoint", function, found, counted, most })
    };
    Ok([row("write_small")?, row("write_large")?])
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
