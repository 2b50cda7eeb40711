//! What a registry may hold, and what it counts.

use std::ops::AddAssign;

/// The limits of a [`Registry`](super::Registry).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RegistryLimits {
    /// Known processes; further ones are counted and omitted.
    pub processes: usize,
    /// The memory for the executable mappings of all processes. The kernel's limit is 65,530 of all kinds for each process.
    pub mapping_bytes: usize,
    /// Rescans per second.
    pub rescans_per_second: u32,
}

impl Default for RegistryLimits {
    fn default() -> Self {
        Self { processes: 65_536, mapping_bytes: 128 << 20, rescans_per_second: 200 }
    }
}

/// Losses and work of a registry, counted since it was created.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct RegistryCounters {
    /// Events that were applied.
    pub process_events: u64,
    /// Events that the kernel dropped.
    pub process_events_lost: u64,
    /// Events from before the last scan of their process, and therefore ignored.
    pub process_events_outdated: u64,
    /// Events of processes outside of our PID namespace.
    pub process_events_outside: u64,
    /// Processes that were read from `/proc`.
    pub process_reads: u64,
    /// Processes that were omitted because there were too many.
    pub processes_left_out: u64,
    /// Mappings that were omitted for lack of memory.
    pub mappings_left_out: u64,
    /// Lines of `/proc/PID/maps` that do not conform to proc(5).
    pub maps_lines_malformed: u64,
    /// Processes whose mappings could not be read from `/proc`.
    pub processes_unreadable: u64,
}

impl AddAssign for RegistryCounters {
    fn add_assign(&mut self, more: Self) {
        let Self {
            process_events,
            process_events_lost,
            process_events_outdated,
            process_events_outside,
            process_reads,
            processes_left_out,
            mappings_left_out,
            maps_lines_malformed,
            processes_unreadable,
        } = more;
        self.process_events += process_events;
        self.process_events_lost += process_events_lost;
        self.process_events_outdated += process_events_outdated;
        self.process_events_outside += process_events_outside;
        self.process_reads += process_reads;
        self.processes_left_out += processes_left_out;
        self.mappings_left_out += mappings_left_out;
        self.maps_lines_malformed += maps_lines_malformed;
        self.processes_unreadable += processes_unreadable;
    }
}
