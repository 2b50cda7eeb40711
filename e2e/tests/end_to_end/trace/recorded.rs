//! `sidewinder record` on what publishes: with `--span` and `--trace` what is kept ran inside, and nothing else; with
//! `--custom-labels` these labels link samples too.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use sidewinder_e2e_instrumented::examples::{Example, Handled, build_rust};
use sidewinder_e2e_instrumented::service::Service;
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::received::Received;
use sidewinder_e2e_support::requirement;
use sidewinder_e2e_support::sidewinder::{self, Running};

use super::examples::{FUNCTIONS, Labels, SECONDS, judge};
use super::{events_once_known, function_of};

const PATIENCE: Duration = Duration::from_secs(60);

/// Records the service for two seconds, and counts events by the function that they show and whether they are of the span.
fn record(
    service: &Service,
    job: &str,
    [option, id]: [&str; 2],
) -> Result<BTreeMap<(&'static str, bool), u64>> {
    let folder = tempfile::tempdir()?;
    let output = folder.path().join("out.otlp").display().to_string();
    let pid = service.pid().to_string();
    let ended = sidewinder::run(&["record", "-F", "997", "-d", "2s", "-p", &pid, option, id, "-o", &output])?;
    ensure!(ended.status.success(), "{}: {}", ended.status, ended.log);
    let received = Received::from_otlp_file(output.as_ref())?;
    let mut counts = BTreeMap::new();
    for event in received.events() {
        let link = event.sample.link.context("an event without a link")?;
        let is_of_job = job == hex::encode(link.span_id);
        let (function, _) = function_of(&event).unwrap_or(("", 0));
        *counts.entry((function, is_of_job)).or_default() += 1;
    }
    Ok(counts)
}

#[promise(SpanRecording)]
fn a_recording_of_a_span_or_of_a_trace_has_what_ran_inside_of_it() -> Result<()> {
    if !requirement::ebpf("recordings of spans")? {
        return Ok(());
    }
    let service = Service::start(4, 2_000)?;
    let [trace, span] = service.begin_report(20)?;
    let of_span = record(&service, &span, ["--span", &span])?;
    let of_trace = record(&service, &span, ["--trace", &trace])?;
    eprintln!("of the span: {of_span:?}; of the trace: {of_trace:?}");

    // What the job asks for is in spans of their own, of the same trace.
    for function in ["cart", "search", "checkout"] {
        for counts in [&of_span, &of_trace] {
            ensure!(counts.get(&(function, true)).is_some_and(|count| *count > 5), "few of {function}");
        }
    }
    ensure!(of_span.keys().all(|(function, is_of_job)| *is_of_job && *function != "query"));
    ensure!(of_trace.get(&("query", false)).is_some_and(|count| *count > 5), "few of the query");
    ensure!(
        of_trace
            .keys()
            .all(|(function, is_of_job)| *is_of_job == (*function != "query") || function.is_empty())
    );

    let other = record_nothing(&service)?;
    ensure!(other.contains("no event was recorded"), "{other}");
    Ok(())
}

/// Records the example with labels from its start to its end, with these options more.
fn record_labels(options: &[&str]) -> Result<(Handled, Received)> {
    let program = build_rust("examples/custom_labels", "sidewinder-example-labels")?;
    let mut example = Example::start(Command::new(program).arg(SECONDS))?;
    let folder = tempfile::tempdir()?;
    let output = folder.path().join("out.otlp").display().to_string();
    let pid = example.pid().to_string();
    let common = ["record", "-F", "997", "-p", &pid, "-o", &output];
    let mut command = sidewinder::command()?;
    command.args(common).args(options);
    let mut recording = Running::start_sampling(command)?;
    example.open()?;
    let handled = example.finish()?;
    let ended = recording.wait(PATIENCE)?;
    ensure!(ended.status.success(), "{}: {}", ended.status, ended.log);
    Ok((handled, Received::from_otlp_file(output.as_ref())?))
}

#[promise(CustomLabels)]
fn a_recording_reads_custom_labels_where_it_is_told_to() -> Result<()> {
    if !requirement::ebpf("recordings with custom-labels")? {
        return Ok(());
    }
    let (handled, received) = record_labels(&["--custom-labels", "--attribute", "http.route"])?;
    judge(&handled, events_once_known(&received)?, FUNCTIONS, Labels::OneByOne)?;
    let (_, received) = record_labels(&[])?;
    ensure!(received.events().count() > 30, "too few events");
    ensure!(received.events().all(|event| event.sample.link.is_none()), "an event is linked");
    Ok(())
}

/// What is said of a span that nobody is in.
fn record_nothing(service: &Service) -> Result<String> {
    let folder = tempfile::tempdir()?;
    let output = folder.path().join("out.otlp");
    let pid = service.pid().to_string();
    let shown = output.display().to_string();
    let arguments = ["record", "-d", "1s", "-p", &pid, "--span", "00f067aa0ba902b7", "-o", &shown];
    let ended = sidewinder::run(&arguments)?;
    ensure!(ended.status.code() == Some(1) && !fs::exists(&output)?, "{}", ended.status);
    Ok(ended.log)
}
