//! The maintenance part of sampling: work that is driven by time instead of events.
//!
//! Owner: the sampling thread, at the end of each poll. Input: clocks, and the state of the other parts. Output: freed
//! memory, the stack epoch and the table clock in the BPF maps, and the charges of waits in progress.

use std::time::{Duration, Instant};

use sidewinder_base::causes::error_chain;
use sidewinder_base::interval_timer::IntervalTimer;
use sidewinder_bpf::Profiler;
use tracing::{info, warn};

use super::control::Control;
use super::data::Data;
use super::options::SamplingOptions;
use super::random_pauses::RandomPauses;

/// The longest epoch. The programs send each stack once in an epoch.
const EPOCH_MAX: Duration = Duration::from_secs(30);
/// The tick of the clock by which tables age. It is shorter than a phase of a program, so that the tables of the current
/// phase are younger than those of the previous one.
const AGING_INTERVAL: Duration = Duration::from_millis(100);
/// The time between two sweeps.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);
/// How long a process is kept after its exit, since its samples may arrive later.
const EXITED_RETENTION: Duration = Duration::from_secs(2);
/// How long a file that no process maps stays open: long enough that a program that is run repeatedly is read once, and that
/// all samples arrive; short enough not to keep a file system mounted.
const UNUSED_FILE_RETENTION: Duration = Duration::from_secs(30);

/// The timers of periodic work.
#[derive(Debug)]
pub(super) struct Maintenance {
    /// The memory that stacks may use before a new epoch begins.
    stacks_bytes_max: usize,
    epoch_started_at: Instant,
    aging_timer: IntervalTimer,
    sweep_timer: IntervalTimer,
    waits_timer: IntervalTimer,
    pauses: Option<RandomPauses>,
}

impl Maintenance {
    pub(super) fn new(options: &SamplingOptions) -> Self {
        Self {
            stacks_bytes_max: options.budget.stacks_bytes,
            epoch_started_at: Instant::now(),
            aging_timer: IntervalTimer::new(AGING_INTERVAL),
            sweep_timer: IntervalTimer::new(SWEEP_INTERVAL),
            waits_timer: IntervalTimer::new(options.report_interval),
            pauses: options.pauses.clone(),
        }
    }

    /// Runs the work that is due, but for [sweeps](Self::sweep).
    pub(super) fn run(&mut self, data: &mut Data, profiler: &mut Profiler<'_>) {
        profiler.arena.reclaim();
        if self.epoch_started_at.elapsed() >= EPOCH_MAX || data.stacks.bytes() > self.stacks_bytes_max {
            self.epoch_started_at = Instant::now();
            data.stacks.begin_epoch(profiler.next_epoch());
        }
        if let Some(is_paused) = self.pauses.as_mut().and_then(RandomPauses::change) {
            pause(is_paused, data, profiler);
        }
        if self.aging_timer.is_due() {
            profiler.tables.advance_clock();
        }
        if self.waits_timer.is_due() && !self.pauses.as_ref().is_some_and(RandomPauses::is_paused) {
            data.charge_waits(profiler);
        }
    }

    /// Frees what is no longer needed, and retries what has failed, if that is due. All that refers to it has been passed on.
    pub(super) fn sweep(&mut self, control: &mut Control, data: &mut Data, profiler: &mut Profiler<'_>) {
        if !self.sweep_timer.is_due() {
            return;
        }
        control.processes.forget_exited(EXITED_RETENTION);
        control.publication.replacements.sweep();
        data.stale_mappings.sweep();
        control.membership.warn_of_full_list(profiler);
        profiler.close_empty_containers();
        control.membership.retry_containers(&mut control.processes, profiler);
        control.forget_exited();
        control.forget_files(UNUSED_FILE_RETENTION, profiler);
    }
}

fn pause(is_paused: bool, data: &mut Data, profiler: &mut Profiler<'_>) {
    if is_paused {
        let ends = data.waits_so_far(profiler);
        data.end_waits(ends);
    }
    match profiler.set_paused(is_paused) {
        Ok(()) if is_paused => info!("sampling pauses (probabilistic_threshold)"),
        Ok(()) => {
            info!("sampling continues");
            data.charge_waits(profiler);
        }
        Err(error) => warn!("{}", error_chain(&error)),
    }
}
