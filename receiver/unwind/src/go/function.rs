//! Makes the rows of one Go function where a call leaves the return address on the stack.
//!
//! Most functions take bytes off the stack by constants and give them back. Some functions of the runtime deviate from
//! that, and each is handled by what it does ([`GoUnwindMethod`]).

use sidewinder_unwind_table::{Architecture, Entry, ReturnAddress, Rule, SavedRegister, UnsupportedReason};

use super::pclntab::{ByteReader, PclntabFunction, StackDepth};
use crate::arch;

/// Bytes of code that are examined to understand an assembly function. Those that matter are shorter.
pub(super) const MAX_CODE_BYTES: u64 = 1024;

const X86_64: Architecture = Architecture::X86_64;

/// How a function's rows are derived from its stack depths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum GoUnwindMethod {
    /// The CFA is the stack pointer plus the depth.
    ByDepth,
    /// The same, for a function that a signal handler calls on behalf of the code it interrupted: its return address is
    /// that code's next instruction.
    ByDepthAboveInterrupted,
    /// It begins a stack: `goexit` a goroutine's, `mstart` and `rt0_go` a thread's.
    Root,
    /// It leaves its stack for good and continues, by setting the stack pointer, at the bottom of another one: `mcall`
    /// and `morestack` on the thread's system stack (the goroutine may run on another thread meanwhile), `clone`'s
    /// child on its own.
    RootAfterSwitch,
    /// It runs a call on another stack and comes back: `systemstack`, `asmcgocall`, `cgocallback`, `nanotime1`,
    /// `time.now` and others. The frame pointer keeps pointing to the function's own frame, so it leads from the other
    /// stack back to this one; the CFA can't be derived from the stack pointer.
    ByFramePointer,
    /// It sets the stack pointer in an unknown way, or to a goroutine that it resumes (`gogo`).
    EndAfterSwitch,
    /// The kernel's signal frame lies above it: `sigreturn__sigaction`.
    SignalReturn,
}

impl GoUnwindMethod {
    pub(super) fn from_function(function: &PclntabFunction<impl ByteReader>, code: &[u8]) -> Self {
        match Self::from_name(function, &arch::go::PROGRAM_STARTS) {
            Self::EndAfterSwitch => {
                let name = function.name();
                let keeps_frame_pointer = name.starts_with(b"runtime.") || name == b"time.now";
                if keeps_frame_pointer && code.starts_with(&arch::go::PROLOGUE) {
                    Self::ByFramePointer
                } else {
                    Self::EndAfterSwitch
                }
            }
            method => method,
        }
    }

    /// The same, without looking at its code: [`EndAfterSwitch`](Self::EndAfterSwitch) also stands for
    /// [`ByFramePointer`](Self::ByFramePointer).
    pub(super) fn from_name(function: &PclntabFunction<impl ByteReader>, program_starts: &[&[u8]]) -> Self {
        match function.name() {
            b"runtime.sigreturn__sigaction" | b"runtime.sigreturn" => Self::SignalReturn,
            // Go's tracebacks stop at the signal handler, but the kernel called it and it returns.
            b"runtime.sigtramp" | b"runtime.sigprofNonGoWrapper" => Self::ByDepth,
            b"runtime.asyncPreempt" | b"runtime.sigpanic" | b"runtime.sigpanic0" => {
                Self::ByDepthAboveInterrupted
            }
            b"runtime.mcall" | b"runtime.morestack" | b"runtime.clone" => Self::RootAfterSwitch,
            name if program_starts.contains(&name) => Self::Root,
            _ if function.is_top_frame() => Self::Root,
            _ if function.writes_stack_pointer() => Self::EndAfterSwitch,
            _ => Self::ByDepth,
        }
    }

    /// Whether [`rows`] needs the function's code.
    pub(super) fn needs_code(function: &PclntabFunction<impl ByteReader>) -> bool {
        function.is_assembly() || function.writes_stack_pointer()
    }
}

/// How the compiler of this file saves the frame pointer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FramePointerSaving {
    /// It is pushed first, then the rest of the frame is allocated (Go 1.21 and later).
    Push,
    /// The frame is allocated first, then it is stored at the top of the frame (before Go 1.21).
    Store,
}

