//! The page that follows what is profiled: `service.ui`.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use sidewinder_e2e_support::http::{self, Answer};
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::session::{Daemon, Settings};
use sidewinder_e2e_support::sidewinder::Running;
use sidewinder_e2e_support::workload::{DISTINCT, Gated, LADDER};
use sidewinder_e2e_support::{collector, received::Received, requirement, sidewinder};
use sidewinder_render::decode_document;

use super::{folder, judge_with};
use crate::telemetry::until;

/// A profiler of a program, with a page on this port.
fn serve(workload: &Gated, port: u16, more: &str, samples_per_second: u32) -> Result<Daemon> {
    let [nobody] = collector::free_ports()?;
    let settings = Settings {
        samples_per_second,
        more: vec!["monitor_interval: 200ms".to_owned()],
        service: vec![format!("ui: {{ enabled: true, endpoint: 127.0.0.1:{port}{more} }}")],
        ..Settings::of_process(workload.pid())
    };
    Daemon::start(&settings, &format!("127.0.0.1:{nobody}"))
}

fn url(port: u16) -> [(&'static str, String); 1] {
    [("LIVE", format!("http://127.0.0.1:{port}/"))]
}

#[promise(LivePage, test_all)]
fn the_flame_graph_fills_while_the_program_runs() -> Result<()> {
    let test = "the_flame_graph_fills_while_the_program_runs";
    if !requirement::ebpf(test)? {
        return Ok(());
    }
    let [port] = collector::free_ports()?;
    let mut workload = Gated::start(LADDER.command(&[180, 10])?)?;
    let daemon = serve(&workload, port, "", 499)?;
    workload.open()?;
    let is_judged = judge_with(test, "live.test.mjs", &url(port))?;
    let status = daemon.status()?;
    ensure!(status["ui"] == format!("http://127.0.0.1:{port}/"), "{status}");
    daemon.stop()?;
    if !is_judged {
        return Ok(());
    }

    // What was saved is what others read, and the same in each form.
    let saved =
        |suffix: &str| folder().map(|folder| folder.join("pictures/live-profile").with_extension(suffix));
    let events = Received::from_otlp_file(&saved("otlp")?)?.events().count() as u64;
    ensure!(events > 100, "{events} events");
    let kept = tempfile::tempdir()?;
    for suffix in ["otlp", "pb.gz"] {
        let out = kept.path().join(format!("{suffix}.folded"));
        let (from, to) = (saved(suffix)?, out.display().to_string());
        let ended = sidewinder::run(&["view", "-o", &to, &from.display().to_string()])?;
        ensure!(ended.status.success(), "{}", ended.log);
        let text = std::fs::read_to_string(&out)?;
        let count = |line: &str| line.rsplit_once(' ').and_then(|(_, count)| count.parse::<u64>().ok());
        let sum: u64 = text.lines().filter_map(count).sum();
        let climbing: u64 = text.lines().filter(|line| line.contains(";main;climb;")).filter_map(count).sum();
        // One was saved a moment after the other, of the same time: its last slice may hold more.
        ensure!(sum.abs_diff(events) * 50 <= events, "{sum} events in {suffix}, {events} in otlp");
        ensure!(climbing * 100 >= sum * 90, "{climbing} of {sum} in what is known to run");
    }
    Ok(())
}

#[promise(LivePage, test_all)]
fn what_the_page_no_longer_holds_is_said() -> Result<()> {
    let test = "what_the_page_no_longer_holds_is_said";
    if !requirement::ebpf(test)? {
        return Ok(());
    }
    let [port] = collector::free_ports()?;
    let mut workload = Gated::start(DISTINCT.command(&[120, 100_000])?)?;
    let daemon = serve(&workload, port, ", memory_limit_mib: 1", 997)?;
    workload.open()?;
    judge_with(test, "forgetful.test.mjs", &url(port))?;
    daemon.stop()?;
    Ok(())
}

/// `record --ui` fills the page while it records, and writes its file all the same.
#[promise(LivePage)]
fn a_recording_can_be_followed_too() -> Result<()> {
    if !requirement::ebpf("a_recording_can_be_followed_too")? {
        return Ok(());
    }
    let [port] = collector::free_ports()?;
    let mut workload = Gated::start(LADDER.command(&[60, 10])?)?;
    let kept = tempfile::tempdir()?;
    let out = kept.path().join("out.otlp");
    let mut command = sidewinder::command()?;
    let pid = workload.pid().to_string();
    command.args(["record", "-F", "499", "-p", &pid, &format!("--ui=127.0.0.1:{port}"), "-o"]).arg(&out);
    let recording = Running::start_sampling(command)?;
    workload.open()?;
    let events = || -> Result<u64> {
        let told = decode_document(&ask(port, "GET", "/data/0", "localhost")?.body)?;
        let counts = told.pointer("/samples/count").and_then(Value::as_array).context("no samples")?;
        Ok(counts.iter().filter_map(Value::as_u64).sum())
    };
    let more_than = |than| until("more samples", || Ok(Some(events()?).filter(|now| *now > than)));
    let shown = more_than(more_than(0)?)?;
    let ended = recording.stop()?;
    ensure!(
        ended.status.success() && ended.log.contains(&format!("http://127.0.0.1:{port}/")),
        "{}",
        ended.log
    );
    let written = Received::from_otlp_file(&out)?.events().count() as u64;
    ensure!(written >= shown, "{written} events in the file, {shown} were shown");
    Ok(())
}

/// What this port answers.
fn ask(port: u16, method: &str, path: &str, host: &str) -> Result<Answer> {
    http::request(port, method, path, &[("Host", host), ("Origin", "http://evil.example")], &[])
}

#[promise(LivePage)]
fn only_this_machine_and_only_its_own_page_is_answered() -> Result<()> {
    if !requirement::ebpf("only_this_machine_and_only_its_own_page_is_answered")? {
        return Ok(());
    }
    let [port] = collector::free_ports()?;
    let mut workload = Gated::start(LADDER.command(&[60, 10])?)?;
    let daemon = serve(&workload, port, "", 97)?;
    workload.open()?;
    let ask = |method, path, host| ask(port, method, path, host);
    for path in ["/", "/data/0"] {
        let answer = until(path, || {
            ask("GET", path, "localhost").map(|answer| (answer.status == 200).then_some(answer))
        })?;
        let headers = answer.headers;
        ensure!(!headers.contains("access-control"), "other sites may read it: {headers}");
        for header in [
            "cross-origin-resource-policy: same-origin",
            "x-content-type-options: nosniff",
            "content-security-policy",
        ] {
            ensure!(headers.contains(header), "{header} is missing: {headers}");
        }
        let rebound = ask("GET", path, "evil.example")?;
        ensure!(rebound.status == 421 && !rebound.text().contains("samples"), "{rebound:?}");
        let posted = ask("POST", path, "localhost")?;
        ensure!(posted.status == 405, "{posted:?}");
    }
    for path in ["/etc/passwd", "/../../etc/passwd", "/data", "/0-10.exe"] {
        let answer = ask("GET", path, "localhost")?;
        ensure!(answer.status == 404, "{path}: {answer:?}");
    }
    daemon.stop()?;
    Ok(())
}
