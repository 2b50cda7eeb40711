//! Makes the rows of one Go function where a call leaves the return address in a register.
//!
//! A function that has taken N bytes keeps the return address at the bottom of them, and the caller's frame pointer in the
//! word below, outside of them: the frame pointer points there.

use sidewinder_unwind_table::{
    Architecture, CalleeSaved, Cfa, Entry, ReturnAddress, Rule, SavedRegister, UnsupportedReason,
};

use super::function::{GoUnwindMethod, starts_within};
use super::pclntab::{ByteReader, PclntabFunction, StackDepth};
use crate::arch::link_register_go as code_of_go;

/// What the kernel's signal handler takes from the interrupted stack for a call that it makes on behalf of that code: the
/// link register's value is at the bottom (`runtime.sigctxt.pushCall`).
const INJECTED_BYTES: i32 = 16;

/// Passes the rows of `function` to `sink`, as [`super::function::rows`].
pub(super) fn rows(
    architecture: Architecture,
    function: &PclntabFunction<impl ByteReader>,
    code: &[u8],
    mut sink: impl FnMut(u32, Entry),
) {
    let method = method(function, code);
    let switched_at = match method {
        GoUnwindMethod::RootAfterSwitch | GoUnwindMethod::EndAfterSwitch => {
            let otherwise = if method == GoUnwindMethod::EndAfterSwitch { 0 } else { u32::MAX };
            code_of_go::first_switch(code).map_or(otherwise, |at| function.start.saturating_add(at))
        }
        _ => u32::MAX,
    };
    let after_switch = match method {
        GoUnwindMethod::RootAfterSwitch => Entry::Rule(architecture.root()),
        _ => Entry::unsupported(UnsupportedReason::StackSwitch),
    };
    let framed_from = function.start.saturating_add(code_of_go::PROLOGUE_BYTES);
    let mut end = function.start;
    let mut depth_before = 0;
    for depth in function.stack_depths().into_iter().flatten() {
        end = depth.end;
        // The instruction that makes the frame may come before the one that stores the frame pointer.
        let grown = if depth_before == 0 && depth.bytes > 0 { depth.start.saturating_add(4) } else { 0 };
        depth_before = depth.bytes;
        let is_framed = |start: u32| depth.bytes > 0 && start >= grown;
        for start in starts_within(&depth, [grown, switched_at, framed_from]) {
            let part = StackDepth { start, ..depth };
            let entry = match method {
                GoUnwindMethod::Root => Entry::Rule(architecture.root()),
                _ if start >= switched_at => after_switch,
                GoUnwindMethod::ByFramePointer if depth.bytes > 0 && start >= framed_from => {
                    by_frame_pointer(architecture, &part)
                }
                GoUnwindMethod::ByDepthAboveInterrupted => {
                    above_interrupted(by_depth(architecture, &part, is_framed(start)))
                }
                _ => by_depth(architecture, &part, is_framed(start)),
            };
            sink(start, entry);
        }
    }
    sink(end, Entry::NO_INFORMATION);
}

fn method(function: &PclntabFunction<impl ByteReader>, code: &[u8]) -> GoUnwindMethod {
    match GoUnwindMethod::from_name(function, &code_of_go::PROGRAM_STARTS) {
        // The kernel's own code returns from signals.
        GoUnwindMethod::SignalReturn => GoUnwindMethod::ByDepth,
        GoUnwindMethod::EndAfterSwitch if code_of_go::keeps_frame_pointer(code) => {
            GoUnwindMethod::ByFramePointer
        }
        method => method,
    }
}

fn by_depth(architecture: Architecture, depth: &StackDepth, has_record: bool) -> Entry {
    let leaf = architecture.leaf();
    let below =
        depth.bytes.checked_neg().and_then(|bottom| bottom.checked_sub(8)).filter(|_| depth.bytes >= 0);
    let Some(below) = below else { return Entry::unsupported(UnsupportedReason::OffsetTooLarge) };
    if depth.bytes == 0 {
        return Entry::Rule(leaf);
    }
    Entry::Rule(Rule {
        cfa: Cfa::Register { register: architecture.stack_pointer(), offset: depth.bytes },
        frame_pointer: if has_record { SavedRegister::AtCfa(below) } else { SavedRegister::Same },
        return_address: ReturnAddress::AtCfa(-depth.bytes),
        ..leaf
    })
}

/// The frame pointer points to the word below the frame.
fn by_frame_pointer(architecture: Architecture, depth: &StackDepth) -> Entry {
    match (by_depth(architecture, depth, true), depth.bytes.checked_add(8)) {
        (Entry::Rule(rule), Some(offset)) => {
            let cfa = Cfa::Register { register: architecture.frame_pointer(), offset };
            Entry::Rule(Rule { cfa, ..rule })
        }
        (entry, _) => entry,
    }
}

/// The rule of a function that was called on behalf of interrupted code, whose link register is above its frame.
fn above_interrupted(entry: Entry) -> Entry {
    let Entry::Rule(Rule { cfa: Cfa::Register { register, offset }, frame_pointer, return_address, .. }) =
        entry
    else {
        return entry;
    };
    let lower = |offset: i32| offset.saturating_sub(INJECTED_BYTES);
    Entry::Rule(Rule {
        cfa: Cfa::Register { register, offset: offset.saturating_add(INJECTED_BYTES) },
        frame_pointer: match frame_pointer {
            SavedRegister::AtCfa(offset) => SavedRegister::AtCfa(lower(offset)),
            elsewhere => elsewhere,
        },
        return_address: match return_address {
            ReturnAddress::AtCfa(offset) => ReturnAddress::AtCfa(lower(offset)),
            elsewhere => elsewhere,
        },
        callee_saved: CalleeSaved::AtCfa(-INJECTED_BYTES),
        signal_frame: true,
    })
}
