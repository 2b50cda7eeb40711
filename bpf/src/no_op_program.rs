//! A program that does nothing, to try what the kernel offers.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use libbpf_rs::libbpf_sys;

/// Loads a program of this type that does nothing.
pub(crate) fn no_op_program(
    program_type: libbpf_sys::bpf_prog_type,
    attach_type: libbpf_sys::bpf_attach_type,
) -> io::Result<OwnedFd> {
    const MOVE_0_TO_R0: u8 = 0xb7;
    const EXIT: u8 = 0x95;
    let instruction = |code| libbpf_sys::bpf_insn { code, ..Default::default() };
    let instructions = [instruction(MOVE_0_TO_R0), instruction(EXIT)];
    let mut options = libbpf_sys::bpf_prog_load_opts {
        sz: size_of::<libbpf_sys::bpf_prog_load_opts>() as libbpf_sys::size_t,
        expected_attach_type: attach_type,
        ..Default::default()
    };
    // SAFETY: the texts end with NUL, the instructions have the given count, the options contain their size, and all live
    // during the call.
    let fd = unsafe {
        libbpf_sys::bpf_prog_load(
            program_type,
            std::ptr::null(),
            c"GPL".as_ptr(),
            instructions.as_ptr(),
            instructions.len() as libbpf_sys::size_t,
            &raw mut options,
        )
    };
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: the kernel just created this descriptor, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
