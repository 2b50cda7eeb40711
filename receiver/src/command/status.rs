//! `sidewinder status`: the state of the profilers that run on this machine; `sidewinder health`: whether they are up.

use std::cmp::Reverse;
use std::fmt::Write as _;
use std::process::ExitCode;

use serde_json::{Map, Value};
use sidewinder_base::exit::{ExitCause, Failure};
use sidewinder_base::terminal::print_notice;
use sidewinder_bpf::Outcome;
use sidewinder_render::group_thousands;
use sidewinder_telemetry::status_socket::{StatusResponses, query_all};
use sidewinder_text::{escaped, escaped_json, escaped_lines};

use super::{CommandResult, print_all};
use crate::cli::{HealthArgs, StatusArgs};

/// Prints the status of each profiler that responds. Exits with 0 if none of them has a problem.
pub(crate) fn status(args: &StatusArgs) -> CommandResult {
    let StatusResponses { documents, silent } = responses(args.pid)?;
    let text: String = match args.json {
        true => {
            documents.iter().map(|document| escaped_json(&document.to_string()).into_owned() + "\n").collect()
        }
        false => documents.iter().map(to_text).collect(),
    };
    print_all(&text)?;
    Ok(exit_code(silent.is_empty() && documents.iter().all(is_healthy)))
}

/// Exits with 0 if every profiler that responds is up: the same check as the page of `health_check`, without a port.
pub(crate) fn health(args: &HealthArgs) -> CommandResult {
    let StatusResponses { documents, silent } = responses(args.pid)?;
    let line = |document: &Value| {
        let state = if is_up(document) { "up" } else { "not up" };
        let faults: String = thread_faults(document).map(|fault| format!(", {fault}")).collect();
        format!("process {}: {state}{faults}\n", string_field(document, "pid"))
    };
    print_all(&documents.iter().map(line).collect::<String>())?;
    Ok(exit_code(silent.is_empty() && documents.iter().all(is_up)))
}

fn exit_code(is_good: bool) -> ExitCode {
    if is_good { ExitCode::SUCCESS } else { ExitCode::from(ExitCause::Runtime as u8) }
}

/// The responses of all running profilers, or of the one with this process ID. Names those that do not respond.
///
/// # Errors
/// If none responds.
fn responses(pid: Option<u32>) -> Result<StatusResponses, Failure> {
    let mut responses =
        query_all().map_err(|error| Failure::runtime("can't look for running profilers", error))?;
    if let Some(pid) = pid {
        responses.documents.retain(|document| document.get("pid") == Some(&Value::from(pid)));
        responses.silent.retain(|silent| silent.pid == Some(pid));
    }
    for silent in &responses.silent {
        print_notice(format_args!("{silent}\n"));
    }
    if responses.documents.is_empty() {
        let message = "no profiler responds: none runs here, or only under another user";
        let next =
            "run this where it runs, as its user: `kubectl exec POD -c sidewinder -- /sidewinder status`";
        return Err(match pid {
            // Other profilers may have responded.
            Some(pid) => {
                Failure::new(ExitCause::Runtime, format!("no profiler with the process ID {pid} responds"))
                    .with_next_step("leave --pid out to see those that do")
            }
            None => Failure::new(ExitCause::Runtime, message).with_next_step(next),
        });
    }
    Ok(responses)
}

/// Descriptions of the threads that hang or have panicked.
fn thread_faults(document: &Value) -> impl Iterator<Item = String> {
    let faults = document.get("faulty_threads").and_then(Value::as_array);
    faults.into_iter().flatten().filter_map(Value::as_str).map(|fault| escaped(fault).into_owned())
}

/// Whether the profiler has started, is not stopping, and all its threads are running.
fn is_up(document: &Value) -> bool {
    document.get("up") == Some(&Value::Bool(true))
}

/// Whether the profiler reports no problem.
fn is_healthy(document: &Value) -> bool {
    problems(document).next().is_none()
}

fn problems(document: &Value) -> impl Iterator<Item = &Value> {
    document.get("problems").and_then(Value::as_array).into_iter().flatten()
}

fn entries<'a>(document: &'a Value, key: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    document.get(key).and_then(Value::as_object).into_iter().flat_map(Map::iter)
}

fn string_field(document: &Value, key: &str) -> String {
    match document.get(key) {
        Some(Value::String(text)) => escaped(text).into_owned(),
        Some(Value::Null) | None => String::new(),
        Some(other) => escaped(&other.to_string()).into_owned(),
    }
}

/// The counts that are not zero, the highest first, each before its label: `132 copied stack too short, 2 unwind table not loaded`.
fn format_nonzero(counts: Option<&Value>, label: impl Fn(&str) -> String) -> String {
    let entries = counts.and_then(Value::as_object).into_iter().flat_map(Map::iter);
    let nonzero = entries.filter_map(|(key, value)| Some((key, value.as_u64().filter(|count| *count > 0)?)));
    let mut nonzero: Vec<_> = nonzero.collect();
    nonzero.sort_by_key(|(_, count)| Reverse(*count));
    nonzero
        .into_iter()
        .map(|(key, count)| format!("{} {}", group_thousands(count), escaped(&label(key))))
        .collect::<Vec<_>>()
        .join(", ")
}

