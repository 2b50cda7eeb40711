//! Settings that the receiver changes while the programs run. Each CPU has a copy next to its counters.

use std::collections::BTreeSet;
use std::mem::offset_of;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use sidewinder_kind::CpuIds;

use crate::intf::sw_cpu;
use crate::memory::MappedArray;
use crate::monotonic_ns;

/// Writes the settings of all CPUs.
#[derive(Debug)]
pub(crate) struct CpuSettings {
    cpus: Rc<MappedArray>,
}

impl CpuSettings {
    /// The first epoch. 0 is not an epoch: it marks entries of the table of known stacks that are being written.
    const FIRST_EPOCH: u32 = 1;

    pub(crate) fn new(cpus: Rc<MappedArray>) -> Self {
        let settings = Self { cpus };
        settings.write_u32(offset_of!(sw_cpu, epoch), Self::FIRST_EPOCH);
        settings.write_u32(offset_of!(sw_cpu, clock), 1);
        settings
    }

    /// Starts a new epoch, and returns its id.
    pub(crate) fn next_epoch(&self) -> u32 {
        let epoch = self.read_u32(offset_of!(sw_cpu, epoch)).wrapping_add(1).max(Self::FIRST_EPOCH);
        self.write_u32(offset_of!(sw_cpu, epoch), epoch);
        epoch
    }

    /// The clock that measures the age of tables; never 0.
    pub(crate) fn clock(&self) -> u32 {
        self.read_u32(offset_of!(sw_cpu, clock))
    }

    pub(crate) fn advance_clock(&self) {
        self.write_u32(offset_of!(sw_cpu, clock), self.clock().wrapping_add(1).max(1));
    }

    /// Sets whether the programs report containers that aren't marked as known.
    pub(crate) fn report_new_processes(&self, are_told: bool) {
        self.write_u32(offset_of!(sw_cpu, tells_newcomers), are_told.into());
    }

    /// Sets that waits from before now are not accounted for.
    pub(crate) fn begin_waits(&self) {
        for cpu in 0..self.cpus.entries() {
            let since_ns = self.cpus.atomic_u64(cpu, offset_of!(sw_cpu, waits_since_ns));
            since_ns.store(monotonic_ns(), Ordering::Relaxed);
        }
    }

    /// Sets whether what no perf event samples is left out: hits of probes, the wakers of waits, and the waits that the tracepoint of
    /// context switches sees, of which others than those that begin on `sampled_cpus` always are.
    pub(crate) fn pause_hooks(&self, sampled_cpus: &CpuIds, is_paused: bool) {
        let sampled: BTreeSet<u32> = sampled_cpus.iter().collect();
        for cpu in 0..self.cpus.entries() {
            let is_sampled = u32::try_from(cpu).is_ok_and(|cpu| sampled.contains(&cpu));
            let set = |offset, is_paused: bool| {
                self.cpus.atomic_u64(cpu, offset).store(is_paused.into(), Ordering::Relaxed);
            };
            set(offset_of!(sw_cpu, hooks_paused), is_paused);
            set(offset_of!(sw_cpu, switches_paused), is_paused || !is_sampled);
        }
    }

    /// Clears the programs' cache of the last listed process, so that they look up the next one.
    pub(crate) fn forget_listed(&self) {
        self.write_u32(offset_of!(sw_cpu, listed_pid), 0);
    }

    /// All CPUs have the same value, so this reads the first.
    fn read_u32(&self, offset: usize) -> u32 {
        self.cpus.atomic_u32(0, offset).load(Ordering::Relaxed)
    }

    fn write_u32(&self, offset: usize, value: u32) {
        for cpu in 0..self.cpus.entries() {
            self.cpus.atomic_u32(cpu, offset).store(value, Ordering::Relaxed);
        }
    }
}
