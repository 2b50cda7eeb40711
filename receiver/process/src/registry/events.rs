//! The effect of events on the processes of a [`Registry`].
//!
//! An event about a process that is not known, or whose order is uncertain, has the process read again.

use std::sync::Arc;

use super::Registry;
use crate::clock::monotonic_ns;
use crate::event::{ProcessEvent, ProcessEventKind};
use crate::id::{Pid, Tid};
use crate::mapping::ExecutableMapping;
use crate::process::Process;

/// Events of a process that are kept during its scan. If there are more, it is scanned again.
const EVENTS_DURING_SCAN_MAX: usize = 4096;

impl Registry {
    /// Applies one event. Events must be in order of time (see [`crate::EventQueue`]).
    ///
    /// Returns whether it removed a mapping of its process. Mappings known before are then not just incomplete, but wrong.
    pub fn apply(&mut self, event: ProcessEvent) -> bool {
        let ProcessEvent { time_ns, pid, ref kind } = event;
        self.counters.process_events += 1;
        if let ProcessEventKind::Lost { count } = *kind {
            self.counters.process_events_lost += count;
            self.lost_at_ns = monotonic_ns();
            self.rescans.request_recovery();
            return false;
        }
        if pid.is_outside() {
            self.counters.process_events_outside += 1;
            return false;
        }
        if self.processes.get(&pid).is_some_and(|process| time_ns < process.known_since_ns) {
            self.counters.process_events_outdated += 1;
            return false;
        }
        if let Some(meanwhile) = self.scans.get_mut(&pid) {
            if meanwhile.len() < EVENTS_DURING_SCAN_MAX {
                meanwhile.push(event.clone());
            } else {
                self.scans.remove(&pid);
                self.mark_stale(pid);
            }
        }
        self.apply_to_process(event)
    }

    /// Applies an event. Returns the same as [`Self::apply`].
    pub(super) fn apply_to_process(&mut self, event: ProcessEvent) -> bool {
        let ProcessEvent { time_ns, pid, kind } = event;
        match kind {
            ProcessEventKind::Fork { is_thread: true, .. } => self.start_thread(pid),
            ProcessEventKind::Fork { parent, is_thread: false } => self.fork(parent, pid, time_ns),
            ProcessEventKind::Exec { comm } => return self.exec(pid, comm, time_ns),
            ProcessEventKind::Map { range, file_offset, file, path, executable } => {
                let mapping = ProcessEventKind::mapping(range, file_offset, file, &path);
                return self.map(pid, mapping, executable);
            }
            ProcessEventKind::Exit { tid } => self.exit_thread(pid, tid, time_ns),
            ProcessEventKind::Lost { .. } => {}
        }
        false
    }

    fn start_thread(&mut self, pid: Pid) {
        match self.processes.get_mut(&pid) {
            Some(process) => process.threads = process.threads.saturating_add(1),
            None => self.mark_stale(pid),
        }
    }

    fn fork(&mut self, parent: Pid, child: Pid, time_ns: u64) {
        // A known process with the same PID has ended unnoticed.
        self.retire(child, time_ns);
        let instance = self.next_instance();
        let process = match self.processes.get(&parent) {
            Some(parent) => {
                // The parent's data may be newer than the fork.
                if time_ns < parent.known_since_ns {
                    self.rescans.mark_stale(child);
                }
                parent.fork(child, instance, time_ns)
            }
            None => {
                self.rescans.mark_stale(child);
                Process::new(child, instance, time_ns, self.mapping_memory.clone())
            }
        };
        self.add(process);
    }

    /// Returns whether the process had mappings.
    fn exec(&mut self, pid: Pid, comm: Box<[u8]>, time_ns: u64) -> bool {
        // An exec discards all earlier data, so a pending rescan is obsolete.
        self.rescans.remove(pid);
        match self.processes.get_mut(&pid) {
            Some(process) => {
                let had_mappings = process.mappings().len() > 0;
                self.last_instance += 1;
                process.instance = self.last_instance;
                process.exec(comm, self.mapping_memory.clone());
                process.known_since_ns = time_ns;
                self.changed.insert(pid);
                had_mappings
            }
            None => {
                let mut process =
                    Process::new(pid, self.next_instance(), time_ns, self.mapping_memory.clone());
                process.exec(comm, self.mapping_memory.clone());
                self.add(process);
                false
            }
        }
    }

    /// Returns whether the range was mapped before.
    fn map(&mut self, pid: Pid, mut mapping: ExecutableMapping, executable: bool) -> bool {
        let Some(process) = self.processes.get_mut(&pid) else {
            self.mark_stale(pid);
            return false;
        };
        let replaces = process.mappings.overlaps(&mapping.range);
        if executable {
            self.files.intern(&mut mapping.backing);
            if process.program.is_none() {
                process.program = mapping.backing.file().cloned();
            }
            if process.mappings.contains(&mapping) {
                return false;
            }
        } else if !replaces {
            return false;
        }
        let left_out_before = process.mappings.left_out();
        let mappings = Arc::make_mut(&mut process.mappings);
        if executable {
            mappings.insert(mapping);
        } else {
            mappings.remove(&mapping.range);
        }
        self.counters.mappings_left_out += mappings.left_out() - left_out_before;
        self.changed.insert(pid);
        replaces
    }

    fn exit_thread(&mut self, pid: Pid, tid: Tid, time_ns: u64) {
        let Some(process) = self.processes.get_mut(&pid) else { return };
        // Counting an exit twice would end the process while other threads run; a count that is too high is fixed by a
        // rescan.
        if time_ns >= process.threads_read_ns {
            process.threads = process.threads.saturating_sub(1);
        }
        process.leader_ended |= tid.leads(pid);
        if process.threads == 0 {
            self.retire(pid, time_ns);
        } else if process.leader_ended {
            self.rescans.mark_leaderless(pid);
            self.rescans.mark_stale(pid);
        }
    }
}
