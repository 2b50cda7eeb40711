//! Why the kernel denies what takes privileges: what of it a process can tell of itself.

use std::fs;

use rustix::thread::{CapabilitySet, capabilities};

/// As `/proc/PID/uid_map` has the user namespace of the machine.
const ALL_USERS: [&str; 3] = ["0", "0", "4294967295"];
/// As in `/proc/PID/status`: system calls pass a filter.
const FILTERED: &str = "Seccomp:\t2";

/// Whether this thread has the capabilities that loading programs takes: `CAP_BPF` with `CAP_PERFMON`, or `CAP_SYS_ADMIN`.
pub(crate) fn is_privileged() -> bool {
    let has = |wanted| capabilities(None).is_ok_and(|sets| sets.effective.contains(wanted));
    has(CapabilitySet::BPF | CapabilitySet::PERFMON) || has(CapabilitySet::SYS_ADMIN)
}

/// What is in the way of privileges, and what to do about it, where it shows. Asked when the kernel has refused something.
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
