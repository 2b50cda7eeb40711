//! What `record`, `view` and `diff` leave is what others read, and the same in every form.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use sidewinder_e2e_support::http::{self, Answer};
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::sidewinder::{self, Running};
use sidewinder_e2e_support::workload::{Gated, LADDER, REC};
use sidewinder_e2e_support::{received::Received, requirement};

use crate::page::{folder, judge, profiles, write_form};

/// Of some 1,000 events that two seconds of CPU time make: on a busy machine programs get a part of it.
const ENOUGH: u64 = 30;

/// Runs the profiler to a good end.
fn run(arguments: &[&str]) -> Result<String> {
    let ended = sidewinder::run(arguments)?;
    ensure!(ended.status.success(), "{arguments:?}: {}: {}", ended.status, ended.log);
    Ok(ended.log)
}

/// Records two seconds of a program in the form that a file's name asks for.
fn record(path: &Path, program: &Command) -> Result<()> {
    let mut command = sidewinder::command()?;
    command.args(["record", "-F", "499", "-o"]).arg(path).arg("--");
    command.arg(program.get_program()).args(program.get_args());
    let ended = Running::start(command)?.wait(Duration::from_secs(60))?;
    ensure!(ended.status.success(), "{}: {}", ended.status, ended.log);
    Ok(())
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap_or_default()
}

/// Events by stack in a file of folded stacks.
fn folded(path: &Path) -> Result<BTreeMap<String, u64>> {
    let lines = fs::read_to_string(path)?;
    let parts = lines.lines().map(|line| {
        let (stack, count) = line.rsplit_once(' ').context("no count")?;
        Ok((stack.to_owned(), count.parse()?))
    });
    parts.collect()
}

#[promise(Formats)]
fn one_recording_says_the_same_in_every_form() -> Result<()> {
    if !requirement::ebpf("one_recording_says_the_same_in_every_form")? {
        return Ok(());
    }
    let kept = tempfile::tempdir()?;
    let path = |name: &str| kept.path().join(name);
    record(&path("a.otlp"), &LADDER.command(&[2, 10])?)?;
    let events = Received::from_otlp_file(&path("a.otlp"))?.events().count() as u64;
    ensure!(events > ENOUGH, "{events} events");
    run(&["view", "-o", text(&path("a.folded")), text(&path("a.otlp"))])?;
    let stacks = folded(&path("a.folded"))?;
    assert_eq!(stacks.values().sum::<u64>(), events);
    let climbing: u64 =
        stacks.iter().filter(|(stack, _)| stack.contains(";main;climb;")).map(|(_, n)| n).sum();
    ensure!(climbing * 100 >= events * 90, "{climbing} of {events} in what is known to run");

    // Through pprof and back.
    run(&["view", "-o", text(&path("b.pb.gz")), text(&path("a.otlp"))])?;
    run(&["view", "-o", text(&path("b.folded")), text(&path("b.pb.gz"))])?;
    assert_eq!(folded(&path("b.folded"))?, stacks);
    if requirement::program("one_recording_says_the_same_in_every_form", "go")? {
        let top = Command::new("go")
            .args(["tool", "pprof", "-symbolize=none", "-sample_index=samples", "-top"])
            .arg(path("b.pb.gz"))
            .env("PPROF_TMPDIR", kept.path())
            .output()?;
        let said = String::from_utf8_lossy(&top.stdout);
        ensure!(said.contains(&format!("of {events} total")) && said.contains(" burn"), "{said}");
    }
    let said = run(&["diff", "-o", text(&path("same.html")), text(&path("a.otlp")), text(&path("b.pb.gz"))])?;
    ensure!(said.contains("\nno function differs by 0.005%\n"), "something differs: {said}");
    Ok(())
}

