//! Differences between architectures: the machine code that tells where a runtime keeps a thread's state, and the C library's
//! layout of a thread.

mod x86_64;

#[cfg(test)]
pub(crate) use self::x86_64::instructions;
pub(crate) use self::x86_64::{
    Activation, CodePart, ENTRY_CFA, FUNCTION_BYTES_MAX, GLIBC_FIRST_KEYS, GLIBC_KEY_BLOCKS,
    INSTRUCTION_BYTES_MAX, MUSL_KEYS, TABLE_CALL_BYTES, activations, calls_through, dispatch_table,
    first_argument, jumps_out, step, thread_local, unlinked_code,
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

/// An instruction of generated code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Step {
    /// The address of the next one.
    pub(crate) next: u64,
    /// What is executed after it.
    pub(crate) flow: Flow,
}

/// What is executed after an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flow {
    /// The next one.
    Next,
    /// A function, and then the next one.
    Call,
    /// What is at an address.
    Jump(u64),
    /// The next one, or what is at an address.
    Branch(u64),
    /// What is not known from the instruction: it returns, jumps to an address in a register or in memory, or traps.
    End,
}
