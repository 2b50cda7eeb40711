//! Half of the memory that the tables would take is enough.

use std::fs;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use sidewinder_e2e::conservation::Summary;
use sidewinder_e2e::{paths, requirement, sidewinder};

/// What `record --summary-json` says of the unwind tables.
#[derive(Debug, Deserialize)]
struct Tables {
    loaded_bytes: u64,
    evictions: u64,
    reloads: u64,
}

#[derive(Debug, Deserialize)]
struct Recording {
    #[serde(flatten)]
    summary: Summary,
    tables: Tables,
}

/// Outcomes that say nothing of tables: the task has no stack to walk, or is not looked at.
const NO_WALK: [&str; 6] = ["out_of_scope", "idle", "kernel_thread", "exec", "exiting", "missed"];

impl Recording {
    /// The share of complete stacks among those that were walked.
    fn complete_share(&self) -> f64 {
        let walked = self.summary.sum() - NO_WALK.iter().map(|name| self.summary.outcome(name)).sum::<u64>();
        self.summary.outcome("complete") as f64 / walked as f64
    }
}

/// Profiles a compiler, which goes back and forth between two of the largest libraries that there are.
fn record_compiler(budget_mib: u64) -> Result<Recording> {
    let folder = tempfile::tempdir()?;
    let summary = folder.path().join("summary.json");
    let source = paths::e2e().join("workloads/words.cc").display().to_string();
    let script =
        format!("for i in 1 2 3; do clang++ -O2 -c -o {}/words.o {source}; done", folder.path().display());
    let mut command: Command = sidewinder::command()?;
    command.args(["record", "-F", "499", "--table-budget-mib", &budget_mib.to_string(), "--summary-json"]);
    command.arg(&summary).arg("-o").arg(folder.path().join("out.otlp")).args(["--", "sh", "-c", &script]);
    let output = command.output()?;
    ensure!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    serde_json::from_str(&fs::read_to_string(&summary)?).context("the summary")
}

#[test]
fn with_half_of_the_working_set_tables_are_evicted_and_come_back() -> Result<()> {
    if !requirement::ebpf("half of the working set")?
        || !requirement::program("half of the working set", "clang++")?
    {
        return Ok(());
    }
    let roomy = record_compiler(256)?;
    eprintln!("all of it: {:.1}% complete, {:?}", 100.0 * roomy.complete_share(), roomy.tables);
    assert_eq!(roomy.tables.evictions, 0, "{roomy:?}");

    let half_mib = roomy.tables.loaded_bytes / 2 / (1 << 20);
    ensure!(half_mib >= 2, "the working set is too small to be halved: {roomy:?}");
    let tight = record_compiler(half_mib)?;
    eprintln!("{half_mib} MiB: {:.1}% complete, {:?}", 100.0 * tight.complete_share(), tight.tables);
    assert!(tight.tables.loaded_bytes <= half_mib << 20, "{tight:?}");
    assert!(tight.tables.evictions > 0 && tight.tables.reloads > 0, "{tight:?}");
    assert!(tight.complete_share() >= 0.9, "{tight:?}");
    Ok(())
}