#[promise(Formats, test_all)]
fn other_viewers_read_our_files() -> Result<()> {
    if !requirement::ebpf("other_viewers_read_our_files")? {
        return Ok(());
    }
    for form in ["firefox.json", "speedscope.json"] {
        write_form(&format!("server.{form}"), &profiles::server())?;
        record(&folder()?.join(format!("ladder.{form}")), &LADDER.command(&[2, 10])?)?;
    }
    judge("other_viewers_read_our_files", "viewers.test.mjs").map(drop)
}

#[promise(Formats, test_all)]
fn a_difference_names_what_came_and_what_went() -> Result<()> {
    if !requirement::ebpf("a_difference_names_what_came_and_what_went")? {
        return Ok(());
    }
    let kept = tempfile::tempdir()?;
    let path = |name: &str| kept.path().join(name);
    record(&path("before.otlp"), &LADDER.command(&[2, 10])?)?;
    record(&path("after.folded"), &REC.command(&[2, 10])?)?;
    let said =
        run(&["diff", "-o", text(&path("d.html")), text(&path("before.otlp")), text(&path("after.folded"))])?;
    let burns: Vec<_> =
        said.lines().filter(|line| line.split_whitespace().any(|word| word == "burn")).collect();
    ensure!(burns.iter().any(|line| line.contains('-')), "one burnt before: {said}");
    ensure!(fs::metadata(path("d.html"))?.len() > 10_000);
    let refused =
        sidewinder::run(&["diff", "-o", "d.svg", text(&path("before.otlp")), text(&path("after.folded"))])?;
    assert_eq!(refused.status.code(), Some(2), "{}", refused.log);
    Ok(())
}

fn ask(port: u16, path: &str, host: &str) -> Result<Answer> {
    http::request(port, "GET", path, &[("Host", host)], &[])
}

#[promise(Page)]
fn a_view_is_served_to_who_knows_its_address() -> Result<()> {
    write_form("server.pb.gz", &profiles::server())?;
    let mut command = sidewinder::command()?;
    command.arg("view").arg(folder()?.join("server.pb.gz"));
    let running = Running::start(command)?;
    let deadline = Instant::now() + Duration::from_secs(30);
    let url = loop {
        if let Some(url) = running.log().lines().find_map(|line| line.strip_prefix("http://127.0.0.1:")) {
            break url.to_owned();
        }
        ensure!(Instant::now() < deadline, "no address: {}", running.log());
        std::thread::sleep(Duration::from_millis(20));
    };
    let (port, path) = url.split_once('/').context("no path")?;
    let (port, path) = (port.parse()?, format!("/{path}"));
    ensure!(path.len() > 32, "{path} can be guessed");
    let page = ask(port, &path, "localhost")?;
    ensure!(page.status == 200 && page.headers.contains("frame-ancestors 'none'"), "{page:?}");
    ensure!(page.text().trim_end().ends_with("</html>"));
    ensure!(ask(port, "/", "localhost")?.status == 404);
    ensure!(ask(port, &path, "evil.example")?.status == 421);
    let ended = running.stop()?;
    ensure!(ended.status.success(), "{}: {}", ended.status, ended.log);
    Ok(())
}

#[promise(Formats)]
fn what_is_no_profile_is_told_with_its_name() -> Result<()> {
    let kept = tempfile::tempdir()?;
    for (name, content, why) in [
        ("a.otlp", "not protobuf", "not a ProfilesData message"),
        ("a.pb.gz", "\u{1f}\u{8b}", "not a pprof profile"),
        ("a.folded", "main;work\n", "not pprof, folded stacks"),
        ("b.folded", "", "not pprof, folded stacks"),
        ("c.html", "<!DOCTYPE html>\n<html>", "HTML pages can't be read; use .otlp"),
    ] {
        let path = kept.path().join(name);
        fs::write(&path, content)?;
        let ended = sidewinder::run(&["view", text(&path)])?;
        assert_eq!(ended.status.code(), Some(2), "{}", ended.log);
        ensure!(ended.log.contains(text(&path)) && ended.log.contains(why), "{}", ended.log);
    }
    Ok(())
}

