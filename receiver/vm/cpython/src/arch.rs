//! Differences between architectures: the machine code that tells where CPython keeps a thread's state.

use std::ops::Range;

use sidewinder_address::Svma;
use sidewinder_process::tls::TlsGotEntry;

#[cfg(any(target_arch = "aarch64", test))]
#[cfg_attr(not(target_arch = "aarch64"), expect(unused, reason = "only its tests use it here"))]
mod aarch64;
mod value;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
use self::aarch64 as host;
#[cfg(target_arch = "x86_64")]
use self::x86_64 as host;

pub(crate) use host::{
    CodePart, ENTRY_CFA, FUNCTION_BYTES_MAX, READS_ASSIGNMENTS, TABLE_CALL_BYTES, activations, calls_through,
    dispatch_table, first_argument, jumps_out, thread_local, unlinked_code,
};

/// The fields by which frames are linked, as offsets in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FrameLink {
    /// In a thread's state: the address of the structure with its current frame, if that isn't in the state itself.
    pub(crate) cframe: Option<u16>,
    /// In a thread's state or in that structure: its current frame.
    pub(crate) current_frame: u16,
    /// In a frame: its caller's.
    pub(crate) previous: u16,
}

/// Code from where a frame becomes the thread's current one to the call through the table that executes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Activation {
    pub(crate) code: Range<u64>,
    /// Whether the call is in it; otherwise it is executed seldom, and jumps to code that has the call.
    pub(crate) has_call: bool,
}

/// How code refers to a thread-local variable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ThreadLocal {
    /// At this offset from the thread pointer.
    Static(i64),
    /// By words that the dynamic linker fills in.
    Got(TlsGotEntry),
}

/// How code refers to an object whose address it passes, or which it passes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Argument {
    /// The address of the byte at an offset from the address that a word of the file refers to.
    ThroughWord(Svma, u32),
    /// The address itself.
    Address(Svma),
    /// The 4-byte value at an address.
    Value(Svma),
    /// The 4-byte value at an offset from the address that a word of the file refers to.
    ValueThroughWord(Svma, u32),
}