/// A label of a metric as words.
fn words(label: &str) -> String {
    label.replace('_', " ")
}

/// The outcome of interrupts as `record` names it.
fn outcome_summary(label: &str) -> String {
    let outcome = Outcome::ALL.iter().find(|outcome| outcome.label() == label);
    outcome.map_or_else(|| words(label), |outcome| outcome.summary().to_owned())
}

/// How many samples there are, and of what.
fn samples_line(receiver: &Value) -> String {
    let coverage = match receiver.get("containers").and_then(Value::as_u64) {
        Some(count) => format!("{count} containers"),
        None => "all processes".to_owned(),
    };
    match receiver.get("events").and_then(Value::as_u64).unwrap_or_default() {
        1 => format!("1 sample, {coverage}"),
        count => format!("{} samples, {coverage}", group_thousands(count)),
    }
}

/// How interrupts ended; empty before the first. Those that were missed are beside the steal time that explains them.
fn interrupts_line(receiver: &Value) -> String {
    let mut text = format_nonzero(receiver.get("interrupts"), outcome_summary);
    let missed = receiver.get("interrupts_missed").and_then(Value::as_u64).unwrap_or_default();
    if missed > 0 {
        let steal = receiver.get("steal_share").and_then(Value::as_f64);
        let steal = steal.map_or_else(String::new, |share| format!(" (steal time {:.1}%)", 100.0 * share));
        let separator = if text.is_empty() { "" } else { ", " };
        // Writing to a string does not fail.
        let _ = write!(text, "{separator}{} missed{steal}", group_thousands(missed));
    }
    text
}

/// What became of the events of an exporter, and how full its queue is, if it has one.
fn exporter_line(exporter: &Value) -> String {
    let events = format_nonzero(exporter.get("events"), words);
    let events = if events.is_empty() { "nothing sent yet".to_owned() } else { format!("events: {events}") };
    let bytes = |key| exporter.get(key).and_then(Value::as_u64).unwrap_or_default();
    match bytes("queue_capacity_bytes") {
        0 => events,
        capacity => {
            let queued = group_thousands(bytes("queue_bytes"));
            format!("{events}; queue: {queued} of {} bytes", group_thousands(capacity))
        }
    }
}

/// A summary line, then the problems, then the counters.
fn to_text(document: &Value) -> String {
    let mut out = String::new();
    let summary = match problems(document).count() {
        0 => "healthy".to_owned(),
        1 => "1 problem".to_owned(),
        count => format!("{count} problems"),
    };
    // Writing to a string does not fail.
    let _ = writeln!(
        out,
        "sidewinder {}, process {}: {summary}",
        string_field(document, "version"),
        string_field(document, "pid"),
    );
    for problem in problems(document) {
        let _ = writeln!(out, "  problem: {}", indented_field(problem, "what"));
        let _ = writeln!(out, "    next: {}", indented_field(problem, "next"));
    }
    let _ = writeln!(
        out,
        "  up {} s, {:.1} s of CPU, {} MiB",
        string_field(document, "uptime_seconds"),
        document.get("cpu_seconds").and_then(Value::as_f64).unwrap_or_default(),
        document.get("memory_rss_bytes").and_then(Value::as_u64).unwrap_or_default() >> 20,
    );
    for (id, receiver) in entries(document, "receivers") {
        let _ = writeln!(
            out,
            "  {}: {}, {}",
            escaped(id),
            words(&string_field(receiver, "activity")),
            samples_line(receiver),
        );
        let interrupts = interrupts_line(receiver);
        if !interrupts.is_empty() {
            let _ = writeln!(out, "    interrupts: {interrupts}");
        }
        if receiver.get("quarantined_processes").and_then(Value::as_u64).is_some_and(|count| count > 0) {
            let _ = writeln!(
                out,
                "    in quarantine: {} processes whose memory could not be read in time; reads {}",
                string_field(receiver, "quarantined_processes"),
                format_nonzero(receiver.get("foreign_reads"), words),
            );
        }
        push_incomplete_tables(&mut out, receiver);
        let refused = format_nonzero(receiver.get("files_refused"), words);
        if !refused.is_empty() {
            let _ = writeln!(out, "    refused files that processes name (the log has each): {refused}");
        }
    }
    for (id, exporter) in entries(document, "exporters") {
        let _ = writeln!(out, "  {}: {}", escaped(id), exporter_line(exporter));
        let failure = string_field(exporter, "last_failure");
        if !failure.is_empty() {
            let _ = writeln!(out, "    last failure: {failure}");
        }
    }
    let page = string_field(document, "ui");
    if !page.is_empty() {
        let _ = writeln!(out, "  page: {page}");
    }
    out
}