#[promise(Record)]
fn processes_are_recorded_by_name_until_interrupted() -> Result<()> {
    if !requirement::ebpf("processes_are_recorded_by_name_until_interrupted")? {
        return Ok(());
    }
    let kept = tempfile::tempdir()?;
    let path = kept.path().join("named.folded");
    // Under a name that no other test's programs have.
    let named = kept.path().join("ladder-by-name");
    fs::copy(LADDER.compiled()?, &named)?;
    let mut wanted = Command::new(named);
    wanted.args(["3", "10"]);
    let mut wanted = Gated::start(wanted)?;
    let mut other = Gated::start(REC.command(&[3, 10])?)?;
    let mut command = sidewinder::command()?;
    command.args(["record", "-F", "499", "--no-kernel", "--comm", "ladder-by-*", "-o"]).arg(&path);
    let running = Running::start_sampling(command)?;
    wanted.open()?;
    other.open()?;
    wanted.finish()?;
    other.finish()?;
    let ended = running.stop()?;
    ensure!(ended.status.success(), "{}: {}", ended.status, ended.log);
    let stacks = folded(&path)?;
    let events: u64 = stacks.values().sum();
    ensure!(events > ENOUGH && stacks.keys().all(|stack| stack.starts_with("ladder-by-name;")), "{stacks:?}");
    ensure!(stacks.keys().all(|stack| !stack.contains("_[k]")), "kernel frames were not wanted");
    Ok(())
}

#[promise(Record)]
fn several_processes_are_recorded_together() -> Result<()> {
    if !requirement::ebpf("several_processes_are_recorded_together")? {
        return Ok(());
    }
    let kept = tempfile::tempdir()?;
    let path = kept.path().join("both.folded");
    let (mut one, mut other) =
        (Gated::start(LADDER.command(&[2, 10])?)?, Gated::start(REC.command(&[2, 10])?)?);
    let (first, second) = (one.pid().to_string(), other.pid().to_string());
    let mut command = sidewinder::command()?;
    command.args(["record", "-F", "499", "-p", &first, "-p", &second, "-o"]).arg(&path);
    let mut running = Running::start_sampling(command)?;
    one.open()?;
    other.open()?;
    one.finish()?;
    other.finish()?;
    // It ends by itself when they have.
    let ended = running.wait(Duration::from_secs(30))?;
    ensure!(ended.status.success(), "{}: {}", ended.status, ended.log);
    let stacks = folded(&path)?;
    for name in ["ladder;", "rec;"] {
        let events: u64 = stacks.iter().filter(|(stack, _)| stack.starts_with(name)).map(|(_, n)| n).sum();
        ensure!(events > ENOUGH, "{events} of {name}");
    }
    Ok(())
}

#[promise(Completions)]
fn every_command_has_a_manual_page() -> Result<()> {
    let kept = tempfile::tempdir()?;
    run(&["manual", text(&kept.path().join("man1"))])?;
    let page =
        |name: &str| fs::read_to_string(kept.path().join("man1").join(name)).with_context(|| name.to_owned());
    let help = run(&["--help"])?;
    let commands = help.lines().skip_while(|line| !line.starts_with("Commands:")).skip(1);
    let commands: Vec<_> = commands
        .take_while(|line| !line.is_empty())
        // What is indented further continues the line above.
        .filter_map(|line| line.strip_prefix("  ").filter(|rest| !rest.starts_with(' ')))
        .filter_map(|line| line.split_ascii_whitespace().next())
        .filter(|name| *name != "help")
        .collect();
    ensure!(commands.len() > 10, "{commands:?}");
    for command in commands {
        ensure!(page(&format!("sidewinder-{command}.1"))?.contains(".SH NAME"), "{command}");
    }
    ensure!(page("sidewinder-record.1")?.contains("sidewinder record \\-p 1234"));
    Ok(())
}
