//! Differences between architectures: ELF constants, and the layout of thread-local storage.
//!
//! The unit tests of all architectures run on any of them.

#[cfg(any(target_arch = "aarch64", test))]
#[cfg_attr(not(target_arch = "aarch64"), expect(unused, reason = "only its tests use it here"))]
mod aarch64;
#[cfg(any(target_arch = "x86_64", test))]
#[cfg_attr(not(target_arch = "x86_64"), expect(unused, reason = "only its tests use it here"))]
mod x86_64;

#[cfg(target_arch = "aarch64")]
use self::aarch64 as host;
#[cfg(target_arch = "x86_64")]
use self::x86_64 as host;

pub(crate) use host::{
    DTPMOD, GO_G_OFFSET, GO_G_SYMBOL, MACHINE, STATIC_OFFSETS, TLSDESC, TPOFF, offset_in_program,
};

/// Static offsets are smaller, and nothing is mapped below this address (`vm.mmap_min_addr`), so a word can hold either.
pub(crate) const LEAST_POINTER: u64 = 0x1_0000;
