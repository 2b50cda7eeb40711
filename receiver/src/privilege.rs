//! Privileges: taken up where the system offers them, kept by as few threads as need them, for as long as they do.
//!
//! Capabilities belong to threads (capabilities(7)). The binary of an image carries them as permitted only, so that it also
//! starts where some are refused; whoever needs them raises them. Once sampling is under way the opener
//! ([`Opener`](sidewinder_bpf::Opener)) alone keeps all; the threads that look at processes keep what looking takes; every
//! other one has none.

use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_no_new_privs};
use tracing::warn;

/// Nothing.
pub(crate) const NONE: CapabilitySet = CapabilitySet::empty();
/// What looking at processes of other users takes.
pub(crate) const LOOKING: CapabilitySet = CapabilitySet::SYS_PTRACE;
/// What the kernel's own addresses take.
pub(crate) const KERNEL_SYMBOLS: CapabilitySet = CapabilitySet::SYSLOG;

/// Puts into effect what this process is permitted. Threads that it starts have the same.
pub(crate) fn raise() {
    change(|sets| CapabilitySets { effective: sets.permitted, ..sets });
}

/// Gives up, for good, what this process could gain by executing another program.
pub(crate) fn gain_no_more() {
    if let Err(error) = set_no_new_privs(true) {
        warn!(%error, "can't set no_new_privs");
    }
}

/// As [`keep`], on a thread that goes on to change maps. Before Linux 6.0 some kernels refuse any use of bpf(2) to who
/// lacks `CAP_BPF`: there it is kept too. `works` tries such a use.
pub(crate) fn keep_while(kept: CapabilitySet, works: impl Fn() -> bool) {
    let mut before = CapabilitySet::empty();
    change(|sets| {
        before = sets.effective;
        CapabilitySets { effective: sets.effective & kept, ..sets }
    });
    if works() {
        keep(kept);
    } else {
        change(|sets| CapabilitySets { effective: before, ..sets });
        keep(kept | CapabilitySet::BPF);
    }
}

/// Gives up, for good, all capabilities that this thread has but these.
pub(crate) fn keep(kept: CapabilitySet) {
    change(|sets| CapabilitySets {
        effective: sets.effective & kept,
        permitted: sets.permitted & kept,
        inheritable: CapabilitySet::empty(),
    });
}

/// Changes the capabilities of this thread. A change to fewer is never refused; where the system knows none there is
/// nothing to change.
fn change(to: impl FnOnce(CapabilitySets) -> CapabilitySets) {
    let Ok(sets) = capabilities(None) else { return };
    if let Err(error) = set_capabilities(None, to(sets)) {
        warn!(%error, "can't change capabilities");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on_a_thread_of_its_own<T: Send>(run: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|threads| threads.spawn(run).join().unwrap())
    }

    #[test]
    fn what_is_dropped_can_not_be_raised_again() {
        let left = on_a_thread_of_its_own(|| {
            keep(NONE);
            raise();
            capabilities(None).unwrap()
        });
        assert!(left.effective.is_empty() && left.permitted.is_empty(), "{left:?}");
        let left = on_a_thread_of_its_own(|| {
            raise();
            keep(LOOKING);
            capabilities(None).unwrap()
        });
        assert!(LOOKING.contains(left.permitted) && left.effective == left.permitted, "{left:?}");
    }

    #[test]
    fn maps_stay_within_reach() {
        let left = |works| {
            on_a_thread_of_its_own(move || {
                raise();
                keep_while(LOOKING, || works);
                capabilities(None).unwrap().effective
            })
        };
        let before = capabilities(None).unwrap().permitted;
        assert_eq!(left(true), before & LOOKING);
        assert_eq!(left(false), before & (LOOKING | CapabilitySet::BPF));
    }
}
