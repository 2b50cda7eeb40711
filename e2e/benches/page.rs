//! What a large page costs: a profile of 100,000 stacks written as HTML, and opened in Chromium.
//!
//! Writing is `sidewinder view -o`, which reads OTLP first; its memory is the most that was resident. Opening is until the flame
//! graph is drawn; its CPU time and its memory are those of the process that shows the page (`e2e/page/opening.mjs`).
#![forbid(unsafe_code)]

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use nix::sys::resource::{Usage, UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use serde_json::Value;
use sidewinder_e2e_support::{bench, many_stacks, paths, requirement, sidewinder};

const TURNS: u32 = 3;

fn main() -> Result<()> {
    const NAME: &str = "page";
    let folder_of_judges = paths::e2e().join("page");
    if bench::is_to_start_only()
        || !requirement::packages(NAME, &folder_of_judges)?
        || !requirement::program(NAME, "chromium")?
    {
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let [input, page] = ["stacks.otlp", "stacks.html"].map(|name| folder.path().join(name));
    fs::write(&input, many_stacks::report()?.as_bytes())?;
    println!("{} stacks, {} events", many_stacks::STACKS, many_stacks::EVENTS);
    println!("{:<8} {:>7} {:>7} {:>9} {:>9} {:>9}", "", "s", "CPU s", "peak MiB", "held MiB", "file MiB");
    // All of them before the browser, which uses more memory than they do.
    for _ in 0..TURNS {
        write_page(&input, &page)?;
    }
    open_page(&folder_of_judges, &page)
}

fn write_page(input: &Path, page: &Path) -> Result<()> {
    let mut command = sidewinder::command()?;
    command.args(["view", "-o"]).args([page, input]);
    let (began, before) = (Instant::now(), getrusage(UsageWho::RUSAGE_CHILDREN)?);
    let output = command.output()?;
    let (took, after) = (began.elapsed(), getrusage(UsageWho::RUSAGE_CHILDREN)?);
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    println!(
        "{:<8} {:>7.2} {:>7.2} {:>9.1} {:>9} {:>9.1}",
        "written",
        took.as_secs_f64(),
        cpu_time(&after).saturating_sub(cpu_time(&before)).as_secs_f64(),
        after.max_rss() as f64 / 1024.0,
        "",
        fs::metadata(page)?.len() as f64 / f64::from(1 << 20),
    );
    Ok(())
}

fn cpu_time(usage: &Usage) -> Duration {
    let microseconds = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Duration::from_micros(microseconds.unsigned_abs())
}

fn open_page(folder_of_judges: &Path, page: &Path) -> Result<()> {
    let mut command = Command::new("node");
    command.arg("opening.mjs").arg(page).arg(TURNS.to_string()).current_dir(folder_of_judges);
    let output = command.output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for line in String::from_utf8(output.stdout)?.lines() {
        let turn: Value = serde_json::from_str(line)?;
        let figure = |name: &str| turn[name].as_f64().with_context(|| format!("no {name} in {line}"));
        println!(
            "{:<8} {:>7.2} {:>7.2} {:>9.1} {:>9.1}",
            "opened",
            figure("seconds")?,
            figure("cpuSeconds")?,
            figure("peakMib")?,
            figure("heldMib")?,
        );
    }
    Ok(())
}
