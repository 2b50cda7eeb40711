//! Privileges: taken up where the system offers them, kept by as few threads as need them, for as long as they do.
//!
//! Capabilities belong to threads (capabilities(7)). The binary of an image carries them as permitted only, so that it also
//! starts where some are refused; whoever needs them raises them. Once the service samples, its threads have these at the
//! most, permitted as well as effective, and inherit none. An end-to-end test holds them against this table.
//!
//! | thread | capabilities | for |
//! |---|---|---|
//! | `opener`, and `probe` for a moment | [`OPENER`]; `CAP_SYS_ADMIN` too on Debian's Linux 5.10 ([`restrict_opener`]) | events and maps; cgroups of containers, through the roots of other users' processes; what it hands on to the next two |
//! | `report` | [`PROCESS_ACCESS`], [`KERNEL_SYMBOLS`] | files in which runtimes name their code; names of the kernel |
//! | `sample` | [`PROCESS_ACCESS`], [`MAP_FILES`]; `CAP_BPF` too on some kernels before 6.0 ([`drop_all_but_while`]) | files of other users' processes |
//! | `tables`, `large-tables` | [`PROCESS_ACCESS`] | debug files in the roots of processes |
//! | `reader` | [`PROCESS_ACCESS`] | memory and mappings of other users' processes ([`crate::foreign`]) |
//! | every other one | none | |
//!
//! So a service of root's reads the files of other users that everybody, or root by its number, may read, on a host as in a
//! pod: `CAP_DAC_OVERRIDE` and `CAP_DAC_READ_SEARCH` are given up, and what takes `CAP_SYS_ADMIN` (the time that eBPF
//! programs take) is done before. `record` and `top` keep on their other threads what their user has, as perf(1) does: they
//! write files, and run commands, for that user.

use std::io;

use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, remove_capability_from_bounding_set, set_capabilities,
    set_no_new_privs,
};
use sidewinder_bpf::{Opener, can_create_maps, can_open_events};
use tracing::warn;

/// Nothing.
pub(crate) const NONE: CapabilitySet = CapabilitySet::empty();
/// What looking at processes of other users takes.
pub(crate) const PROCESS_ACCESS: CapabilitySet = CapabilitySet::SYS_PTRACE;
/// What the kernel's own addresses take.
pub(crate) const KERNEL_SYMBOLS: CapabilitySet = CapabilitySet::SYSLOG;
/// What takes `/proc/PID/map_files`, and so mapped files that have lost their names: libraries that an upgrade replaced. No
/// pod is granted it; root on a host has it.
pub(crate) const MAP_FILES: CapabilitySet = CapabilitySet::CHECKPOINT_RESTORE;
/// What the opener takes, and the threads that it starts.
pub(crate) const OPENER: CapabilitySet = CapabilitySet::BPF
    .union(CapabilitySet::PERFMON)
    .union(PROCESS_ACCESS)
    .union(KERNEL_SYMBOLS)
    .union(MAP_FILES);

/// Puts into effect what this process is permitted. Threads that it starts have the same.
pub(crate) fn raise() {
    change_capabilities(|sets| CapabilitySets { effective: sets.permitted, ..sets });
}

/// Gives up, for good, what this process could gain by executing another program. To be called while it has one thread: the
/// others have what they were started with.
pub(crate) fn set_no_new_privileges() {
    if let Err(error) = set_no_new_privs(true) {
        warn!(%error, "can't set no_new_privs");
    }
    for capability in CapabilitySet::all().iter() {
        // Refused without CAP_SETPCAP: whoever started us has then bounded what there is to gain.
        let _ = remove_capability_from_bounding_set(capability);
    }
}

/// Has the opener give up, for good, all but what it is for.
///
/// # Errors
/// When its thread has ended.
pub(crate) fn restrict_opener(opener: &Opener) -> io::Result<()> {
    // Debian's Linux 5.10 has a third level of kernel.perf_event_paranoid, its default, which CAP_PERFMON does not pass.
    opener.reduce_privileges(|| {
        lift_memory_lock_limit();
        drop_all_but_or_add(OPENER, CapabilitySet::SYS_ADMIN, can_open_events);
    })
}

/// Before Linux 5.11, maps count as locked memory, of which processes may have 64 KiB as a rule. Lifting the limit takes a
/// privilege that is given up next; elsewhere it is left alone.
fn lift_memory_lock_limit() {
    if !can_create_maps() {
        let unlimited = Rlimit { current: None, maximum: None };
        // Where that is refused, so are the maps, which is said.
        let _ = setrlimit(Resource::Memlock, unlimited);
    }
}

/// As [`drop_all_but`], on a thread that goes on to change maps. Before Linux 6.0 some kernels refuse any use of bpf(2) to who
/// lacks `CAP_BPF`: there it is kept too. `works` tries such a use.
pub(crate) fn drop_all_but_while(kept: CapabilitySet, works: impl Fn() -> bool) {
    drop_all_but_or_add(kept, CapabilitySet::BPF, works);
}

/// As [`drop_all_but`], and another capability where something doesn't work without.
fn drop_all_but_or_add(kept: CapabilitySet, added: CapabilitySet, works: impl Fn() -> bool) {
    let works_with = |wanted| {
        change_capabilities(|sets| CapabilitySets { effective: sets.permitted & wanted, ..sets });
        works()
    };
    let kept = if works_with(kept) { kept } else { kept | added };
    change_capabilities(|sets| CapabilitySets { effective: sets.permitted & kept, ..sets });
    drop_all_but(kept);
}

/// Gives up, for good, all capabilities that this thread has but these.
pub(crate) fn drop_all_but(kept: CapabilitySet) {
    change_capabilities(|sets| CapabilitySets {
        effective: sets.effective & kept,
        permitted: sets.permitted & kept,
        inheritable: CapabilitySet::empty(),
    });
}

/// Changes the capabilities of this thread. A change to fewer is never refused; where the system knows none there is
/// nothing to change.
fn change_capabilities(to: impl FnOnce(CapabilitySets) -> CapabilitySets) {
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
            drop_all_but(NONE);
            raise();
            capabilities(None).unwrap()
        });
        assert!(left.effective.is_empty() && left.permitted.is_empty(), "{left:?}");
        let left = on_a_thread_of_its_own(|| {
            raise();
            drop_all_but(PROCESS_ACCESS);
            capabilities(None).unwrap()
        });
        assert!(PROCESS_ACCESS.contains(left.permitted) && left.effective == left.permitted, "{left:?}");
    }

    #[test]
    fn what_the_opener_starts_has_no_more_than_the_opener() {
        let opener = Opener::start().unwrap();
        restrict_opener(&opener).unwrap();
        let left = opener.spawn("test", || capabilities(None).unwrap()).unwrap().join().unwrap();
        assert!(OPENER.contains(left.permitted) && OPENER.contains(left.effective), "{left:?}");
        assert!(left.inheritable.is_empty(), "{left:?}");
        let before = capabilities(None).unwrap().permitted;
        assert_eq!(left.permitted, before & OPENER);
    }

    #[test]
    fn maps_stay_within_reach() {
        let left = |works| {
            on_a_thread_of_its_own(move || {
                raise();
                drop_all_but_while(PROCESS_ACCESS, || works);
                capabilities(None).unwrap().effective
            })
        };
        let before = capabilities(None).unwrap().permitted;
        assert_eq!(left(true), before & PROCESS_ACCESS);
        assert_eq!(left(false), before & (PROCESS_ACCESS | CapabilitySet::BPF));
    }
}
