//! What `record` says when nothing was recorded: the likely cause, and the next step. Nothing is written then, whatever the
//! format.

use std::time::Duration;

use sidewinder_base::exit::{ExitCause, Failure};
use sidewinder_kind::Kind;
use sidewinder_render::{OutcomeCount, Severity, group_thousands};
use sidewinder_telemetry::stats::outcome_counts;

use super::RecordingStats;
use crate::cli::RecordArgs;

/// With fewer interrupts than this due on one CPU, chance alone explains that none hit the target.
const INTERRUPTS_MIN: f64 = 10.0;

/// The failure of a recording without an event.
pub(super) fn failure(args: &RecordArgs, recorded: &RecordingStats) -> Failure {
    let duration = Duration::from_nanos(recorded.end_ns.saturating_sub(recorded.start_ns));
    let kinds = || recorded.tally.interrupts.iter().map(|(kind, _)| *kind);
    let outcomes: Vec<_> = kinds().flat_map(|kind| outcome_counts(&recorded.tally, kind)).collect();
    let has_clock = kinds().any(|kind| matches!(kind, Kind::Cpu { .. } | Kind::Wall { .. }));
    let (cause, next_step) = likely_cause(args, &outcomes, has_clock.then_some(duration));
    Failure::new(ExitCause::Runtime, format!("no event was recorded, so nothing was written: {cause}"))
        .with_next_step(next_step)
}

/// `clocked`: the duration, if threads were sampled at intervals.
fn likely_cause(
    args: &RecordArgs,
    outcomes: &[OutcomeCount],
    clocked: Option<Duration>,
) -> (String, &'static str) {
    let count = |wanted: &[Severity]| {
        let counts = outcomes.iter().filter(|outcome| wanted.contains(&outcome.severity));
        counts.fold(0_u64, |sum, outcome| sum.saturating_add(outcome.count))
    };
    let (walked, lost) = (count(&[Severity::Complete, Severity::Truncated]), count(&[Severity::Lost]));
    if args.span.is_some() || args.trace.is_some() {
        return (
            "no sample belongs to this span or trace".to_owned(),
            "check that the target's threads publish their span, and were in this one during the recording: otlp/TRACES.md",
        );
    }
    if walked > 0 {
        return (
            format!("only other threads were sampled ({})", group_thousands(walked)),
            "check the thread and process IDs: they may have exited, or executed another program",
        );
    }
    // Some are always lost on a virtual machine.
    if lost > 0 && lost >= count(&[Severity::Excluded]) {
        let most = outcomes.iter().filter(|outcome| outcome.severity == Severity::Lost);
        let most = most.max_by_key(|outcome| outcome.count).map_or("", |outcome| &*outcome.name);
        let lost = if lost == 1 {
            "1 sample was".to_owned()
        } else {
            format!("{} samples were", group_thousands(lost))
        };
        return (
            format!("{lost} lost ({most})"),
            "record again, for longer or at a lower rate (-F); `sidewinder check` says what this machine allows",
        );
    }
    match clocked {
        None => ("the event did not occur".to_owned(), "record for longer, or while the target causes it"),
        Some(duration) if duration.as_secs_f64() * f64::from(args.frequency) < INTERRUPTS_MIN => (
            format!("{:.3} s is too short for a sample at {} Hz", duration.as_secs_f64(), args.frequency),
            "record for longer, or at a higher rate: -F 997",
        ),
        Some(_) if !args.comm.is_empty() => (
            "no process of this name used a CPU".to_owned(),
            "check with `ps -e -o comm` whether one is running; it is sampled only while it uses a CPU",
        ),
        Some(_) => (
            "the target used no CPU".to_owned(),
            "record while it is busy, or add --wall, which also shows where threads wait",
        ),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::{Cli, Command};

    fn args(options: &[&str]) -> RecordArgs {
        let line = [&["sidewinder", "record", "-F", "97"], options].concat();
        let Some(Command::Record(args)) = Cli::parse_from(line).command else { panic!("not a recording") };
        args
    }

    #[test]
    fn the_likely_cause_follows_from_what_became_of_the_interrupts() {
        let outcome = |name: &str, count, severity| OutcomeCount {
            name: name.to_owned(),
            count,
            severity,
            help: String::new(),
        };
        let excluded = outcome("idle", 900, Severity::Excluded);
        let long = Some(Duration::from_secs(10));
        let of_pid: &[&str] = &["-p", "7"];
        for (options, outcomes, clocked, cause) in [
            (of_pid, vec![excluded.clone()], long, "the target used no CPU"),
            (
                of_pid,
                vec![excluded.clone(), outcome("missed", 40, Severity::Lost)],
                long,
                "the target used no CPU",
            ),
            (of_pid, vec![outcome("missed", 1, Severity::Lost)], long, "1 sample was lost (missed)"),
            (of_pid, vec![], Some(Duration::from_millis(50)), "0.050 s is too short for a sample at 97 Hz"),
            (&["--comm", "nginx"], vec![excluded], long, "no process of this name used a CPU"),
            (
                &["-t", "7"],
                vec![outcome("complete", 1200, Severity::Complete)],
                long,
                "only other threads were sampled (1,200)",
            ),
            (
                of_pid,
                vec![outcome("busy", 1, Severity::Lost), outcome("ring full", 4, Severity::Lost)],
                long,
                "5 samples were lost (ring full)",
            ),
            (&["-p", "7", "-e", "faults"], vec![], None, "the event did not occur"),
            (
                &["-p", "7", "--span", "0102030405060708"],
                vec![],
                long,
                "no sample belongs to this span or trace",
            ),
        ] {
            assert_eq!(likely_cause(&args(options), &outcomes, clocked).0, cause, "{options:?}");
        }
    }
}
