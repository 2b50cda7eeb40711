//! Probes: hits and values by caller are those that the programs count by themselves, and what can't be probed is refused with
//! its reason.

mod tracepoints;

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
use sidewinder_e2e_support::sidewinder::Running;
use sidewinder_e2e_support::workload::{Program, SALES, SALES_GO, SALES_RUST, TICKS};
use sidewinder_e2e_support::{python, requirement, sidewinder, user};

/// The callers of the workloads, as they print them.
const CALLERS: [&str; 2] = ["sell_small", "sell_large"];
/// Calls of a workload, with a pause after each 50 so that each hit is sampled.
const CALLS: u32 = 2_000;
const PAUSE_US: u32 = 20_000;
/// A service's ring, of 32 KiB, has room for the hits between two pauses, not more: on a busy machine, the thread that reads it waits
/// for a CPU.
const PAUSE_FOR_SERVICE_US: u32 = 100_000;

/// Calls, and the sum of their argument.
type Counted = [i64; 2];

/// The numbers that a workload prints behind a name.
fn numbers(printed: &str, name: &str) -> Result<Vec<i64>> {
    let line = printed.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let line = line.with_context(|| format!("no {name} in {printed}"))?;
    Ok(line.split(' ').map(str::parse).collect::<Result<_, _>>()?)
}

/// What the workload counted for each of its callers.
fn counted(printed: &str) -> Result<BTreeMap<&'static str, Counted>> {
    let of_caller = |name: &'static str| match *numbers(printed, name)? {
        [calls, sum] => Ok((name, [calls, sum])),
        ref other => anyhow::bail!("{name}: {other:?}"),
    };
    CALLERS.into_iter().map(of_caller).collect()
}

/// The sum of the values of a profile over the stacks in which one function directly calls another; `callee`: none, if the
/// caller is the innermost function.
fn sum(received: &Received, sample_type: &str, caller: &str, callee: Option<&str>) -> i64 {
    let is_wanted = |names: &[&str]| match callee {
        Some(callee) => {
            names.windows(2).take(1).any(|pair| is_named(pair[0], callee) && is_named(pair[1], caller))
        }
        None => names.first().is_some_and(|name| is_named(name, caller)),
    };
    let of_kind = received.events().filter(|event| &*event.profile.sample_type == sample_type);
    let of_stack = of_kind.filter(|event| {
        let names: Vec<&str> = event.sample.stack.iter().filter_map(|frame| frame.function()).collect();
        is_wanted(&names)
    });
    of_stack.map(|event| event.value).sum()
}

/// Whether a function has this name, in any language's spelling.
fn is_named(function: &str, name: &str) -> bool {
    let plain = |text: &str| text.replace('_', "").to_lowercase();
    let last = function.split('(').next().unwrap_or(function).rsplit([':', '.']).next().unwrap_or(function);
    plain(last) == plain(name)
}

fn record_sales(program: &Program, specs: &[&str]) -> Result<(Recording, BTreeMap<&'static str, Counted>)> {
    let command = program.command(&[CALLS, PAUSE_US])?;
    let path = command.get_program().to_string_lossy().into_owned();
    let specs: Vec<String> = specs.iter().map(|spec| spec.replace("PATH", &path)).collect();
    let options: Vec<&str> = specs.iter().flat_map(|spec| ["--probe", spec]).collect();
    let recording = record(&options, &command)?;
    eprintln!("{}", recording.log.trim_end());
    let counted = counted(&recording.log)?;
    Ok((recording, counted))
}

#[promise(Probes)]
fn hits_and_sums_of_arguments_are_those_that_programs_count_in_three_languages() -> Result<()> {
    if !requirement::ebpf("probes of functions")? {
        return Ok(());
    }
    for (program, function, argument) in [
        (SALES, "shop::Cart::add", "arg1:s64"),
        (SALES_RUST, "sales::cart::add", "arg1"),
        (SALES_GO, "main.add", "%rax"),
    ] {
        if program == SALES_GO && !requirement::program("probes of Go functions", "go")? {
            continue;
        }
        let plain = format!("uprobe:PATH:{function}");
        let value = format!("uprobe:PATH:{function},value={argument},unit=bytes,max_overhead=0.5");
        let (Recording { received, said, .. }, counted) = record_sales(&program, &[&plain, &value])?;
        let name = format!("uprobe_{}", function.replace("::", "_").replace('.', "_"));
        for (caller, [calls, total]) in counted {
            let hits = sum(&received, &name, caller, Some("add"));
            let value = sum(&received, &format!("{name}_2"), caller, Some("add"));
            ensure!(hits == calls, "{function} by {caller}: {hits} hits of {calls}");
            ensure!(value == total, "{function} by {caller}: {value} of {total}");
        }
        let said = said.probes.get(&name).context("the probe is not in the summary")?;
        ensure!((said.hits, said.uncounted) == (CALLS.into(), 0), "{said:?}");
        let kind = received.profiles.iter().find(|profile| *profile.sample_type == format!("{name}_2"));
        ensure!(kind.is_some_and(|profile| &*profile.sample_unit == "bytes"), "the unit of values");
    }
    Ok(())
}

