//! Following processes: from the kernel's side band, through the registry, to the ranges that walks look up.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use sidewinder_address::Avma;
use sidewinder_bpf::{ProcessesError, SideBandEvent, SideBandKind, monotonic_ns};
use sidewinder_process::{
    Change, DeviceId, MappedIdentity, Pid, Process, ProcessEvent, ProcessEventKind, Tid,
};
use tracing::{debug, warn};

use super::tables::build::BuildError;
use crate::sampling::feed::{Message, ProcessKey};
use crate::sampling::{Sampler, SamplingError};

/// A process that isn't understood is read again at most this often.
pub(in crate::sampling) const HEAL_INTERVAL: Duration = Duration::from_millis(500);
/// How long sampling waits, at its start, for the tables of what already runs.
const START_PATIENCE: Duration = Duration::from_secs(20);

impl Sampler<'_> {
    /// Learns what already runs, and waits a while for its tables.
    pub(in crate::sampling) fn learn_what_runs(&mut self) -> Result<(), SamplingError> {
        let known_ns = monotonic_ns();
        self.learn_scope()?;
        self.publish_changes(known_ns);
        let deadline = Instant::now() + START_PATIENCE;
        let mut messages = Vec::new();
        while self.binaries.in_progress() > 0 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
            self.load_tables(known_ns, &mut messages);
        }
        self.unsaid = messages;
        Ok(())
    }

    /// Takes up what has happened before a time, in its order: each sample meets its process as it was then.
    pub(in crate::sampling) fn follow(&mut self, watermark_ns: u64, messages: &mut Vec<Message>) {
        if let Some(side_band) = self.profiler.side_band() {
            let filled = side_band.drain(|event| self.queue.push(process_event(event)));
            self.poll_interval.polled(Instant::now(), filled);
        }
        // A fork puts its child into scope, so the scope is asked in order of time.
        while let Some(event) = self.queue.pop(watermark_ns) {
            self.take_samples(event.time_ns, messages);
            let pid = event.pid;
            if let ProcessEventKind::Fork { parent, is_thread: false } = event.kind {
                self.stale_mappings.inherit(parent, pid, event.time_ns);
            }
            let is_exec = matches!(event.kind, ProcessEventKind::Exec { .. });
            if self.options.scope.admits(&event) && self.registry.apply(event) {
                self.stale_mappings.add(pid);
            }
            self.list_untold();
            if is_exec && self.options.scope.changes_by_exec() {
                self.judge_anew(pid);
            }
        }
        self.take_samples(watermark_ns, messages);
        self.late.learn_processes(|pid| self.registry.process(pid));
        self.read_stale();
        self.publish_changes(watermark_ns);
        self.load_tables(watermark_ns, messages);
        let processes = &self.profiler.processes;
        self.outdated.retain(|pid| {
            processes.confirm(pid.0, watermark_ns);
            processes.is_outdated(pid.0)
        });
    }

    fn publish_changes(&mut self, known_ns: u64) {
        for change in self.registry.take_changes() {
            match change {
                Change::MappingsChanged(pid) => {
                    self.contexts.hurry(pid.0);
                    self.runtimes.mappings_changed(pid);
                    self.publish(pid, known_ns);
                }
                Change::Exited(process) => self.forget(process),
            }
        }
    }

    pub(in crate::sampling) fn publish(&mut self, pid: Pid, known_ns: u64) {
        let Some(process) = self.registry.process(pid) else { return };
        // What was read a moment ago is newer than the last event.
        let known_ns = known_ns.max(process.known_since_ns());
        let (mut ranges, mut files) = (Vec::new(), BTreeSet::new());
        for mapping in process.mappings() {
            let file = self.files.identify(process, mapping).map(|identified| identified.id);
            if let Some(file) = file
                && self.binaries.prepare(file, &self.files, pid, &self.options)
            {
                files.insert(file);
            }
            self.binaries.push_ranges(&mut ranges, file, mapping);
        }
        self.binaries.used_by(pid, files);
        let variables = self.contexts.variables(ProcessKey::of(process));
        let (arena, tables) = (&mut self.profiler.arena, &mut self.profiler.tables);
        loop {
            match self.profiler.processes.publish(arena, pid.0, &ranges, variables, known_ns) {
                Ok(()) => break,
                Err(ProcessesError::Mappings { .. }) if tables.evict_oldest(arena).is_some() => {}
                Err(error) => {
                    debug!(%error, "the stacks of this process will be incomplete");
                    // What it mapped before is not what it maps now.
                    self.profiler.processes.remove(arena, pid.0);
                    return;
                }
            }
        }
        self.stale_mappings.published(pid);
        if self.profiler.processes.is_outdated(pid.0) {
            self.outdated.insert(pid);
        }
    }

    fn forget(&mut self, process: Box<Process>) {
        let pid = process.pid();
        self.departed.insert(pid, (process, Instant::now()));
        self.outdated.remove(&pid);
        self.healed_at.remove(&pid.0);
        // The number may belong to a new process by now.
        if self.registry.process(pid).is_none() {
            self.profiler.processes.remove(&mut self.profiler.arena, pid.0);
            self.binaries.used_by(pid, BTreeSet::new());
            self.stale_mappings.published(pid);
            self.options.scope.exited(pid.0);
        }
    }

    fn load_tables(&mut self, known_ns: u64, messages: &mut Vec<Message>) {
        let ready = self.binaries.load_ready(&mut self.profiler.arena, &mut self.profiler.tables);
        for ready in ready {
            if let Some(error) = &ready.failure {
                let path = self.files.get(ready.file).map_or(&[][..], |entry| entry.path());
                let (path, reason) = (path.escape_ascii(), error as &dyn std::error::Error);
                match error {
                    BuildError::NoRoom(_) if ready.is_known_failure => {}
                    BuildError::NoRoom(_) | BuildError::Panicked => {
                        warn!(%path, reason, "degraded: no whole unwind table");
                    }
                    BuildError::Elf(_) | BuildError::Unwind(_) => debug!(%path, reason, "no unwind table"),
                }
            }
            self.tell_file(ready.file, messages, Some(&ready.loads));
            for user in ready.users {
                // What is known of it is as old as before.
                let known_ns = self.profiler.processes.known_ns(user.0).unwrap_or(known_ns);
                self.publish(user, known_ns);
            }
        }
    }

    /// Sees to it that a process that isn't understood is read again.
    pub(in crate::sampling) fn heal(&mut self, pid: u32) {
        let is_due = self.healed_at.get(&pid).is_none_or(|at| at.elapsed() >= HEAL_INTERVAL);
        if is_due {
            self.healed_at.insert(pid, Instant::now());
            self.registry.mark_stale(Pid(pid));
        }
    }
}

fn process_event(event: SideBandEvent) -> ProcessEvent {
    let kind = match event.kind {
        SideBandKind::Fork { parent_pid } => {
            ProcessEventKind::Fork { parent: Pid(parent_pid), is_thread: parent_pid == event.pid }
        }
        SideBandKind::Exec { comm } => ProcessEventKind::Exec { comm: comm.into() },
        SideBandKind::Exit => ProcessEventKind::Exit { tid: Tid(event.tid) },
        SideBandKind::Map { start, bytes, file_offset, device: (major, minor), inode, path, .. } => {
            ProcessEventKind::Map {
                range: start..Avma(start.0.saturating_add(bytes)),
                file_offset,
                file: (inode != 0)
                    .then_some(MappedIdentity::Inode { device: DeviceId { major, minor }, inode }),
                path: path.into(),
                executable: true,
            }
        }
        SideBandKind::Lost { count } => ProcessEventKind::Lost { count },
    };
    ProcessEvent { time_ns: event.time_ns, pid: Pid(event.pid), kind }
}
