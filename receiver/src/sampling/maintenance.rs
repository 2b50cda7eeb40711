//! The maintenance part of sampling: what happens with time, not with events.
//!
//! Owner: the sampling thread, at the end of each poll. Input: clocks, and what the other parts hold. Output: freed memory, the
//! epochs of stacks and ages of tables in the BPF maps, and messages about processes and files that are gone.

use std::time::{Duration, Instant};

use sidewinder_bpf::Profiler;

use super::control::Control;
use super::data::Data;
use super::feed::Message;
use crate::every::Every;

/// The longest epoch. The programs send each stack once in an epoch.
const EPOCH: Duration = Duration::from_secs(30);
/// The unit in which tables age: shorter than a phase of a program, so that its tables are younger than those of the phase
/// before.
const AGE: Duration = Duration::from_millis(100);
/// The time between two sweeps.
const SWEEP: Duration = Duration::from_secs(1);
/// How long a process is remembered after its exit: its samples may arrive later.
const EXITED_REMEMBERED: Duration = Duration::from_secs(2);
/// How long a file stays open that no process maps: long enough that a program which runs again and again is read once and
/// that all samples arrive, short enough not to keep a file system mounted.
const FILES_REMEMBERED: Duration = Duration::from_secs(30);

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Maintenance {
    /// The most that stacks may take before a new epoch begins.
    stacks_bytes_max: usize,
    epoch_began: Instant,
    aging: Every,
    sweeping: Every,
}

impl Maintenance {
    pub(super) fn new(stacks_bytes_max: usize) -> Self {
        Self {
            stacks_bytes_max,
            epoch_began: Instant::now(),
            aging: Every::new(AGE),
            sweeping: Every::new(SWEEP),
        }
    }

    /// Does what is due.
    pub(super) fn run(
        &mut self,
        control: &mut Control,
        data: &mut Data,
        profiler: &mut Profiler<'_>,
        messages: &mut Vec<Message>,
    ) {
        profiler.arena.reclaim();
        if self.epoch_began.elapsed() >= EPOCH || data.stacks.bytes() > self.stacks_bytes_max {
            self.epoch_began = Instant::now();
            data.stacks.begin_epoch(profiler.next_epoch());
        }
        if self.aging.is_due() {
            profiler.tables.tick();
        }
        if self.sweeping.is_due() {
            sweep(control, data, profiler, messages);
        }
    }
}

/// Frees what is no longer needed, and tries again what has failed.
fn sweep(control: &mut Control, data: &mut Data, profiler: &mut Profiler<'_>, messages: &mut Vec<Message>) {
    control.processes.forget_exited(EXITED_REMEMBERED);
    control.publication.replacements.sweep();
    data.stale_mappings.sweep();
    control.membership.warn_of_full_list(profiler);
    profiler.close_empty_containers();
    control.membership.retry_containers(&mut control.processes, profiler);
    control.descriptions.forget_exited(&control.processes, messages);
    control.forget_files(FILES_REMEMBERED, profiler, messages);
}
