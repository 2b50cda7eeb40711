//! Links of programs that are iterators, and iterators of links: each read from one runs the program for some tasks.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libbpf_rs::libbpf_sys;
use rustix::io::Errno;

/// The kernel's buffer for an iterator's output (`bpf_seq_read` in kernel/bpf/bpf_iter.c): a larger one is never filled.
const OUTPUT_BYTES: usize = 32 << 10;

/// Links an iterator to one task (Linux 6.1), or to all tasks in the PID namespace of the thread that creates the iterator.
pub(crate) fn link(program: BorrowedFd<'_>, tid: Option<u32>) -> io::Result<OwnedFd> {
    let mut task = libbpf_sys::bpf_iter_link_info::default();
    task.task = libbpf_sys::bpf_iter_link_info__bindgen_ty_3 { tid: tid.unwrap_or(0), ..Default::default() };
    let is_for_one = tid.is_some();
    let options = libbpf_sys::bpf_link_create_opts {
        sz: size_of::<libbpf_sys::bpf_link_create_opts>() as _,
        iter_info: if is_for_one { &raw mut task } else { std::ptr::null_mut() },
        iter_info_len: if is_for_one { size_of::<libbpf_sys::bpf_iter_link_info>() as _ } else { 0 },
        ..Default::default()
    };
    let program = program.as_raw_fd();
    // SAFETY: the options and what they point to outlive the call.
    let link =
        unsafe { libbpf_sys::bpf_link_create(program, 0, libbpf_sys::BPF_TRACE_ITER, &raw const options) };
    if link < 0 {
        return Err(io::Error::from_raw_os_error(-link));
    }
    // SAFETY: the call above has just created this descriptor, for us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(link) })
}

/// Creates an iterator. What it passes over is not fixed before it is read.
pub(crate) fn create(link: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    // SAFETY: the call takes no pointer.
    let iterator = unsafe { libbpf_sys::bpf_iter_create(link.as_raw_fd()) };
    if iterator < 0 {
        return Err(io::Error::from_raw_os_error(-iterator));
    }
    // SAFETY: the call above has just created this descriptor, for us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(iterator) })
}

/// Runs the program for everything that an iterator passes over, and passes each part of its output to `take`: whole
/// writes of the program.
pub(crate) fn run(link: &OwnedFd, mut take: impl FnMut(&[u8])) -> io::Result<()> {
    let iterator = create(link.as_fd())?;
    let mut output = vec![0; OUTPUT_BYTES];
    loop {
        match rustix::io::read(&iterator, &mut output) {
            Ok(0) => return Ok(()),
            Ok(bytes) => take(output.get(..bytes).unwrap_or_default()),
            // After a million tasks without output.
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
