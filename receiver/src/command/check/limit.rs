//! What limits language runtimes on this machine.

use rustix::thread::{CapabilitySet, capabilities};
use sidewinder_vm::{Runtime, RuntimeSet};

use crate::runtime_advice::MEMORY_ADVICE;

/// What limits a runtime here: what is lost, and the next step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Limit {
    pub(super) why: &'static str,
    pub(super) next: &'static str,
}

/// What limits walked runtimes here: they are found in the files of their processes.
pub(super) fn file_limit() -> Option<Limit> {
    let is_held = capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_PTRACE));
    (!is_held).then_some(Limit {
        why: "can't open files of other users' processes or, with kernel.yama.ptrace_scope, of this user's",
        next: MEMORY_ADVICE,
    })
}

/// What limits a runtime whose frames can't be walked on this architecture.
const NOT_WALKED: Limit = Limit {
    why: "not supported on this architecture yet: stacks show only native frames, and end in code that it generates",
    next: "profile it on x86-64 instead",
};

/// What limits this runtime on this architecture.
pub(super) fn architecture_limit(runtime: Runtime) -> Option<Limit> {
    let is_walked = !RuntimeSet::ALL.has(runtime) || RuntimeSet::WALKED.has(runtime);
    (!is_walked).then_some(NOT_WALKED)
}