impl FramePointerSaving {
    /// Detects the method from one compiled function, if it has a frame. `byte` reads code, in bytes from Go's text.
    pub(super) fn detect(
        function: &PclntabFunction<impl ByteReader>,
        byte: impl Fn(u32) -> Option<u8>,
    ) -> Option<Self> {
        if GoUnwindMethod::needs_code(function) {
            return None;
        }
        let framed = function.stack_depths()?.take(4).find(|depth| depth.bytes > 0)?;
        match byte(framed.start.checked_sub(1)?)? {
            arch::go::PUSH_FRAME_POINTER if framed.bytes == 8 => Some(Self::Push),
            _ => Some(Self::Store),
        }
    }
}

/// Where, and in which range, a function keeps its caller's frame pointer.
#[derive(Clone, Copy)]
struct SavedFramePointer {
    /// Bytes from the CFA.
    at_cfa: i32,
    /// It is there while the stack is at least this deep ...
    depth: i32,
    /// ... and from this pc on, in bytes from Go's text: the store comes after the frame is allocated.
    from: u32,
}

impl SavedFramePointer {
    fn find(
        function: &PclntabFunction<impl ByteReader>,
        code: &[u8],
        saving: FramePointerSaving,
    ) -> Option<Self> {
        if GoUnwindMethod::needs_code(function) {
            return Self::find_in_assembly(function, code);
        }
        let framed = function.stack_depths()?.find(|depth| depth.bytes > 0)?;
        match saving {
            FramePointerSaving::Push if framed.bytes == 8 => {
                Some(Self { at_cfa: -16, depth: 8, from: framed.start })
            }
            FramePointerSaving::Push => None,
            FramePointerSaving::Store => {
                let store_bytes = arch::go::frame_pointer_store_bytes(framed.bytes - 8);
                Some(Self {
                    at_cfa: -16,
                    depth: framed.bytes,
                    from: framed.start.saturating_add(store_bytes),
                })
            }
        }
    }

    /// Finds the instruction that saves the frame pointer, wherever the stack gets deeper.
    fn find_in_assembly(function: &PclntabFunction<impl ByteReader>, code: &[u8]) -> Option<Self> {
        let mut depth_before = 0;
        function.stack_depths()?.find_map(|StackDepth { start, bytes: depth, .. }| {
            let grown_by = depth.checked_sub(depth_before)?;
            depth_before = depth;
            let (before, after) = code.split_at_checked((start - function.start) as usize)?;
            let bottom_at_cfa = depth.checked_add(8)?.checked_neg()?;
            if grown_by == 8 && arch::go::ends_with_push_of_frame_pointer(before) {
                return Some(Self { at_cfa: bottom_at_cfa, depth, from: start });
            }
            let (offset, store_bytes) = arch::go::stored_frame_pointer(after).filter(|_| grown_by > 0)?;
            Some(Self { at_cfa: bottom_at_cfa.checked_add(offset)?, depth, from: start + store_bytes })
        })
    }

    fn holds_at(&self, depth: &StackDepth) -> bool {
        depth.bytes >= self.depth && depth.start >= self.from
    }
}

