//! The run time of our programs, as measured by the kernel.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use libbpf_rs::libbpf_sys;

/// Makes the kernel measure the run time of all programs on the machine until the result is dropped (`BPF_ENABLE_STATS`,
/// Linux 5.8). This adds two clock reads to each run.
///
/// # Errors
/// Without CAP_SYS_ADMIN.
pub fn measure_run_time() -> io::Result<OwnedFd> {
    // SAFETY: the call takes an integer and accesses no memory of ours.
    let fd = unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) };
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: the kernel just created this descriptor, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The total run time of a program since it was loaded; `None` if the kernel didn't measure it.
pub(crate) fn run_time(program: BorrowedFd<'_>) -> Option<Duration> {
    let about = fs::read_to_string(format!("/proc/self/fdinfo/{}", program.as_raw_fd())).ok()?;
    let number =
        |key: &str| about.lines().find_map(|line| line.strip_prefix(key)?.trim().parse::<u64>().ok());
    (number("run_cnt:")? > 0).then(|| number("run_time_ns:").map(Duration::from_nanos))?
}
