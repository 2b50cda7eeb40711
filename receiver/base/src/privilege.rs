//! Privileges: raised where the system permits them, held by as few threads as need them, and dropped as early as possible.
//!
//! Capabilities belong to threads (capabilities(7)). The binary of an image has them as file capabilities, permitted only,
//! so that it also starts where some are refused; the process raises them itself. Once the service samples, its threads have
//! at most these, permitted as well as effective, and no inheritable ones. An end-to-end test checks this table.
//!
//! | thread | capabilities | for |
//! |---|---|---|
//! | `opener`, and `probe` for a moment | [`OPENER`]; `CAP_SYS_ADMIN` too on Debian's Linux 5.10 ([`restrict_opener`]) | events, maps and the programs that read memory; cgroups of containers, through the roots of other users' processes; the capabilities of the next two, which it starts |
//! | `report` | [`PROCESS_ACCESS`], [`KERNEL_SYMBOLS`] | files in which runtimes name their code; names of the kernel |
//! | `sample` | [`PROCESS_ACCESS`], [`MAP_FILES`]; `CAP_BPF` too on some kernels before 6.0 ([`drop_all_but_while`]) | files of other users' processes |
//! | `tables`, `large-tables` | [`PROCESS_ACCESS`] | debug files in the roots of processes |
//! | `probes` | [`PROCESS_ACCESS`] | files of probes in the roots of processes |
//! | `reader` | [`PROCESS_ACCESS`] | mappings of other users' processes, and before Linux 6.1 their memory ([`crate::foreign`]) |
//! | every other one | none | |
//!
//! So a service that runs as root, on a host or in a pod, can read only those files of other users whose mode lets everybody
//! or user ID 0 read them: `CAP_DAC_OVERRIDE` and `CAP_DAC_READ_SEARCH` are dropped. What needs `CAP_SYS_ADMIN` (measuring
//! the run time of eBPF programs) is done before. The other threads of `record` and `top` keep the capabilities of their
//! user, as perf(1) does: they write files, and run commands, for that user.

use std::io;

use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, remove_capability_from_bounding_set, set_capabilities,
    set_no_new_privs,
};
use sidewinder_bpf::{Opener, can_create_maps, can_open_events};
use tracing::warn;

/// No capabilities.
pub const NONE: CapabilitySet = CapabilitySet::empty();
/// For access to processes of other users.
pub const PROCESS_ACCESS: CapabilitySet = CapabilitySet::SYS_PTRACE;
/// For the addresses of kernel symbols.
pub const KERNEL_SYMBOLS: CapabilitySet = CapabilitySet::SYSLOG;
/// For `/proc/PID/map_files`, and so for mapped files that have been unlinked, such as libraries that an upgrade replaced.
/// Pods don't have it; root on a host does.
pub const MAP_FILES: CapabilitySet = CapabilitySet::CHECKPOINT_RESTORE;
/// For the opener, and the threads that it starts.
pub(crate) const OPENER: CapabilitySet = CapabilitySet::BPF
    .union(CapabilitySet::PERFMON)
    .union(PROCESS_ACCESS)
    .union(KERNEL_SYMBOLS)
    .union(MAP_FILES);

/// Makes all permitted capabilities effective. Threads that this one starts inherit that.
pub fn raise() {
    change_capabilities(|sets| CapabilitySets { effective: sets.permitted, ..sets });
}

/// Permanently prevents this process from gaining privileges by executing another program. Must be called while the process
/// has one thread: it affects this thread and those that it starts.
pub fn set_no_new_privileges() {
    if let Err(error) = set_no_new_privs(true) {
        warn!(%error, "can't set no_new_privs");
    }
    for capability in CapabilitySet::all().iter() {
        // Refused without CAP_SETPCAP: then the bounding set stays as the parent process left it.
        let _ = remove_capability_from_bounding_set(capability);
    }
}

/// Permanently drops all privileges of the opener but those that it needs.
///
/// # Errors
/// If its thread has ended.
pub fn restrict_opener(opener: &Opener) -> io::Result<()> {
    // Debian's kernels have level 3 of kernel.perf_event_paranoid as their default, which CAP_PERFMON does not override.
    opener.reduce_privileges(|| {
        lift_memory_lock_limit();
        drop_all_but_or_add(OPENER, CapabilitySet::SYS_ADMIN, can_open_events);
    })
}

