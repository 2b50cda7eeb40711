//! What perf has recorded is shown as perf itself prints it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::workload::LADDER_FP;
use sidewinder_e2e_support::{requirement, sidewinder};

/// Of some 500 samples that a second makes: on a busy machine programs get a part of it.
const ENOUGH: u64 = 30;

/// Records a second of a program with frame pointers.
fn record(options: &[&str], output: &Path) -> Result<()> {
    let program = LADDER_FP.command(&[1, 10])?;
    let mut perf = Command::new("perf");
    perf.args(["record", "-q", "-e", "cpu-clock,page-faults", "-F", "499", "-g"]).args(options);
    perf.arg("--").arg(program.get_program()).args(program.get_args());
    let to_pipe = options.ends_with(&["-"]);
    perf.stdout(if to_pipe { fs::File::create(output)?.into() } else { Stdio::null() });
    let ended = perf.stderr(Stdio::piped()).output().context("cannot run perf")?;
    ensure!(ended.status.success(), "perf: {}", String::from_utf8_lossy(&ended.stderr));
    Ok(())
}

/// The samples of each stack of an event, as `view` writes them.
fn folded(file: &Path, event: &str) -> Result<BTreeMap<String, u64>> {
    let out = file.with_extension("folded");
    let (file, to) = (file.display().to_string(), out.display().to_string());
    let ended = sidewinder::run(&["view", "--sample-type", event, "-o", &to, &file])?;
    ensure!(ended.status.success(), "{file}: {}", ended.log);
    let text = fs::read_to_string(out)?;
    let parts = text.lines().map(|line| {
        let (stack, count) = line.rsplit_once(' ').context("no count")?;
        Ok((stack.to_owned(), count.parse()?))
    });
    parts.collect()
}

/// The samples in the code that is known to run, and all.
fn climbing(stacks: &BTreeMap<String, u64>) -> [u64; 2] {
    let known = stacks.iter().filter(|(stack, _)| stack.contains(";main;climb;"));
    [known.map(|(_, count)| count).sum(), stacks.values().sum()]
}

#[promise(Formats, test_all)]
fn files_of_perf_and_what_it_prints_of_them_say_the_same() -> Result<()> {
    let test = "files_of_perf_and_what_it_prints_of_them_say_the_same";
    if !requirement::program(test, "perf")? {
        return Ok(());
    }
    let kept = tempfile::tempdir()?;
    let path = |name: &str| kept.path().join(name);
    let data = path("perf.data");
    record(&["-o", &data.display().to_string()], &data)?;
    let mut script = Command::new("perf");
    script.args(["script", "-F", "+pid", "-i"]).arg(&data).stderr(Stdio::null());
    fs::write(path("perf.txt"), script.output()?.stdout)?;

    for event in ["cpu-clock", "page-faults"] {
        let [ours, perfs] = [folded(&data, event)?, folded(&path("perf.txt"), event)?];
        let [counted, printed] = [&ours, &perfs].map(|stacks| stacks.values().sum::<u64>());
        assert_eq!(counted, printed, "{event}");
    }
    let [ours, perfs] = [folded(&data, "cpu-clock")?, folded(&path("perf.txt"), "cpu-clock")?];
    let [known, all] = climbing(&ours);
    ensure!(all > ENOUGH && known * 100 >= all * 90, "{known} of {all}: {ours:?}");
    assert_eq!(climbing(&perfs), [known, all], "{perfs:?}");

    // Compressed, and to a pipe. Neither has build IDs: the files are known by their inodes.
    let (compressed, piped) = (path("compressed.data"), path("piped.data"));
    record(&["-z", "-o", &compressed.display().to_string()], &compressed)?;
    record(&["-o", "-"], &piped)?;
    for file in [compressed, piped] {
        let [known, all] = climbing(&folded(&file, "cpu-clock")?);
        ensure!(all > ENOUGH && known * 100 >= all * 90, "{known} of {all} in {}", file.display());
    }
    Ok(())
}
