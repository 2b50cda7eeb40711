//! The two ways in which the kernel places a program of ours in other programs.
//!
//! Since Linux 6.6, a link does it (`BPF_TRACE_UPROBE_MULTI`), which takes a file and offsets, and needs no more privileges
//! than the program itself. Before, it takes a perf event, which some of the kernels since 6.15, and those with the same fix,
//! give only to `CAP_SYS_ADMIN`.

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;

use libbpf_rs::libbpf_sys;
use perf_event_open_sys as sys;
use rustix::io::Errno;
use sys::bindings as perf;

use super::error::{UPROBE_EVENTS, UserProbeError};
use super::site::UserProbeSite;
use crate::no_op_program::no_op_program;

/// `BPF_F_UPROBE_MULTI_RETURN`: at the returns of functions.
const MULTI_RETURN: u32 = 1;

/// How a program is placed in others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AttachWay {
    /// By a link.
    Link,
    /// By a perf event.
    PerfEvent,
}

impl AttachWay {
    /// The one that this kernel has. Requires the privileges to load programs.
    pub(crate) fn supported() -> Self {
        if has_links().unwrap_or(false) { Self::Link } else { Self::PerfEvent }
    }
}

/// A place for a program, for the tasks that execute it.
#[derive(Debug)]
pub(crate) struct PlaceRequest {
    pub(crate) file: Arc<File>,
    pub(crate) site: UserProbeSite,
    /// The process whose memory is probed; `None`: that of every process that maps the file.
    pub(crate) process: Option<u32>,
    /// The program, and the cookie of this place, to create a link; `None`: only a perf event is opened.
    pub(crate) link: Option<(OwnedFd, u64)>,
}

impl PlaceRequest {
    /// Creates the link, or opens the perf event.
    pub(crate) fn open(&self) -> Result<OwnedFd, UserProbeError> {
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let path = CString::new(path).map_err(|error| UserProbeError::Refused(error.into()))?;
        match &self.link {
            Some((program, cookie)) => {
                let (offset, semaphore) = (self.site.offset.0, self.site.semaphore.map_or(0, |at| at.0));
                let link = libbpf_sys::bpf_link_create_opts__bindgen_ty_1__bindgen_ty_3 {
                    flags: if self.site.is_return { MULTI_RETURN } else { 0 },
                    cnt: 1,
                    path: path.as_ptr(),
                    offsets: &raw const offset,
                    ref_ctr_offsets: &raw const semaphore,
                    cookies: &raw const *cookie,
                    pid: self.process.unwrap_or(0),
                    ..Default::default()
                };
                // SAFETY: the path, and each array of one element, live until the end of this block.
                unsafe { create_link(program.as_raw_fd(), link) }.map_err(UserProbeError::Refused)
            }
            None => self.open_event(&path),
        }
    }

    fn open_event(&self, path: &CString) -> Result<OwnedFd, UserProbeError> {
        let type_ =
            fs::read_to_string(format!("{UPROBE_EVENTS}/type")).map_err(UserProbeError::Unsupported)?;
        let invalid = || UserProbeError::Unsupported(io::ErrorKind::InvalidData.into());
        let mut attr = perf::perf_event_attr {
            type_: type_.trim().parse().map_err(|_| invalid())?,
            size: size_of::<perf::perf_event_attr>() as u32,
            ..Default::default()
        };
        // The bits of `config` are in /sys/bus/event_source/devices/uprobe/format, the same since Linux 4.20.
        let semaphore = self.site.semaphore.map_or(0, |at| at.0);
        let semaphore = u32::try_from(semaphore).map_err(|_| invalid())?;
        attr.config = u64::from(self.site.is_return) | u64::from(semaphore) << 32;
        attr.__bindgen_anon_3.config1 = path.as_ptr() as u64;
        attr.__bindgen_anon_4.config2 = self.site.offset.0;
        let process = self.process.and_then(|pid| i32::try_from(pid).ok());
        let (pid, cpu) = process.map_or((-1, 0), |pid| (pid, -1));
        let flags = u64::from(perf::PERF_FLAG_FD_CLOEXEC);
        // SAFETY: `attr` is a complete perf_event_attr that contains its size; it and the path that it points to live during
        // the call.
        let fd = unsafe { sys::perf_event_open(&mut attr, pid, cpu, -1, flags) };
        if fd < 0 {
            return Err(UserProbeError::Refused(io::Error::last_os_error()));
        }
        // SAFETY: the kernel just created this descriptor, and nobody else has it.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }
}

/// Creates a link of a program to places in a file.
///
/// # Safety
/// The pointers in `link` must be null or point to `cnt` elements, and that of the path to a text that ends with NUL.
unsafe fn create_link(
    program: i32,
    link: libbpf_sys::bpf_link_create_opts__bindgen_ty_1__bindgen_ty_3,
) -> io::Result<OwnedFd> {
    let options = libbpf_sys::bpf_link_create_opts {
        sz: size_of::<libbpf_sys::bpf_link_create_opts>() as libbpf_sys::size_t,
        __bindgen_anon_1: libbpf_sys::bpf_link_create_opts__bindgen_ty_1 { uprobe_multi: link },
        ..Default::default()
    };
    // SAFETY: the options contain their size, and the caller vouches for the pointers in them.
    let fd = unsafe {
        libbpf_sys::bpf_link_create(program, -1, libbpf_sys::BPF_TRACE_UPROBE_MULTI, &raw const options)
    };
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: the kernel just created this descriptor, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Whether links can place programs in others, in all threads of a process: the kernel refuses a directory, and a process
/// that can't exist, each with its own error. (The first kernels with these links took a process for a thread.)
fn has_links() -> io::Result<bool> {
    let program = no_op_program(libbpf_sys::BPF_PROG_TYPE_KPROBE, libbpf_sys::BPF_TRACE_UPROBE_MULTI)?;
    let offset = 0;
    let error_for = |pid| {
        let link = libbpf_sys::bpf_link_create_opts__bindgen_ty_1__bindgen_ty_3 {
            cnt: 1,
            path: c"/".as_ptr(),
            offsets: &raw const offset,
            pid,
            ..Default::default()
        };
        // SAFETY: the path is a constant, and the only array has one element, which lives until the end of the function.
        unsafe { create_link(program.as_raw_fd(), link) }.err().and_then(|error| Errno::from_io_error(&error))
    };
    Ok(error_for(0) == Some(Errno::BADF) && error_for(u32::MAX) == Some(Errno::INVAL))
}

/// Tries whether programs can be placed in others, at the first byte of this program's own file, where no process executes
/// it.
///
/// # Errors
/// Why not.
pub fn probe_user_probes() -> Result<(), UserProbeError> {
    let way = AttachWay::supported();
    let file = File::open("/proc/self/exe").map_err(UserProbeError::Refused)?;
    let site = UserProbeSite {
        offset: sidewinder_address::FileOffset(0),
        semaphore: None,
        is_return: false,
        operand: None,
    };
    let link = match way {
        AttachWay::Link => {
            let program = no_op_program(libbpf_sys::BPF_PROG_TYPE_KPROBE, libbpf_sys::BPF_TRACE_UPROBE_MULTI);
            Some((program.map_err(UserProbeError::Refused)?, 0))
        }
        AttachWay::PerfEvent => None,
    };
    PlaceRequest { file: Arc::new(file), site, process: Some(std::process::id()), link }.open().map(drop)
}

/// A descriptor of our own for a program.
pub(super) fn duplicate(program: BorrowedFd<'_>) -> Result<OwnedFd, UserProbeError> {
    program.try_clone_to_owned().map_err(UserProbeError::Refused)
}
