//! What `record` prints while it runs.

use std::io::{self, IsTerminal as _};
use std::time::Duration;

use sidewinder_base::terminal::print_notice;
use sidewinder_bpf::Outcome;
use sidewinder_sampling::SamplingTally;

use crate::cli::RecordArgs;

/// A progress line on standard error, if that is a terminal.
pub(super) struct Progress {
    is_shown: bool,
}

impl Progress {
    pub(super) fn new(args: &RecordArgs) -> Self {
        Self { is_shown: !args.quiet && io::stderr().is_terminal() }
    }

    pub(super) fn show(&self, text: &str) {
        if self.is_shown {
            print_notice(format_args!("\r\u{1b}[2K{text} ..."));
        }
    }

    /// Shows a tally. Calls `tally`, which reads the kernel's counters, only if the line is shown.
    pub(super) fn show_tally(&self, tally: impl FnOnce() -> SamplingTally, elapsed: Duration) {
        if !self.is_shown {
            return;
        }
        let tally = tally();
        let outcomes = tally.interrupts.iter().flat_map(|(_, interrupts)| &interrupts.outcomes);
        let complete = outcomes.filter(|(outcome, _)| *outcome == Outcome::Complete);
        let complete: u64 = complete.map(|(_, count)| count).sum();
        let share = if tally.events == 0 { 0.0 } else { 100.0 * complete as f64 / tally.events as f64 };
        let per_second = tally.events as f64 / elapsed.as_secs_f64().max(0.001);
        print_notice(format_args!(
            "\r\u{1b}[2K{:.0} s, {} samples, {per_second:.0} a second, {share:.1}% complete; Ctrl-C ends",
            elapsed.as_secs_f64(),
            tally.events
        ));
    }

    pub(super) fn end(&self) {
        if self.is_shown {
            print_notice(format_args!("\r\u{1b}[2K"));
        }
    }
}
