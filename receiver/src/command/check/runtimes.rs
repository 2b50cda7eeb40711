//! The section on language runtimes, for people and as JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};
use sidewinder_text::ExternalText;
use sidewinder_vm::{Finding, RUNTIMES, RuntimeDescription, RuntimeSet};

use super::limit::{Limit, architecture_limit};
use super::native::{NativeReport, StrippedFile};
use super::probe_status::ProbeStatus;
use super::process::{Obstacle, ProcessReport, RuntimeReport};

/// The most files without symbols that are shown of a process.
const STRIPPED_SHOWN: usize = 5;

/// The state of a row, why it is limited here, and the next steps.
fn row_state(
    row: &RuntimeDescription,
    file_limit: Option<Limit>,
) -> (ProbeStatus, Option<&'static str>, Vec<&'static str>) {
    let of_files = file_limit.filter(|_| row.runtime.is_some_and(|runtime| RuntimeSet::ALL.has(runtime)));
    let limit = row.runtime.and_then(architecture_limit).or(of_files);
    let is_ok = limit.is_none() && row.is_complete();
    let next = [limit.map(|limit| limit.next), row.frames_advice, row.advice].into_iter().flatten().collect();
    (if is_ok { ProbeStatus::Ok } else { ProbeStatus::Limited }, limit.map(|limit| limit.why), next)
}

/// The table of all runtimes, `paint`ed with the state of each.
pub(super) fn table(file_limit: Option<Limit>, paint: &impl Fn(ProbeStatus, &str) -> String) -> String {
    let rows = RUNTIMES.into_iter().map(|row| whole_row(row, file_limit, paint));
    std::iter::once("\nRuntimes\n".to_owned()).chain(rows).collect()
}

/// A row, with all that is known of it.
fn whole_row(
    row: &RuntimeDescription,
    file_limit: Option<Limit>,
    paint: &impl Fn(ProbeStatus, &str) -> String,
) -> String {
    let (status, why, next) = row_state(row, file_limit);
    let mut text = format!("{}  {}\n", paint(status, &format!("{:<7}", status.label())), row.name);
    let parts = [("frames", row.frames), ("names ", row.names)].into_iter();
    let parts = parts.chain(why.map(|why| ("why   ", why)));
    for (label, part) in parts.chain(next.into_iter().map(|next| ("next  ", next))) {
        // Writing to a string does not fail.
        _ = writeln!(text, "         {label}  {part}");
    }
    text
}

/// A line for all runtimes of which as much is read, and whole rows for what is limited here alone.
pub(super) fn summary(file_limit: Option<Limit>, paint: &impl Fn(ProbeStatus, &str) -> String) -> String {
    let state = |row: &RuntimeDescription| row_state(row, file_limit);
    let names = |rows: &dyn Fn(&RuntimeDescription) -> bool,
                 name: fn(&RuntimeDescription) -> &'static str| {
        RUNTIMES
            .into_iter()
            .filter(|row| state(row).1.is_none() && rows(row))
            .map(name)
            .collect::<Vec<_>>()
            .join("; ")
    };
    let is_ok = |row: &RuntimeDescription| state(row).0 == ProbeStatus::Ok;
    let has_complete_part = |row: &RuntimeDescription| is_ok(row) || row.parts.is_some();
    let complete = names(&has_complete_part, |row| row.parts.map_or(row.name, |parts| parts.complete));
    let generated =
        names(&|row| !is_ok(row) && !row.is_interpreter_only(), |row| match (row.parts, row.runtime) {
            (Some(parts), _) => parts.others,
            (None, Some(_)) => row.label,
            (None, None) => "others",
        });
    let interpreted = names(&|row| !is_ok(row) && row.is_interpreter_only(), |row| row.label);
    let mut text = String::from("\nRuntimes\n");
    let limited = RUNTIMES.into_iter().filter(|row| state(row).1.is_some());
    text.extend(limited.map(|row| whole_row(row, file_limit, paint)));
    for (status, names, what) in [
        (ProbeStatus::Ok, complete, "all functions"),
        (ProbeStatus::Limited, generated, "generated code, with names if the runtime publishes them"),
        (ProbeStatus::Limited, interpreted, "only the interpreter's frames"),
    ] {
        let label = paint(status, &format!("{:<7}", status.label()));
        // Writing to a string does not fail.
        _ = writeln!(text, "{label}  {what}: {names}");
    }
    text += "         next    `sidewinder check --verbose`: what each of them needs; `sidewinder check -p PID`: a process's runtimes\n";
    text
}