#[promise(Probes)]
fn returns_have_the_stack_of_the_caller_and_the_value_that_is_returned() -> Result<()> {
    if !requirement::ebpf("probes of returns")? {
        return Ok(());
    }
    let spec = "uretprobe:PATH:shop::Cart::add,value=retval:s64,max_overhead=0.5";
    let (Recording { received, .. }, counted) = record_sales(&SALES, &[spec])?;
    for (caller, [_, total]) in counted {
        let returned = sum(&received, "uretprobe_shop_Cart_add", caller, None);
        ensure!(returned == 2 * total, "{caller}: {returned} of {}", 2 * total);
    }
    Ok(())
}

#[promise(Probes)]
fn trace_points_are_hit_while_their_semaphore_is_raised_and_have_their_arguments() -> Result<()> {
    if !requirement::ebpf("static trace points")? {
        return Ok(());
    }
    let specs = ["usdt:PATH:shop:sale,max_overhead=0.5", "usdt:PATH:shop:sale,value=arg0,max_overhead=0.5"];
    let (Recording { received, log, .. }, counted) = record_sales(&SALES, &specs)?;
    ensure!(numbers(&log, "traced")? == [i64::from(CALLS)], "{log}");
    for (caller, [calls, total]) in counted {
        ensure!(sum(&received, "usdt_shop_sale", caller, Some("add")) == calls, "{caller}: hits");
        ensure!(sum(&received, "usdt_shop_sale_2", caller, Some("add")) == total, "{caller}: sum");
    }
    // Without the probe nobody raises it.
    let output = SALES.command(&[10, 0])?.output()?;
    ensure!(numbers(&String::from_utf8(output.stdout)?, "traced")? == [0]);
    Ok(())
}

/// CPython's trace points, if it has any: Debian's has.
#[promise(Probes, test_all)]
fn trace_points_of_an_interpreter_are_hit() -> Result<()> {
    if !requirement::ebpf("trace points of Python")? || !requirement::program("trace points", python::SYSTEM)?
    {
        return Ok(());
    }
    let notes = fs::read(python::SYSTEM)?;
    if !notes.windows(8).any(|bytes| bytes == b"gc__star") {
        return requirement::absent("trace points of Python", "this interpreter has none");
    }
    let hits_with = |collections: u64| -> Result<u64> {
        let mut script = Command::new(python::SYSTEM);
        let code = format!(
            "import gc, time\ngc.disable()\ntime.sleep(0.5)\nfor i in range({collections}): gc.collect(0)"
        );
        script.args(["-S", "-c", &code]);
        let spec = format!("usdt:{}:python:gc__start", python::SYSTEM);
        let Recording { said, log, .. } = record(&["--probe", &spec], &script)?;
        Ok(said.probes.get("usdt_python_gc_start").with_context(|| log.clone())?.hits)
    };
    // The interpreter collects at its start and at its end, too.
    let (without, with) = (hits_with(0)?, hits_with(40)?);
    ensure!(with == without + 40, "{without} hits, and {with} with 40 more collections");
    Ok(())
}

#[promise(Probes)]
fn frequent_hits_are_thinned_to_the_overhead_and_add_up() -> Result<()> {
    if !requirement::ebpf("thinned probes")? {
        return Ok(());
    }
    let command = TICKS.command(&[3])?;
    let spec = format!("uprobe:{}:tick", command.get_program().to_string_lossy());
    let Recording { received, said, log } = record(&["--probe", &spec], &command)?;
    let (often, rarely) = (numbers(&log, "often")?[0], numbers(&log, "rarely")?[0]);
    let duration_ns = numbers(&log, "ns")?[0];
    let said = said.probes.get("uprobe_tick").context("no probe in the summary")?;
    let all = often + rarely;
    eprintln!("{all} hits in {:.1} s: {said:?}\n{log}", duration_ns as f64 / 1e9);
    ensure!(i64::try_from(said.hits)? == all, "{said:?} of {all}");
    let sampled: i64 =
        ["often", "rarely"].map(|caller| sum(&received, "uprobe_tick", caller, Some("tick"))).iter().sum();
    ensure!(sampled + i64::try_from(said.uncounted)? == all, "{sampled} and {} of {all}", said.uncounted);
    ensure!(said.uncounted as f64 <= 0.01 * all as f64, "{said:?}");
    ensure!(said.samples < said.hits / 4, "nothing was thinned: {said:?}");
    // A burst before the period has grown, and the granularity of windows.
    let share = said.cost_ns as f64 / duration_ns as f64;
    ensure!(share < 0.05, "samples took {:.1}% of a CPU", 100.0 * share);
    let share = sum(&received, "uprobe_tick", "rarely", Some("tick")) as f64 / all as f64;
    let error = 5.0 * (0.25 * 0.75 / said.samples as f64).sqrt() * 2.0;
    ensure!((share - 0.25).abs() < error, "{share:.3} of hits are from a quarter of the calls");
    ensure!(log.contains("hits were sampled, and stand for the others"), "{log}");
    Ok(())
}

