//! Which running processes are children of which, from `/proc/PID/stat`.

use std::collections::HashMap;

use crate::id::Pid;
use crate::procfs::{ProcRoot, ProcessDir, ProcfsError};

/// A process that was running when its parent was read. A later process with the same PID has another start time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RunningProcess {
    /// Its PID.
    pub pid: Pid,
    /// When it started: clock ticks after boot.
    pub start_ticks: u64,
}

/// The running processes, by their parents.
///
/// An orphan is a child of the process that has adopted it: `/proc` doesn't show who started it.
#[derive(Debug)]
pub struct ProcessTree {
    proc_root: ProcRoot,
    processes: HashMap<Pid, RunningProcess>,
    children: HashMap<Pid, Vec<RunningProcess>>,
}

impl ProcessTree {
    /// Reads all running processes. A process that can't be read has ended, or is hidden from us.
    ///
    /// # Errors
    /// If the processes can't be listed.
    pub fn read(proc_root: ProcRoot) -> Result<Self, ProcfsError> {
        let (mut processes, mut children) = (HashMap::new(), HashMap::<_, Vec<_>>::new());
        for pid in proc_root.pids()? {
            let Ok(state) = ProcessDir::open(&proc_root, pid).and_then(|process| process.state()) else {
                continue;
            };
            if !state.has_ended() {
                let process = RunningProcess { pid, start_ticks: state.start_ticks };
                processes.insert(pid, process);
                children.entry(state.parent).or_default().push(process);
            }
        }
        Ok(Self { proc_root, processes, children })
    }

    /// The process that had this PID.
    #[must_use]
    pub fn process(&self, pid: Pid) -> Option<RunningProcess> {
        self.processes.get(&pid).copied()
    }

    /// The processes whose parent had this process's PID, and which are not older than it. Its PID may have been another
    /// process's while they were read.
    pub fn possible_children(&self, parent: RunningProcess) -> impl Iterator<Item = RunningProcess> {
        let children = self.children.get(&parent.pid).into_iter().flatten();
        children.copied().filter(move |child| child.start_ticks >= parent.start_ticks)
    }

    /// The children of a process; none if it has ended since, because a child may then be that of a later process with its PID.
    #[must_use]
    pub fn children(&self, parent: RunningProcess) -> Vec<RunningProcess> {
        let children: Vec<_> = self.possible_children(parent).collect();
        let is_running = || {
            let state = ProcessDir::open(&self.proc_root, parent.pid).and_then(|process| process.state());
            state.is_ok_and(|state| state.start_ticks == parent.start_ticks)
        };
        if children.is_empty() || is_running() { children } else { Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    fn write(root: &Path, pid: u32, state: char, parent: u32, start_ticks: u64) {
        let stat =
            format!("{pid} (a) {state} {parent} 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {start_ticks} 0 0");
        fs::create_dir_all(root.join(pid.to_string())).unwrap();
        fs::write(root.join(format!("{pid}/stat")), stat).unwrap();
    }

    fn pids(children: &[RunningProcess]) -> Vec<u32> {
        let mut pids: Vec<u32> = children.iter().map(|child| child.pid.0).collect();
        pids.sort_unstable();
        pids
    }

    #[test]
    fn running_processes_are_children_of_their_parent() {
        let root = tempfile::tempdir().unwrap();
        for (pid, state, parent, start_ticks) in [
            (1, 'S', 0, 1),
            (7, 'S', 1, 100),
            (8, 'R', 7, 100),
            (9, 'S', 7, 200),
            (10, 'Z', 7, 200),
            (11, 'S', 7, 99),
            (12, 'S', 8, 300),
        ] {
            write(root.path(), pid, state, parent, start_ticks);
        }
        let tree = ProcessTree::read(ProcRoot(root.path().into())).unwrap();
        let children = |pid| pids(&tree.children(tree.process(Pid(pid)).unwrap()));
        assert_eq!(children(7), [8, 9], "neither what has ended nor what is older than its parent");
        assert_eq!((children(8), children(12)), (vec![12], vec![]));
        assert_eq!(tree.process(Pid(10)), None);
    }

    #[test]
    fn a_process_that_has_ended_since_may_not_be_the_parent() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), 7, 'S', 1, 100);
        write(root.path(), 8, 'S', 7, 200);
        let tree = ProcessTree::read(ProcRoot(root.path().into())).unwrap();
        let parent = tree.process(Pid(7)).unwrap();
        assert_eq!(pids(&tree.children(parent)), [8]);
        write(root.path(), 7, 'S', 1, 150);
        assert_eq!(pids(&tree.children(parent)), [] as [u32; 0], "its PID is in use again");
        fs::remove_dir_all(root.path().join("7")).unwrap();
        assert_eq!(pids(&tree.children(parent)), [] as [u32; 0], "it is gone");
        assert_eq!(tree.possible_children(parent).count(), 1);
    }
}
