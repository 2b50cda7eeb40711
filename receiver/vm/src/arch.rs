//! Differences between architectures: the machine code that tells where a runtime keeps a thread's state, and the C library's
//! layout of a thread.

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

#[cfg(test)]
pub(crate) use host::instructions;
#[cfg(all(any(test, feature = "test-support"), target_arch = "x86_64"))]
pub(crate) use host::wasm_code;
pub(crate) use host::{
    CodePart, ENTRY_CFA, FUNCTION_BYTES_MAX, INSTRUCTION_BYTES_MAX, JumpTable, READS_ASSIGNMENTS,
    TABLE_CALL_BYTES, WALKED, WASM_ALIGNMENT, WASM_START_BYTES, activations, calls_through, dispatch_table,
    first_argument, interpreted_frame, jumps_out, offset_of_pthread, pthread_layout, step, thread_local,
    unlinked_code, wasm_counted_number, wasm_start,
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

/// Frames of HotSpot's interpreter, as far as they depend on its version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InterpretedFrame {
    /// How far below the frame pointer the address of the bytecode is, in bytes.
    pub bytecode: u8,
    /// The register with the caller's stack pointer at the entry of a method, by its number in DWARF.
    pub sender_sp: u8,
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

/// How a function of WebAssembly begins.
#[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "only code of x86-64 is read"))]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WasmStart {
    /// It makes a frame with this number in the place of a context, which says what the function is.
    Frame(u16),
    /// It says its number among the functions that its module declares.
    Numbered(u32),
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