#[promise(Probes)]
fn what_cant_be_probed_is_refused_with_its_reason_and_a_next_step() -> Result<()> {
    if !requirement::ebpf("refused probes")? {
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let output = folder.path().join("out.folded").display().to_string();
    let program = SALES.command(&[1, 0])?.get_program().to_string_lossy().into_owned();
    for (spec, reason) in [
        ("uprobe:PATH:shop::Cart::remove", "it has no function shop::Cart::remove"),
        ("uprobe:PATH:shop::Cart::add+1", "no instruction begins at offset 1"),
        ("usdt:PATH:shop:sold", "it has no trace point shop:sold, but shop:sale"),
        ("uprobe:PATH.missing:add", "can't be opened"),
        ("uprobe:/dev/null:add", "not a regular file"),
        ("usdt:PATH:shop:sale,value=arg2", "its value arg2 is not in a register"),
    ] {
        let spec = spec.replace("PATH", &program);
        let ended = sidewinder::run(&["record", "--probe", &spec, "-o", &output, "--", &program, "1", "0"])?;
        ensure!(ended.status.code() == Some(125), "{spec}: {}: {}", ended.status, ended.log);
        ensure!(ended.log.contains(reason) && ended.log.contains("next: "), "{spec}: {}", ended.log);
    }
    for (spec, reason) in [
        ("kprobe:vfs_read", "kernel function probes (kprobe) are not supported"),
        ("uprobe:sales:add", "is not absolute"),
        ("uprobe:/bin/true", "is not a probe; use uprobe:PATH:FUNCTION"),
    ] {
        let ended = sidewinder::run(&["record", "--probe", spec, "-o", &output, "-a", "-d", "1s"])?;
        ensure!(ended.status.code() == Some(2), "{spec}: {}: {}", ended.status, ended.log);
        ensure!(ended.log.contains(reason), "{spec}: {}", ended.log);
    }
    let go = SALES_GO.command(&[1, 0]);
    if let (Ok(go), true) = (go, requirement::program("returns of Go", "go")?) {
        let go = go.get_program().to_string_lossy().into_owned();
        let spec = format!("uretprobe:{go}:main.add");
        let ended = sidewinder::run(&["record", "--probe", &spec, "-o", &output, "--", &go, "1", "0"])?;
        ensure!(ended.log.contains("it is a Go program, which moves its stacks"), "{}", ended.log);
    }
    ensure!(!Path::new(&output).exists());
    Ok(())
}

/// In each notation of OpenTelemetry's profiler, and beside a probe that has no place.
#[promise(Probes, test_all)]
fn a_service_counts_the_hits_of_its_configured_probes() -> Result<()> {
    if !requirement::ebpf("configured probes")? {
        return Ok(());
    }
    let program = SALES.command(&[CALLS, PAUSE_FOR_SERVICE_US])?;
    let path = program.get_program().to_string_lossy().into_owned();
    let mut shell = Command::new("sh");
    shell.args(["-c", "read line; exec \"$@\"", "sh"]).arg(program.get_program()).args(program.get_args());
    let mut shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let probes = format!(
        "probes: [{{ type: kprobe, mode: uprobe, target: {path}, symbol: 'shop::Cart::add', value: arg1, unit: bytes, \
         max_overhead: 0.5 }}, {{ type: uprobe, target: {path}, symbol: nothing }}]"
    );
    let links = format!("probe_links: ['usdt:{path}:shop:sale,max_overhead=0.5']");
    let more = vec![probes, links, "load_probe: true".to_owned(), "error_mode: ignore".to_owned()];
    let settings = Settings { more, ..Settings::of_process(shell.id()) };
    let folder = tempfile::tempdir()?;
    let (config, output) = (folder.path().join("sidewinder.yaml"), folder.path().join("out.otlp"));
    let to_file = format!("exporters:\n  file: {{ path: {} }}\n", output.display());
    let yaml = settings.yaml("127.0.0.1:9").replace("    error_mode: propagate\n", "");
    fs::write(&config, yaml.replace("[otlp_grpc]", "[file]").replace("exporters:\n", &to_file))?;
    let daemon = Daemon::start_from(&config)?;
    shell.stdin.take().context("no standard input")?.write_all(b"\n")?;
    let printed = String::from_utf8(shell.wait_with_output()?.stdout)?;
    // Of both probes.
    daemon.wait_for_events(2 * u64::from(CALLS))?;
    ensure!(daemon.is_degraded("uprobe_nothing")?, "{}", daemon.status()?);
    let log = daemon.stop()?.log;
    ensure!(log.contains("it has no function nothing"), "{log}");
    let received = Received::from_collector_file(&fs::read(&output)?)?;
    for (caller, [calls, total]) in counted(&printed)? {
        let cents = sum(&received, "uprobe_shop_Cart_add", caller, Some("add"));
        let hits = sum(&received, "usdt_shop_sale", caller, Some("add"));
        ensure!(cents == total, "{caller}: {cents} of {total}: {log}");
        ensure!(hits == calls, "{caller}: {hits} of {calls}: {log}");
    }
    Ok(())
}

/// Hits of a process out of scope are neither sampled nor counted, whichever way the scope is set.
#[promise(Probes, test_all)]
fn hits_of_a_process_out_of_scope_are_not_counted() -> Result<()> {
    if !requirement::ebpf("probes out of scope")? {
        return Ok(());
    }
    let other = SALES.command(&[CALLS, PAUSE_US])?.stdout(Stdio::null()).spawn()?;
    let (Recording { said, .. }, _) = record_sales(&SALES, &["uprobe:PATH:shop::Cart::add"])?;
    let ended = { other }.wait()?;
    ensure!(ended.success());
    let hits = said.probes.get("uprobe_shop_Cart_add").context("no probe")?.hits;
    ensure!(hits == u64::from(CALLS), "{hits} hits of {CALLS}");
    Ok(())
}

/// The probe is in the file, for all processes that map it now or later.
#[promise(Probes, test_all)]
fn probes_of_the_whole_machine_are_hit_by_processes_that_start_later() -> Result<()> {
    if !requirement::ebpf("probes of the whole machine")? {
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let (output, said) = (folder.path().join("out.otlp"), folder.path().join("summary.json"));
    let built = SALES.command(&[CALLS, PAUSE_US])?;
    // Other tests run the program, too: this one probes a file of its own.
    let copy = folder.path().join("sales");
    fs::copy(built.get_program(), &copy)?;
    let mut program = Command::new(&copy);
    program.args(built.get_args());
    let spec = format!("uprobe:{}:shop::Cart::add,max_overhead=0.5", copy.display());
    let mut profiler = sidewinder::command()?;
    profiler.args(["record", "-a", "-e", "cpu-clock", "--probe", &spec, "-o"]).arg(&output);
    profiler.arg("--summary-json").arg(&said);
    let profiler = Running::start_sampling(profiler)?;
    let ended = program.stdout(Stdio::null()).status()?;
    ensure!(ended.success());
    let log = profiler.stop()?.log;
    // How many of its stacks are complete depends on how soon its table is built.
    let said: Value = serde_json::from_str(&fs::read_to_string(&said)?)?;
    let hits = &said["probes"]["uprobe_shop_Cart_add"]["hits"];
    ensure!(hits.as_u64() == Some(CALLS.into()), "{hits} hits of {CALLS}: {log}");
    Ok(())
}

#[promise(Probes, test_all)]
fn a_user_with_the_capabilities_of_a_sidecar_probes_a_program_of_another_user() -> Result<()> {
    if !user::can_read_others("probes of other users")? {
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    fs::set_permissions(folder.path(), Permissions::from_mode(0o777))?;
    let built = SALES.command(&[CALLS, PAUSE_US])?;
    let mut program = user::copied_to(folder.path(), Path::new(built.get_program()))?;
    program.args(built.get_args());
    let spec = format!("uprobe:{}:shop::Cart::add,max_overhead=0.5", program.get_program().to_string_lossy());
    let output = folder.path().join("out.otlp");
    let recorded = user::record(&program, None, &["-e", "cpu-clock", "--probe", &spec], &output)?;
    let received = Received::from_otlp_file(&output)?;
    for (caller, [calls, _]) in counted(&recorded.printed)? {
        let hits = sum(&received, "uprobe_shop_Cart_add", caller, Some("add"));
        ensure!(hits == calls, "{caller}: {hits} of {calls}");
    }
    Ok(())
}
