//! x86-64.

use super::InterpretedFrame;

/// Frames of the interpreter of a JDK (`frame_x86.hpp`, `r13`). Since 9 they have a word for the class's mirror.
pub(crate) const fn interpreted_frame(jdk: u8) -> InterpretedFrame {
    InterpretedFrame { bytecode: if jdk >= 9 { 64 } else { 56 }, sender_sp: 13 }
}