/// The files for whose unwind tables there is no room, and how much memory would be enough.
fn push_incomplete_tables(out: &mut String, receiver: &Value) {
    let Some(tables) = receiver.get("tables_incomplete").filter(|tables| !tables.is_null()) else { return };
    let number = |of: &Value, key| of.get(key).and_then(Value::as_u64).unwrap_or_default();
    let mib = |of: &Value, key| number(of, key) as f64 / f64::from(1 << 20);
    for file in tables.get("files").and_then(Value::as_array).into_iter().flatten() {
        let path = string_field(file, "path");
        let _ = match number(file, "unread_bytes") {
            0 => writeln!(
                out,
                "    no room for the unwind tables of {:.1} of {:.1} MiB of code, except functions already seen: {path}",
                mib(file, "left_out_code_bytes"),
                mib(file, "code_bytes"),
            ),
            _ => writeln!(
                out,
                "    no memory to read {:.1} MiB of a file, whose unwind table is incomplete: {path}",
                // Rounded up, since the least amount may be a few bytes.
                (mib(file, "unread_bytes") * 10.0).ceil() / 10.0,
            ),
        };
    }
    match number(tables, "more_files") {
        0 => {}
        count => _ = writeln!(out, "    and {count} more files"),
    }
    let enough_mib = number(tables, "memory_limit_mib_for_all");
    let _ = writeln!(out, "    memory_limit_mib: {enough_mib} would hold all of them");
}

/// A text field of several lines, the further ones indented.
fn indented_field(document: &Value, key: &str) -> String {
    let text = document.get(key).and_then(Value::as_str).unwrap_or_default();
    escaped_lines(text).replace('\n', "\n      ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn document(problems: &[&str]) -> Value {
        let problems: Vec<_> =
            problems.iter().map(|what| json!({ "what": what, "next": "do something" })).collect();
        json!({
            "version": "0.1.0", "pid": 7, "uptime_seconds": 3,
            "receivers": { "profiling": {
                "activity": "failed", "events": 7290, "containers": 2, "interrupts_missed": 9,
                "steal_share": 0.0444,
                "interrupts": { "complete": 7158, "idle": 0, "snapshot_end": 132 },
                "files_refused": { "symlink": 2, "owner": 0 },
                "tables_incomplete": {
                    "files": [
                        { "path": "/usr/bin/node", "code_bytes": 44 << 20, "left_out_code_bytes": 11 << 20, "unread_bytes": null },
                        { "path": "/opt/odd", "code_bytes": 0, "left_out_code_bytes": 0, "unread_bytes": 3 << 20 },
                    ],
                    "more_files": 2,
                    "memory_limit_mib_for_all": 61,
                },
            } },
            "exporters": { "file": {
                "events": { "delivered": 5 }, "queue_bytes": 0, "queue_capacity_bytes": 0,
                "last_failure": "connection refused",
            } },
            "ui": "http://localhost:7878/",
            "problems": problems,
        })
    }

    #[test]
    fn a_profiler_without_problems_is_healthy() {
        assert!(is_healthy(&document(&[])));
        assert!(!is_healthy(&document(&["a"])));
    }

    #[test]
    fn a_profiler_is_up_only_if_it_says_so() {
        assert!(is_up(&json!({ "up": true })));
        assert!(!is_up(&json!({ "up": false })));
        assert!(!is_up(&document(&[])));
    }

    #[test]
    fn a_profiler_that_has_just_begun_says_so_in_words() {
        let text = to_text(&json!({
            "receivers": { "profiling": { "activity": "out_of_scope", "events": 1, "containers": null } },
            "exporters": { "otlp": { "events": { "delivered": 0 }, "queue_bytes": 0, "queue_capacity_bytes": 8388608 } },
        }));
        assert!(text.contains("  profiling: out of scope, 1 sample, all processes\n"), "{text}");
        assert!(text.contains("  otlp: nothing sent yet; queue: 0 of 8,388,608 bytes\n"), "{text}");
        assert!(!text.contains("interrupts"), "{text}");
    }

    #[test]
    fn the_text_has_problems_and_no_control_characters() {
        assert_eq!(to_text(&document(&[])).lines().next(), Some("sidewinder 0.1.0, process 7: healthy"));
        let text = to_text(&document(&["can't sample\u{1b}[2J", "unknown\nkey"]));
        for part in [
            "sidewinder 0.1.0, process 7: 2 problems\n",
            "  problem: can't sample",
            "    next: do something\n",
            "unknown\n      key",
            "profiling: failed, 7,290 samples, 2 containers\n",
            "interrupts: 7,158 complete stack, 132 copied stack too short, 9 missed (steal time 4.4%)\n",
            "refused files that processes name (the log has each): 2 symlink\n",
            "no room for the unwind tables of 11.0 of 44.0 MiB of code, except functions already seen: /usr/bin/node\n",
            "no memory to read 3.0 MiB of a file, whose unwind table is incomplete: /opt/odd\n    and 2 more files\n",
            "memory_limit_mib: 61 would hold all of them",
            "  file: events: 5 delivered\n",
            "last failure: connection refused",
            "page: http://localhost:7878/",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains('\u{1b}'), "{text}");
    }
}
