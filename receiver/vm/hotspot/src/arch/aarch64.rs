//! arm64.

use super::InterpretedFrame;

/// Frames of the interpreter of a JDK (`frame_aarch64.hpp`). Since 9 they have a word for the class's mirror and another one, and
/// since 20 the caller's stack pointer is in x19 instead of x13.
pub(crate) const fn interpreted_frame(jdk: u8) -> InterpretedFrame {
    InterpretedFrame { bytecode: if jdk >= 9 { 72 } else { 56 }, sender_sp: if jdk >= 20 { 19 } else { 13 } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_the_interpreter_are_those_of_the_jdk() {
        let frame = |bytecode, sender_sp| InterpretedFrame { bytecode, sender_sp };
        assert_eq!(interpreted_frame(8), frame(56, 13));
        assert_eq!(interpreted_frame(17), frame(72, 13));
        assert_eq!(interpreted_frame(21), frame(72, 19));
    }
}
