//! How much time our programs take, as the kernel measures it.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use libbpf_rs::libbpf_sys;

/// Makes the kernel measure the time of every program of the machine until what is returned is dropped
/// (`BPF_ENABLE_STATS`, 5.8). It costs each run two readings of the clock.
///
/// # Errors
/// Without CAP_SYS_ADMIN.
pub fn measure_run_time() -> io::Result<OwnedFd> {
    // SAFETY: the call takes a number and touches no memory of ours.
    let fd = unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) };
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: the kernel has just given us this descriptor, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The time of a program's runs since it was loaded; `None` where the kernel has not measured any.
pub(crate) fn run_time(program: BorrowedFd<'_>) -> Option<Duration> {
    let about = fs::read_to_string(format!("/proc/self/fdinfo/{}", program.as_raw_fd())).ok()?;
    let number =
        |key: &str| about.lines().find_map(|line| line.strip_prefix(key)?.trim().parse::<u64>().ok());
    (number("run_cnt:")? > 0).then(|| number("run_time_ns:").map(Duration::from_nanos))?
}
