//! Finds out why the kernel denies privileged operations, as far as a process can find out about itself.

use std::fs;

use rustix::thread::{CapabilitySet, capabilities};

/// `/proc/PID/uid_map` in the initial user namespace.
const ALL_USERS: [&str; 3] = ["0", "0", "4294967295"];
/// The line in `/proc/PID/status` if a seccomp filter is active.
const FILTERED: &str = "Seccomp:\t2";

/// Whether this thread has the capabilities to load programs: `CAP_BPF` with `CAP_PERFMON`, or `CAP_SYS_ADMIN`.
pub(crate) fn is_privileged() -> bool {
    let has = |wanted| capabilities(None).is_ok_and(|sets| sets.effective.contains(wanted));
    has(CapabilitySet::BPF | CapabilitySet::PERFMON) || has(CapabilitySet::SYS_ADMIN)
}

/// Why privileges may have no effect, with a remedy, if that can be determined. For use after the kernel refused something.
pub(crate) fn denial_reason() -> Option<&'static str> {
    let text = |path| fs::read_to_string(path).unwrap_or_default();
    let users = text("/proc/self/uid_map");
    if !users.is_empty() && !users.split_whitespace().eq(ALL_USERS) {
        return Some(
            "capabilities count for nothing here, in a user namespace: leave hostUsers: false out of the pod's spec",
        );
    }
    let is_filtered = text("/proc/thread-self/status").lines().any(|line| line == FILTERED);
    (is_filtered && is_privileged()).then_some(
        "the capabilities are there, so it may be a seccomp filter that refuses: it has to allow bpf and \
         perf_event_open, as RuntimeDefault does",
    )
}

/// The same after the kernel refused to open an event. Debian's kernels have a level above those of others, at which
/// `CAP_PERFMON` doesn't help (`security,perf: Allow further restriction of perf_event_open`), and it is their default.
pub(crate) fn denial_reason_of_events() -> Option<&'static str> {
    let level = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
    let is_restricted = level.trim().parse().is_ok_and(|level: i32| level > 2);
    let is_admin = capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN));
    let by_level = (is_restricted && is_privileged() && !is_admin).then_some(
        "kernel.perf_event_paranoid is above 2, and then Debian's kernels allow no events without CAP_SYS_ADMIN: set it to 2",
    );
    denial_reason().or(by_level)
}
