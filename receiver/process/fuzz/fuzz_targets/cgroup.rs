//! Any bytes as `/proc/PID/cgroup`: every result is a valid ID or UID.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sidewinder_process::{container_id, pod_uid, session_uid, systemd_unit};

fuzz_target!(|cgroup: &[u8]| {
    let _ = (systemd_unit(cgroup), session_uid(cgroup));
    if let Some(id) = container_id(cgroup) {
        assert_eq!(id.as_str().len(), 64);
    }
    if let Some(uid) = pod_uid(cgroup) {
        assert_eq!((uid.len(), uid.matches('-').count()), (36, 4));
    }
});