/// Lifts the limit of locked memory if it prevents maps: before Linux 5.11, maps count as locked memory, and the limit is
/// usually 64 KiB. This needs a privilege that is dropped next.
fn lift_memory_lock_limit() {
    if !can_create_maps() {
        let unlimited = Rlimit { current: None, maximum: None };
        // If this is refused, creating the maps fails later, with an error.
        let _ = setrlimit(Resource::Memlock, unlimited);
    }
}

/// Like [`drop_all_but`], on a thread that continues to change maps. Some kernels before Linux 6.0 refuse every use of
/// bpf(2) without `CAP_BPF`: there it is kept too. `works` tries such a use.
pub fn drop_all_but_while(kept: CapabilitySet, works: impl Fn() -> bool) {
    drop_all_but_or_add(kept, CapabilitySet::BPF, works);
}

/// Like [`drop_all_but`], but also keeps `added` if `works` fails without it.
fn drop_all_but_or_add(kept: CapabilitySet, added: CapabilitySet, works: impl Fn() -> bool) {
    let works_with = |capabilities| {
        change_capabilities(|sets| CapabilitySets { effective: sets.permitted & capabilities, ..sets });
        works()
    };
    let kept = if works_with(kept) { kept } else { kept | added };
    change_capabilities(|sets| CapabilitySets { effective: sets.permitted & kept, ..sets });
    drop_all_but(kept);
}

/// Permanently drops all capabilities of this thread but these.
pub fn drop_all_but(kept: CapabilitySet) {
    change_capabilities(|sets| CapabilitySets {
        effective: sets.effective & kept,
        permitted: sets.permitted & kept,
        inheritable: CapabilitySet::empty(),
    });
}

/// Changes the capabilities of this thread. Dropping some is never refused. Without support for capabilities, does nothing.
fn change_capabilities(to: impl FnOnce(CapabilitySets) -> CapabilitySets) {
    let Ok(sets) = capabilities(None) else { return };
    if let Err(error) = set_capabilities(None, to(sets)) {
        warn!(%error, "can't change capabilities");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on_own_thread<T: Send>(run: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|threads| threads.spawn(run).join().unwrap())
    }

    #[test]
    fn dropped_capabilities_cant_be_raised_again() {
        let remaining = on_own_thread(|| {
            drop_all_but(NONE);
            raise();
            capabilities(None).unwrap()
        });
        assert!(remaining.effective.is_empty() && remaining.permitted.is_empty(), "{remaining:?}");
        let remaining = on_own_thread(|| {
            raise();
            drop_all_but(PROCESS_ACCESS);
            capabilities(None).unwrap()
        });
        assert!(
            PROCESS_ACCESS.contains(remaining.permitted) && remaining.effective == remaining.permitted,
            "{remaining:?}"
        );
    }

    #[test]
    fn a_thread_of_the_opener_has_no_more_than_the_opener() {
        let opener = Opener::start().unwrap();
        restrict_opener(&opener).unwrap();
        let remaining = opener.spawn("test", || capabilities(None).unwrap()).unwrap().join().unwrap();
        assert!(
            OPENER.contains(remaining.permitted) && OPENER.contains(remaining.effective),
            "{remaining:?}"
        );
        assert!(remaining.inheritable.is_empty(), "{remaining:?}");
        let before = capabilities(None).unwrap().permitted;
        assert_eq!(remaining.permitted, before & OPENER);
    }

    #[test]
    fn cap_bpf_is_kept_only_if_maps_need_it() {
        let remaining = |works| {
            on_own_thread(move || {
                raise();
                drop_all_but_while(PROCESS_ACCESS, || works);
                capabilities(None).unwrap().effective
            })
        };
        let before = capabilities(None).unwrap().permitted;
        assert_eq!(remaining(true), before & PROCESS_ACCESS);
        assert_eq!(remaining(false), before & (PROCESS_ACCESS | CapabilitySet::BPF));
    }
}
