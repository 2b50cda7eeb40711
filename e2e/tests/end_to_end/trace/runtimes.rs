//! The examples in Java and in JavaScript: samples are linked to the spans that they say, on threads of Java, and across the
//! callbacks that a thread of Node.js runs in turn; and `record --span` keeps what ran inside of one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use sidewinder_e2e_instrumented::examples::{Example, build_java, build_node};
use sidewinder_e2e_support::command::run;
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::received::Received;
use sidewinder_e2e_support::sidewinder::{self, Running};
use sidewinder_e2e_support::{java, paths, requirement};

use super::events_from_first_link;
use super::examples::{Functions, Labels, function_of, judge, name_of_service};

/// For how long an example runs, unless it is ended before.
const SECONDS: &str = "300";
const FUNCTIONS: &Functions =
    &[("cart", Some("/cart")), ("query", Some("/query")), ("report", Some(REPORT)), ("outside", None)];
/// One span that lasts as long as the example works.
const REPORT: &str = "/report";
/// Of a recording of that one.
const ENOUGH: usize = 20;
/// For how long it is recorded: longer, where that was not enough. On a busy machine, the first seconds are without names.
const RECORDED_SECONDS: [u32; 4] = [3, 8, 20, 50];
const PATIENCE: Duration = Duration::from_secs(60);

/// Records the report while it runs, until there is enough of it.
fn record_report(example: &Example) -> Result<()> {
    let ids = example.wait_for(REPORT)?;
    let (_, span) = ids.split_once(' ').context("no two ids")?;
    for seconds in RECORDED_SECONDS {
        if events_of_report(example.pid(), span, seconds)? >= ENOUGH {
            return Ok(());
        }
    }
    bail!("there are few samples of the report")
}

/// Records a span for some seconds. All events are of it, and of the function of the report, where one is shown: of so many.
fn events_of_report(pid: u32, span: &str, seconds: u32) -> Result<usize> {
    let folder = tempfile::tempdir()?;
    let output = folder.path().join("out.otlp").display().to_string();
    let (pid, duration) = (pid.to_string(), format!("{seconds}s"));
    let ended = sidewinder::run(&[
        "record", "-F", "997", "-d", &duration, "-p", &pid, "--span", span, "-o", &output,
    ])?;
    // A busy machine takes longer until the span of a thread is known.
    if ended.status.code() == Some(1) && !Path::new(&output).exists() {
        return Ok(0);
    }
    ensure!(ended.status.success(), "{}: {}", ended.status, ended.log);
    let received = Received::from_otlp_file(output.as_ref())?;
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for event in received.events() {
        let link = event.sample.link.context("an event without a link")?;
        ensure!(span == hex::encode(link.span_id), "another span: {link:?}");
        let names = event.sample.stack.iter().filter_map(|frame| frame.function());
        let shown = names.into_iter().find_map(|name| function_of(name, FUNCTIONS));
        *counts.entry(shown.map_or("", |(function, _)| function)).or_default() += 1;
    }
    eprintln!("of the report: {counts:?}");
    ensure!(counts.keys().all(|function| ["report", ""].contains(function)), "{counts:?}");
    Ok(counts.get("report").copied().unwrap_or_default())
}

/// Records all of an example, from before it starts, and its report beside that.
fn judge_example(command: &mut Command, service: &str) -> Result<()> {
    let mut example = Example::start(command.arg(SECONDS))?;
    let folder = tempfile::tempdir()?;
    let output = folder.path().join("out.otlp");
    let mut recorder = sidewinder::command()?;
    recorder.args(["record", "-F", "997", "--attribute", "http.route", "-p", &example.pid().to_string()]);
    recorder.arg("-o").arg(&output);
    let mut recording = Running::start_sampling(recorder)?;
    example.open()?;
    record_report(&example)?;
    let handled = example.end()?;
    let ended = recording.wait(PATIENCE)?;
    ensure!(ended.status.success(), "{}: {}", ended.status, ended.log);
    let received = Received::from_otlp_file(&output)?;
    judge(&handled, events_from_first_link(&received)?, FUNCTIONS, Labels::AtOnce)?;
    ensure!(name_of_service(&received).as_deref() == Some(service), "{:?}", name_of_service(&received));
    Ok(())
}

/// The newest JDK that is here.
fn newest_home() -> Option<PathBuf> {
    let version = |home: &Path| {
        let name = home.file_name()?.to_str()?;
        name.split('-').find_map(|part| part.parse::<u32>().ok())
    };
    java::homes(None).into_iter().max_by_key(|home| version(home))
}

#[promise(TraceExamples, test_all)]
fn an_example_in_java() -> Result<()> {
    let test = "spans of a program in Java";
    if !requirement::ebpf(test)? || !requirement::program(test, "mvn")? {
        return Ok(());
    }
    let Some(home) = newest_home() else { return requirement::skip(test, "no JDK in /usr/lib/jvm") };
    judge_example(&mut build_java(&home)?.command(&home), "spans-in-java")
}

#[promise(TraceExamples, test_all)]
fn an_example_in_javascript() -> Result<()> {
    let test = "spans of a program in JavaScript";
    let folder = paths::e2e().join("examples/node");
    if !requirement::ebpf(test)? || !requirement::packages(test, &folder)? {
        return Ok(());
    }
    let mut node = Command::new("node");
    node.arg(folder.join("spans.js")).arg(build_node()?);
    judge_example(&mut node, "spans-in-node")
}

/// In callbacks of every kind, whose turns come one after the other. `make node-test` does it with each version.
#[promise(TraceExamples, test_all)]
fn what_the_example_in_javascript_publishes_is_the_active_span() -> Result<()> {
    let test = "what a program in JavaScript publishes";
    let folder = paths::e2e().join("examples/node");
    if requirement::packages(test, &folder)? {
        run(Command::new("node").arg(folder.join("publish.test.js")))?;
    }
    Ok(())
}
