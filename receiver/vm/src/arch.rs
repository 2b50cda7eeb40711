//! Differences between architectures: the machine code that tells where a runtime keeps a thread's state, and the C library's
//! layout of a thread.

mod x86_64;

pub(crate) use self::x86_64::{
    CodePart, ENTRY_CFA, FUNCTION_BYTES_MAX, GLIBC_FIRST_KEYS, GLIBC_KEY_BLOCKS, MUSL_KEYS, first_argument,
    jumps_out, thread_local, unlinked_code,
};

use sidewinder_address::Svma;
use sidewinder_process::tls::TlsGotEntry;

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
