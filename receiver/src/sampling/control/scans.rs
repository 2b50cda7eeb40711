//! Reading what processes map, without waiting for those that withhold it.

use std::time::Duration;

use sidewinder_process::{Pid, ProcfsError, Scanned};
use tracing::debug;

use crate::foreign::{Asked, Pending, Target};
use crate::sampling::Sampler;

/// How long the start waits for a process that was asked for, or judged.
pub(in crate::sampling) const START_PATIENCE: Duration = Duration::from_secs(2);
/// How long the start waits for one of many.
pub(in crate::sampling) const EACH_PATIENCE: Duration = Duration::from_millis(100);
/// How long sampling waits for the first process of a container.
pub(in crate::sampling) const FIRST_PROCESS_PATIENCE: Duration = Duration::from_millis(20);

/// A process that is being read.
#[derive(Debug)]
pub(in crate::sampling) struct Scan {
    pid: Pid,
    pending: Pending<Result<Scanned, ProcfsError>>,
}

impl Sampler<'_> {
    /// Reads a process, and waits for it as long as that; what comes later is taken up later.
    ///
    /// # Errors
    /// [`ProcfsError::Gone`] for a process that has ended.
    pub(in crate::sampling) fn scan(&mut self, pid: Pid, patience: Duration) -> Result<(), ProcfsError> {
        let scanner = self.registry.begin_scan(pid);
        let target = match scanner.start_ticks(pid) {
            Ok(start_ticks) => Target { pid, start_ticks },
            Err(error) => return self.registry.end_scan(pid, Err(error)),
        };
        let asked = self.reader.ask(target, move || scanner.scan(pid));
        match asked.and_then(|pending| pending.wait(patience)) {
            Ok(Asked::Answered(scanned)) => self.registry.end_scan(pid, scanned),
            Ok(Asked::Pending(pending)) => {
                self.scans.push(Scan { pid, pending });
                Ok(())
            }
            Err(none) => {
                debug!(%pid, %none, "the mappings of a process are not read");
                self.registry.abandon_scan(pid);
                Ok(())
            }
        }
    }

    /// Takes up the processes that have been read, and has those read that may be known wrongly.
    pub(in crate::sampling) fn read_stale(&mut self) {
        for pid in self.registry.take_due() {
            // Where reading fails, the process is forgotten or counted.
            let _ = self.scan(pid, Duration::ZERO);
        }
        let (registry, scans) = (&mut self.registry, &mut self.scans);
        scans.retain(|Scan { pid, pending }| match pending.poll() {
            None => true,
            Some(Ok(scanned)) => {
                let _ = registry.end_scan(*pid, scanned);
                false
            }
            Some(Err(none)) => {
                debug!(%pid, %none, "the mappings of a process are not read");
                registry.abandon_scan(*pid);
                false
            }
        });
    }
}
