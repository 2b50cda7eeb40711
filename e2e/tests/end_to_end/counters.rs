//! Page faults and other counters: their sums by stack are those that the kernel counts by itself, and a counter that the
//! machine does not have is refused by its name.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::received::Received;
use sidewinder_e2e_support::recording::{Recording, record};
use sidewinder_e2e_support::session::{Daemon, Settings};
use sidewinder_e2e_support::workload::FAULTS;
use sidewinder_e2e_support::{requirement, sidewinder, user};

/// The functions of the workload, of which the second has three times as many faults as the first.
const FUNCTIONS: [&str; 2] = ["grow_small", "grow_large"];
/// After each 100 faults, so that the receiver of a debug build keeps up with an event for each.
const PAUSE_US: u32 = 2_000;
/// The largest difference, as a fraction.
const DIFFERENCE_MAX: f64 = 0.001;

/// Minor and major faults.
type Counted = [i64; 2];

/// How many faults the workload counted in each of its functions.
fn counted(printed: &str) -> Result<BTreeMap<&'static str, Counted>> {
    let of_function = |name: &'static str| {
        let line = printed.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        let (minor, major) =
            line.and_then(|line| line.split_once(' ')).with_context(|| printed.to_owned())?;
        Ok((name, [minor.parse()?, major.parse()?]))
    };
    FUNCTIONS.into_iter().map(of_function).collect()
}

/// The sum of the values of a kind of profile, over the stacks with this function in them.
fn sum(received: &Received, sample_type: &str, function: &str) -> i64 {
    let of_kind = received.events().filter(|event| &*event.profile.sample_type == sample_type);
    let of_function = of_kind.filter(|event| {
        event.sample.stack.iter().any(|frame| frame.function().is_some_and(|name| name == function))
    });
    of_function.map(|event| event.value).sum()
}

/// `most`: as a fraction.
fn ensure_close(what: &str, found: i64, expected: i64, most: f64) -> Result<()> {
    let difference = (found - expected).abs() as f64 / expected as f64;
    eprintln!("{what}: {found} of {expected} ({:+.3}%)", 100.0 * (found - expected) as f64 / expected as f64);
    ensure!(difference <= most, "{what}: {found} events, but {expected} were counted");
    Ok(())
}

/// Four standard deviations of a sum that consists of such events, as a fraction.
fn sampling_error(total: i64, events: f64) -> f64 {
    assert!(total > 0 && events > 0.0);
    4.0 / events.sqrt()
}

fn record_faults(events: &str, arguments: &[u32]) -> Result<(Recording, BTreeMap<&'static str, Counted>)> {
    let recording = record(&["-e", events], &FAULTS.command(arguments)?)?;
    eprintln!("{}", recording.log.trim_end());
    let counted = counted(&recording.log)?;
    Ok((recording, counted))
}

#[promise(PageFaults)]
fn with_a_period_of_1_faults_are_those_of_getrusage_by_stack() -> Result<()> {
    if !requirement::ebpf("page faults")? {
        return Ok(());
    }
    let (Recording { received, .. }, counted) =
        record_faults("page-faults:1,minor-faults:1", &[2, 2_000, PAUSE_US])?;
    for (function, [minor, major]) in counted {
        ensure_close(function, sum(&received, "faults", function), minor + major, DIFFERENCE_MAX)?;
        ensure_close(function, sum(&received, "minor_faults", function), minor, DIFFERENCE_MAX)?;
    }
    Ok(())
}