/// Passes the rows of `function` to `sink`, each with its pc in bytes from the start of Go's text, and an end at the
/// end of the last one. `code` is the beginning of the function's code, if [`GoUnwindMethod::needs_code`] requires it.
pub(super) fn rows(
    function: &PclntabFunction<impl ByteReader>,
    code: &[u8],
    saving: FramePointerSaving,
    mut sink: impl FnMut(u32, Entry),
) {
    let treatment = GoUnwindMethod::from_function(function, code);
    let saved = SavedFramePointer::find(function, code, saving);
    let switched_at = match treatment {
        GoUnwindMethod::RootAfterSwitch => {
            arch::go::first_switch(code).map_or(u32::MAX, |at| function.start.saturating_add(at))
        }
        GoUnwindMethod::EndAfterSwitch => {
            arch::go::first_switch(code).map_or(0, |at| function.start.saturating_add(at))
        }
        _ => u32::MAX,
    };
    let after_switch = match treatment {
        GoUnwindMethod::RootAfterSwitch => Entry::Rule(X86_64.root()),
        _ => Entry::unsupported(UnsupportedReason::StackSwitch),
    };
    if treatment == GoUnwindMethod::SignalReturn {
        // A walk looks up the address before the return address, which is this function's start.
        sink(function.start.saturating_sub(1), Entry::Rule(X86_64.kernel_signal_frame()));
    }
    let mut end = function.start;
    for depth in function.stack_depths().into_iter().flatten() {
        end = depth.end;
        // A range must be split where its entry changes for another reason than the depth.
        let prologue_end = function.start.saturating_add(arch::go::PROLOGUE.len() as u32);
        let cuts = [saved.map_or(0, |saved| saved.from), switched_at, prologue_end];
        for start in starts_within(&depth, cuts) {
            let part = StackDepth { start, ..depth };
            let entry = match treatment {
                GoUnwindMethod::Root => Entry::Rule(X86_64.root()),
                GoUnwindMethod::SignalReturn => Entry::Rule(X86_64.kernel_signal_frame()),
                _ if start >= switched_at => after_switch,
                GoUnwindMethod::ByFramePointer if depth.bytes > 0 && start >= prologue_end => {
                    Entry::Rule(X86_64.frame_pointer_rule())
                }
                _ if part.bytes == -8 => popped_return_address(function, code, start),
                _ => by_depth(&part, saved, treatment == GoUnwindMethod::ByDepthAboveInterrupted),
            };
            sink(start, entry);
        }
    }
    sink(end, Entry::NO_INFORMATION);
}

/// The start of `depth` and the cuts within it, sorted, without duplicates.
pub(super) fn starts_within(depth: &StackDepth, mut cuts: [u32; 3]) -> impl Iterator<Item = u32> {
    let StackDepth { start, end, .. } = *depth;
    cuts.sort_unstable();
    let mut last = start;
    let within = cuts.into_iter().filter(move |cut| {
        let new = *cut > last && *cut < end;
        last = if new { *cut } else { last };
        new
    });
    std::iter::once(start).chain(within)
}

/// The entry where a function has just popped the return address itself. The only such function is
/// `syscall.rawVforkSyscall`, because its child returns on the same stack before it does.
fn popped_return_address(function: &PclntabFunction<impl ByteReader>, code: &[u8], at: u32) -> Entry {
    let before = code.get(..(at - function.start) as usize).unwrap_or_default();
    arch::go::popped_register(before).map_or(
        Entry::unsupported(UnsupportedReason::ReturnAddressRule),
        |register| {
            Entry::Rule(Rule {
                return_address: ReturnAddress::InRegister(register),
                ..Rule::above_stack_pointer(0)
            })
        },
    )
}

fn by_depth(depth: &StackDepth, saved: Option<SavedFramePointer>, signal_frame: bool) -> Entry {
    let Some(offset) = depth.bytes.checked_add(8).filter(|_| depth.bytes >= 0) else {
        return Entry::unsupported(UnsupportedReason::OffsetTooLarge);
    };
    let saved = saved.filter(|saved| saved.holds_at(depth));
    Entry::Rule(Rule {
        frame_pointer: saved.map_or(SavedRegister::Same, |saved| SavedRegister::AtCfa(saved.at_cfa)),
        signal_frame,
        ..Rule::above_stack_pointer(offset)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_pointer_that_is_stored_after_the_frame_is_made_counts_from_there() {
        let depth = StackDepth { start: 7, end: 90, bytes: 32 };
        let saved = SavedFramePointer { at_cfa: -16, depth: 32, from: 12 };
        let starts: Vec<_> = starts_within(&depth, [saved.from, u32::MAX, 4]).collect();
        assert_eq!(starts, [7, 12]);
        let entry = |start| by_depth(&StackDepth { start, ..depth }, Some(saved), false);
        assert_eq!(entry(7), Entry::Rule(Rule::above_stack_pointer(40)));
        let frame_pointer = SavedRegister::AtCfa(-16);
        assert_eq!(entry(12), Entry::Rule(Rule { frame_pointer, ..Rule::above_stack_pointer(40) }));
    }
}
