//! The processes whose changes are followed: the same that the programs sample.

use std::collections::HashSet;

use sidewinder_process::{ProcessEvent, ProcessEventKind};

/// Whose interrupts become samples.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Scope {
    /// Every process that our PID namespace knows.
    Node,
    /// These, and what they fork.
    Processes(HashSet<u32>),
}

impl Scope {
    /// Whether an event is about a process in scope. Follows forks on the way, so events come in order of time.
    pub(crate) fn admits(&mut self, event: &ProcessEvent) -> bool {
        if matches!(event.kind, ProcessEventKind::Lost { .. }) {
            return true;
        }
        // The kernel writes 0 or -1 where our PID namespace has no number for the process.
        let pid = event.pid.0;
        if pid == 0 || pid == u32::MAX {
            return false;
        }
        let Self::Processes(pids) = self else { return true };
        if let ProcessEventKind::Fork { parent, .. } = event.kind
            && pids.contains(&parent.0)
        {
            pids.insert(pid);
        }
        pids.contains(&pid)
    }

    /// A process has ended.
    pub(crate) fn exited(&mut self, pid: u32) {
        if let Self::Processes(pids) = self {
            pids.remove(&pid);
        }
    }

    /// Whether nothing is left to sample.
    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, Self::Processes(pids) if pids.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use sidewinder_process::{Pid, Tid};

    use super::*;

    fn event(pid: u32, kind: ProcessEventKind) -> ProcessEvent {
        ProcessEvent { time_ns: 1, pid: Pid(pid), kind }
    }

    fn fork(parent: u32, child: u32) -> ProcessEvent {
        event(child, ProcessEventKind::Fork { parent: Pid(parent), is_thread: false })
    }

    fn exit(pid: u32) -> ProcessEvent {
        event(pid, ProcessEventKind::Exit { tid: Tid(pid) })
    }

    #[test]
    fn a_child_is_in_scope_when_its_parent_is() {
        let mut scope = Scope::Processes(HashSet::from([10]));
        assert!(scope.admits(&fork(10, 11)));
        assert!(scope.admits(&exit(11)));
        assert!(!scope.admits(&fork(9, 12)));
        assert!(!scope.admits(&exit(12)));
        scope.exited(11);
        assert!(!scope.admits(&exit(11)));
        scope.exited(10);
        assert!(scope.is_empty());
    }

    #[test]
    fn no_event_of_a_foreign_namespace_is_admitted() {
        for pid in [0, u32::MAX] {
            assert!(!Scope::Node.admits(&exit(pid)));
        }
    }
}