#[promise(PageFaults)]
fn with_a_longer_period_faults_are_right_within_the_error_of_sampling_beside_cpu_time() -> Result<()> {
    const PERIOD: u32 = 64;
    if !requirement::ebpf("page faults beside CPU time")? {
        return Ok(());
    }
    let (Recording { received, .. }, counted) =
        record_faults("cpu-clock@997,page-faults:64,task-clock@997", &[6, 8_000, 0])?;
    for (function, [minor, major]) in counted {
        let total = minor + major;
        let most = sampling_error(total, total as f64 / f64::from(PERIOD));
        ensure_close(function, sum(&received, "faults", function), total, most)?;
        for sample_type in ["samples", "task_clock"] {
            ensure!(sum(&received, sample_type, function) > 0, "no {sample_type} in {function}");
        }
    }
    let of_kind = |sample_type: &str| received.profiles.iter().position(|of| &*of.sample_type == sample_type);
    ensure!(of_kind("samples") < of_kind("faults"), "CPU time comes first");
    let faults = of_kind("faults").and_then(|at| received.profiles.get(at)).context("no faults")?;
    ensure!(faults.period == i64::from(PERIOD), "a period of {}", faults.period);
    let values = received.events().filter(|event| &*event.profile.sample_type == "faults");
    // A sample is the sum of its events.
    ensure!(values.map(|event| event.value).all(|value| value > 0 && value % i64::from(PERIOD) == 0));
    Ok(())
}

/// The kernel adapts the period while it runs, to the faults of all tasks on a CPU. It guarantees that each event has the period
/// that led to it: so the values of all tasks add up to their faults, but for a period that has not ended, and which task has
/// the event is chance. On a busy machine periods are as long as the others' faults make them; a recording has had half
/// of the faults there. How far recordings scatter is therefore not known from the number of their events, but from several.
#[promise(PageFaults, test_all)]
fn with_a_frequency_values_add_up_to_the_faults_too() -> Result<()> {
    const RECORDINGS: usize = 5;
    /// Beside the scatter: half of a usual period is left at the end.
    const DIFFERENCE_MAX: f64 = 0.02;
    if !requirement::ebpf("page faults by frequency")? {
        return Ok(());
    }
    let mut shares = Vec::new();
    for _ in 0..RECORDINGS {
        let (Recording { received, said, .. }, counted) =
            record_faults("page-faults@997", &[8, 2_000, PAUSE_US])?;
        let total: i64 = counted.values().flatten().sum();
        let found: i64 = FUNCTIONS.iter().map(|function| sum(&received, "faults", function)).sum();
        let events = said.counts.outcomes_of_other_kinds["faults"]["complete"];
        eprintln!("{found} of {total} faults, {events} events");
        ensure!(events > 30, "{events} events");
        shares.push(found as f64 / total as f64);
    }
    let mean = shares.iter().sum::<f64>() / RECORDINGS as f64;
    let squares: f64 = shares.iter().map(|share| (share - mean).powi(2)).sum();
    let standard_error = (squares / (RECORDINGS * (RECORDINGS - 1)) as f64).sqrt();
    eprintln!("{mean:.3} of the faults, standard error {standard_error:.3}");
    ensure!((mean - 1.0).abs() < DIFFERENCE_MAX + 4.0 * standard_error, "{shares:?} of the faults");
    ensure!(standard_error < 0.25, "too few events for a judgement: {shares:?} of the faults");
    Ok(())
}

/// Whether this machine has a counter, according to `check`.
fn has_counter(name: &str) -> Result<bool> {
    let document: Value = serde_json::from_str(&sidewinder::run(&["check", "--json"])?.log)?;
    let counters = document["counters"].as_array().context("no counters")?;
    let row = counters.iter().find(|row| row["name"] == name).with_context(|| format!("no {name}"))?;
    ensure!(row["why"].is_null() == (row["state"] == "ok"), "{row}");
    Ok(row["state"] == "ok")
}