pub(super) fn table_json(file_limit: Option<Limit>) -> Value {
    let rows = RUNTIMES.into_iter().map(|row| {
        let (status, why, next) = row_state(row, file_limit);
        json!({
            "id": row.id,
            "name": row.name,
            "state": status.label(),
            "frames": row.frames,
            "names": row.names,
            "why": why,
            "next": (!next.is_empty()).then(|| next.join("; ")),
        })
    });
    rows.collect()
}

/// What was found out about processes.
pub(super) fn processes(reports: &[ProcessReport], paint: &impl Fn(ProbeStatus, &str) -> String) -> String {
    let mut text = String::new();
    for report in reports {
        let unknown = "[unknown program]".into();
        let executable = if report.executable.is_empty() { &unknown } else { &report.executable };
        _ = writeln!(text, "\nProcess {}, {executable}", report.pid);
        if let Some(obstacle) = &report.obstacle {
            let label = paint(ProbeStatus::Missing, &format!("{:<7}", obstacle.label()));
            _ = writeln!(text, "{label}  {}\n         next    {}", obstacle.why(), obstacle.next());
        }
        for runtime in &report.runtimes {
            let status = status(runtime);
            let label = paint(status, &format!("{:<7}", status.label()));
            let version = runtime.version.as_ref().map(|version| format!(" {version}")).unwrap_or_default();
            let no_file = "in anonymous memory".into();
            let file = if runtime.file.is_empty() { &no_file } else { &runtime.file };
            _ = writeln!(text, "{label}  {}{version}, {file}", runtime.support.label);
            for (what, Finding { is_ok, detail }) in [("frames", &runtime.frames), ("names ", &runtime.names)]
            {
                let status = if *is_ok { ProbeStatus::Ok } else { ProbeStatus::Limited };
                _ = writeln!(text, "         {what}  {}: {detail}", status.label());
            }
            if let Some(next) = &runtime.next {
                _ = writeln!(text, "         next    {next}");
            }
        }
        if report.obstacle.is_none() {
            text += &native_row(report, paint);
        }
    }
    text
}

/// Whether native code has names; empty if it has, and there is a runtime to report.
fn native_row(report: &ProcessReport, paint: &impl Fn(ProbeStatus, &str) -> String) -> String {
    let NativeReport { files, stripped } = &report.native;
    let kind = if report.runtimes.is_empty() { "native code only" } else { "native code" };
    let label = |status: ProbeStatus| paint(status, &format!("{:<7}", status.label()));
    if stripped.is_empty() {
        return match report.runtimes.is_empty() {
            true => format!(
                "{}  {kind}: no known runtime in its files, and no generated code\n",
                label(ProbeStatus::Ok)
            ),
            false => String::new(),
        };
    }
    let mut text = format!(
        "{}  {kind}: {} of {files} files have no symbols; functions that they don't export have no names\n",
        label(ProbeStatus::Limited),
        stripped.len()
    );
    for file in stripped.iter().take(STRIPPED_SHOWN) {
        // Writing to a string does not fail.
        _ = writeln!(text, "         file    {}\n         next    {}", file.label(), file.advice());
    }
    if let Some(more @ 1..) = stripped.len().checked_sub(STRIPPED_SHOWN) {
        _ = writeln!(text, "         and {more} more; --json lists all of them");
    }
    text
}

fn status(runtime: &RuntimeReport) -> ProbeStatus {
    if runtime.frames.is_ok && runtime.names.is_ok { ProbeStatus::Ok } else { ProbeStatus::Limited }
}

pub(super) fn processes_json(reports: &[ProcessReport]) -> Value {
    let finding = |finding: &Finding| {
        let status = if finding.is_ok { ProbeStatus::Ok } else { ProbeStatus::Limited };
        json!({ "state": status.label(), "detail": finding.detail.to_lossy() })
    };
    let runtime = |runtime: &RuntimeReport| {
        json!({
            "id": runtime.support.id,
            "name": runtime.support.label,
            "state": status(runtime).label(),
            "version": runtime.version.as_ref().map(ExternalText::to_lossy),
            "file": runtime.file.to_lossy(),
            "frames": finding(&runtime.frames),
            "names": finding(&runtime.names),
            "next": runtime.next,
        })
    };
    let process = |report: &ProcessReport| {
        let obstacle = report.obstacle.as_ref();
        json!({
            "pid": report.pid,
            "executable": report.executable.to_lossy(),
            "state": obstacle.map_or(ProbeStatus::Ok.label(), Obstacle::label),
            "why": obstacle.map(|obstacle| obstacle.why().to_lossy().into_owned()),
            "next": obstacle.map(Obstacle::next),
            "runtimes": report.runtimes.iter().map(runtime).collect::<Vec<_>>(),
            "without_symbols": report.native.stripped.iter().map(StrippedFile::to_json).collect::<Vec<_>>(),
        })
    };
    reports.iter().map(process).collect()
}
