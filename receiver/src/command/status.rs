//! `sidewinder status`: how the profilers that run here are; `sidewinder health`: whether they are up.

use std::fmt::Write as _;
use std::process::ExitCode;

use serde_json::{Map, Value};

use super::Ended;
use crate::cli::{HealthArgs, StatusArgs};
use crate::exit::{Cause, Failure};
use crate::telemetry::status;

/// Ends with 0 where everybody who answers is well.
pub(crate) fn status(args: &StatusArgs) -> Ended {
    let documents = documents(args.pid)?;
    let mut all_well = true;
    for document in &documents {
        all_well &= is_well(document);
        if args.json {
            println!("{document}");
        } else {
            print!("{}", text(document));
        }
    }
    Ok(code(all_well))
}

/// Ends with 0 where everybody who answers is up: what the page of `health_check` says, without a port.
pub(crate) fn health(args: &HealthArgs) -> Ended {
    let documents = documents(args.pid)?;
    for document in &documents {
        let state = if is_up(document) { "up" } else { "not up" };
        println!("process {}: {state}", word(document, "pid"));
    }
    Ok(code(documents.iter().all(is_up)))
}

fn code(is_good: bool) -> ExitCode {
    if is_good { ExitCode::SUCCESS } else { ExitCode::from(Cause::Runtime as u8) }
}

/// What the profilers that run here answer: all, or the one with this process id. At least one does.
fn documents(pid: Option<u32>) -> Result<Vec<Value>, Failure> {
    let mut documents =
        status::ask_all().map_err(|error| Failure::runtime("can't look for running profilers", error))?;
    documents.retain(|document| pid.is_none_or(|pid| document.get("pid") == Some(&Value::from(pid))));
    if documents.is_empty() {
        let what = "no profiler answers here: none runs in this network namespace, or only another user's";
        let next = "ask where it runs, as its user: `kubectl exec POD -c sidewinder -- /sidewinder status`";
        return Err(match pid {
            // Others may answer.
            Some(pid) => {
                Failure::new(Cause::Runtime, format!("no profiler with the process id {pid} answers here"))
                    .then("leave --pid out to see those that do")
            }
            None => Failure::new(Cause::Runtime, what).then(next),
        });
    }
    Ok(documents)
}

/// Whether it has started and was not told to stop.
fn is_up(document: &Value) -> bool {
    document.get("up") == Some(&Value::Bool(true))
}

/// Whether every receiver does what it can do, and the configuration that was read last holds.
fn is_well(document: &Value) -> bool {
    let activities = entries(document, "receivers").map(|(_, receiver)| word(receiver, "activity"));
    let is_busy = |activity: String| ["profiling", "out_of_scope"].contains(&activity.as_str());
    activities.into_iter().all(is_busy)
        && document.pointer("/configuration/refusal").is_none_or(Value::is_null)
}

fn entries<'a>(of: &'a Value, key: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    of.get(key).and_then(Value::as_object).into_iter().flat_map(Map::iter)
}

fn word(of: &Value, key: &str) -> String {
    match of.get(key) {
        Some(Value::String(text)) => printable(text),
        Some(Value::Null) | None => String::new(),
        Some(other) => other.to_string(),
    }
}

/// Without what a terminal would act on.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' { '\u{fffd}' } else { c }).collect()
}

/// Numbers that are not zero, as `key=value` words.
fn numbers(of: Option<&Value>) -> String {
    let entries = of.and_then(Value::as_object).into_iter().flat_map(Map::iter);
    let counted = entries.filter(|(_, value)| value.as_u64().is_some_and(|count| count > 0));
    counted.map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
}

fn text(document: &Value) -> String {
    let mut out = String::new();
    // Writing into a string does not fail.
    let _ = writeln!(
        out,
        "sidewinder {}, process {}, up {} s, {:.1} s of CPU, {} MiB",
        word(document, "version"),
        word(document, "pid"),
        word(document, "uptime_seconds"),
        document.get("cpu_seconds").and_then(Value::as_f64).unwrap_or_default(),
        document.get("memory_rss_bytes").and_then(Value::as_u64).unwrap_or_default() >> 20,
    );
    for (id, receiver) in entries(document, "receivers") {
        let _ = writeln!(
            out,
            "  {id}: {}, {} events of {}; interrupts {} missed={}",
            word(receiver, "activity"),
            word(receiver, "events"),
            word(receiver, "events_of"),
            numbers(receiver.get("interrupts")),
            word(receiver, "interrupts_missed"),
        );
        let reason = word(receiver, "reason");
        if !reason.is_empty() {
            let _ = writeln!(out, "    because: {}", reason.replace('\n', "\n    "));
        }
        let refused = numbers(receiver.get("files_refused"));
        if !refused.is_empty() {
            let _ = writeln!(out, "    files that processes name, not read: {refused}");
        }
    }
    for (id, exporter) in entries(document, "exporters") {
        let _ = writeln!(
            out,
            "  {id}: events {}; queue {} of {} bytes",
            numbers(exporter.get("events")),
            word(exporter, "queue_bytes"),
            word(exporter, "queue_capacity_bytes"),
        );
    }
    let page = word(document, "ui");
    if !page.is_empty() {
        let _ = writeln!(out, "  page: {page}");
    }
    for what in document.get("degraded").and_then(Value::as_array).into_iter().flatten() {
        let (feature, reason, cost) = (word(what, "feature"), word(what, "reason"), word(what, "cost"));
        let _ = writeln!(out, "  degraded: {feature} ({reason}): {cost}");
    }
    let refusal = document.pointer("/configuration/refusal").and_then(Value::as_str).unwrap_or_default();
    if !refusal.is_empty() {
        let refusal = printable(refusal).replace('\n', "\n    ");
        let _ = writeln!(
            out,
            "  the configuration that was read last is refused, the one before it holds:\n    {refusal}"
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn document(activity: &str, refusal: Option<&str>) -> Value {
        json!({
            "version": "0.1.0", "pid": 7, "uptime_seconds": 3,
            "configuration": { "refusal": refusal },
            "receivers": { "profiling": {
                "activity": activity, "reason": "can't sample\u{1b}[2J", "events": 5,
                "events_of": "2 containers", "interrupts_missed": 0,
                "interrupts": { "complete": 5, "idle": 0 },
                "files_refused": { "symlink": 2, "owner": 0 },
            } },
            "exporters": { "file": { "events": { "delivered": 5 }, "queue_bytes": 0, "queue_capacity_bytes": 0 } },
            "ui": "http://localhost:7878/",
            "degraded": [],
        })
    }

    #[test]
    fn well_is_who_profiles_under_the_newest_configuration() {
        assert!(is_well(&document("profiling", None)));
        assert!(is_well(&document("out_of_scope", None)));
        assert!(!is_well(&document("failed", None)));
        assert!(!is_well(&document("profiling", Some("unknown key"))));
    }

    #[test]
    fn up_is_who_says_so() {
        assert!(is_up(&json!({ "up": true })));
        assert!(!is_up(&json!({ "up": false })));
        assert!(!is_up(&document("profiling", None)));
    }

    #[test]
    fn the_text_says_what_is_wrong_and_nothing_that_a_terminal_acts_on() {
        let text = text(&document("failed", Some("unknown key")));
        for part in [
            "process 7",
            "profiling: failed, 5 events of 2 containers",
            "complete=5 missed=0",
            "because: can't sample",
            "delivered=5",
            "unknown key",
            "page: http://localhost:7878/",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains('\u{1b}'), "{text}");
    }
}