#[promise(PageFaults, test_all)]
fn a_counter_that_the_machine_does_not_have_is_refused_by_its_name() -> Result<()> {
    if !requirement::ebpf("counters of the CPU")? {
        return Ok(());
    }
    ensure!(has_counter("page-faults")?);
    let folder = tempfile::tempdir()?;
    let output = folder.path().join("out.folded").display().to_string();
    let ended = sidewinder::run(&["record", "-e", "cycles", "-a", "-d", "1s", "-o", &output])?;
    if has_counter("cpu-cycles")? {
        ensure!(ended.status.success(), "{}", ended.log);
        return Ok(());
    }
    ensure!(ended.status.code() == Some(3), "{}: {}", ended.status, ended.log);
    for part in ["this machine does not have the counter cpu-cycles", "next: `sidewinder check` lists"] {
        ensure!(ended.log.contains(part), "{}", ended.log);
    }
    ensure!(!Path::new(&output).exists());
    Ok(())
}

/// Beside it everything else is sampled.
#[promise(PageFaults, test_all)]
fn a_service_that_ignores_errors_goes_without_a_counter_that_the_machine_does_not_have() -> Result<()> {
    const TEST: &str = "a service without a counter";
    if !requirement::ebpf(TEST)? || has_counter("cpu-cycles")? {
        return Ok(());
    }
    // A shell, which becomes the workload when the profiler samples.
    let program = FAULTS.command(&[1, 2_000, PAUSE_US])?;
    let mut shell = Command::new("sh");
    shell.args(["-c", "read line; exec \"$@\"", "sh"]).arg(program.get_program()).args(program.get_args());
    let mut shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let events = "events: [{ name: page-faults, period: 1 }, { name: cpu-cycles }]".to_owned();
    let settings = Settings { more: vec![events], ..Settings::of_process(shell.id()) };
    let folder = tempfile::tempdir()?;
    let (path, output) = (folder.path().join("sidewinder.yaml"), folder.path().join("out.otlp"));
    let to_file = format!("exporters:\n  file: {{ path: {} }}\n", output.display());
    let yaml =
        settings.yaml("127.0.0.1:9").replace("[otlp_grpc]", "[file]").replace("exporters:\n", &to_file);
    fs::write(&path, &yaml)?;
    let refused = sidewinder::run(&["--config", &path.display().to_string()])?;
    ensure!(refused.status.code() == Some(3), "{}: {}", refused.status, refused.log);
    ensure!(refused.log.contains("does not have the counter cpu-cycles"), "{}", refused.log);

    fs::write(&path, yaml.replace("error_mode: propagate", "error_mode: ignore"))?;
    let daemon = Daemon::start_from(&path)?;
    shell.stdin.take().context("no standard input")?.write_all(b"\n")?;
    let printed = String::from_utf8(shell.wait_with_output()?.stdout)?;
    ensure!(daemon.is_degraded("cpu-cycles")?, "{}", daemon.status()?);
    let log = daemon.stop()?.log;
    ensure!(log.contains("degraded: this machine does not have the counter cpu-cycles"), "{log}");
    let received = Received::from_collector_file(&fs::read(&output)?)?;
    for (function, [minor, major]) in counted(&printed)? {
        // The rings of a service are small, and what finds no room in them is counted.
        let found = sum(&received, "faults", function);
        ensure!((1..=minor + major).contains(&found), "{found} faults in {function}: {log}");
    }
    Ok(())
}

#[promise(PageFaults, test_all)]
fn a_user_with_the_capabilities_of_a_sidecar_records_the_faults_of_another_user() -> Result<()> {
    if !user::can_read_others("page faults of other users")? {
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    fs::set_permissions(folder.path(), Permissions::from_mode(0o777))?;
    let output = folder.path().join("out.otlp");
    let program = FAULTS.command(&[1, 2_000, PAUSE_US])?;
    let copied = user::copied_to(folder.path(), Path::new(program.get_program()))?;
    let mut command = copied;
    command.args(program.get_args());
    let recorded = user::record(&command, None, &["-e", "page-faults:1"], &output)?;
    let received = Received::from_otlp_file(&output)?;
    for (function, [minor, major]) in counted(&recorded.printed)? {
        ensure_close(function, sum(&received, "faults", function), minor + major, DIFFERENCE_MAX)?;
    }
    Ok(())
}
