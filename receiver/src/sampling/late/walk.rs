//! The walk of a snapshot: the same steps as those of `c/unwind.bpf.h`.

use sidewinder_address::{Avma, FileOffset};
use sidewinder_bpf::{Frame, FrameKind, Outcome, STACK_SWITCHES_MAX, Snapshot, UNPROVEN_FRAME_BYTES_MAX};
use sidewinder_process::FileId;
use sidewinder_unwind::{FrameRegisters, Memory, Rule, StepError};

/// The place of a file whose rule a walk has to wait for.
pub(crate) type Lacked = (FileId, FileOffset);

/// What is at an address of a process.
#[derive(Debug)]
pub(crate) enum Place {
    /// No code.
    Unmapped,
    /// Code that no file backs.
    Anonymous,
    /// A file, and what its table says there.
    File { file: FileId, offset: FileOffset, rule: Result<Rule, Outcome> },
    /// Code of a file whose table will be there later.
    NotYet { file: FileId, offset: FileOffset },
}

/// The frames of the user's stack, leaf first, and how the walk ended.
///
/// # Errors
/// The place whose rule it has to wait for.
pub(crate) fn walk(
    snapshot: &Snapshot,
    frame_limit: usize,
    mut place_of: impl FnMut(Avma) -> Place,
) -> Result<(Vec<Frame>, Outcome), Lacked> {
    let mut frames = Vec::new();
    let mut registers = FrameRegisters::interrupted(&snapshot.registers);
    let (mut is_return_address, mut is_unproven, mut stack_switches) = (false, false, 0);
    let end = loop {
        let address = Avma(registers.pc.0.wrapping_sub(u64::from(is_return_address)));
        let mut push = |kind, address| frames.push(Frame::new(kind, address, is_return_address, is_unproven));
        let rule = match place_of(address) {
            Place::NotYet { file, offset } => return Err((file, offset)),
            Place::Unmapped => {
                if !is_return_address {
                    push(FrameKind::Anonymous, registers.pc.0);
                }
                break Outcome::NoMapping;
            }
            Place::Anonymous => {
                push(FrameKind::Anonymous, registers.pc.0);
                None
            }
            Place::File { file, offset, rule } => {
                push(FrameKind::Native { file: file.0 }, offset.0 + u64::from(is_return_address));
                match rule {
                    Ok(rule) => Some(rule),
                    Err(Outcome::NoRule) => None,
                    Err(outcome) => break outcome,
                }
            }
        };
        if frames.len() >= frame_limit {
            break Outcome::FrameLimit;
        }
        let caller = match &rule {
            Some(rule) => rule.step(&registers, &Stack(snapshot)).map_err(outcome_of),
            None => step_unproven(&registers, snapshot),
        };
        let caller = match caller {
            Ok(caller) => caller,
            Err(outcome) => break outcome,
        };
        if rule.is_none() {
            match place_of(Avma(caller.pc.0.wrapping_sub(1))) {
                Place::Unmapped => break Outcome::NoRule,
                Place::NotYet { file, offset } => return Err((file, offset)),
                Place::Anonymous | Place::File { .. } => {}
            }
        }
        // A leaf that moved its return address into a register has no frame.
        if caller.sp <= registers.sp && !(caller.sp == registers.sp && rule.is_some()) {
            stack_switches += 1;
            if stack_switches > STACK_SWITCHES_MAX {
                break Outcome::StackNotRising;
            }
        }
        is_return_address = !rule.is_some_and(|rule| rule.signal_frame);
        is_unproven = rule.is_none();
        registers = caller;
    };
    Ok((frames, end))
}

/// Frame pointers, where nothing is known of the code: as in `c/unwind.bpf.h`.
fn step_unproven(registers: &FrameRegisters, snapshot: &Snapshot) -> Result<FrameRegisters, Outcome> {
    let above = registers.fp.wrapping_sub(registers.sp);
    if registers.fp & 7 != 0 || registers.fp < registers.sp || above > UNPROVEN_FRAME_BYTES_MAX {
        return Err(Outcome::NoRule);
    }
    Rule::FRAME_POINTER.step(registers, &Stack(snapshot)).map_err(|_| Outcome::NoRule)
}

fn outcome_of(error: StepError) -> Outcome {
    match error {
        StepError::Outermost => Outcome::Complete,
        StepError::RegisterLost(_) => Outcome::RegisterLost,
        StepError::Unreadable(_) => Outcome::SnapshotEnd,
    }
}

/// The words of a snapshot.
struct Stack<'a>(&'a Snapshot);

impl Memory for Stack<'_> {
    fn word(&self, address: u64) -> Option<u64> {
        self.0.word(address)
    }
}

#[cfg(test)]
mod tests {
    use sidewinder_bpf::StackPiece;

    use super::*;

    const SP: u64 = 0x7000;
    const LEAF: u64 = 0x100;
    const CALLER: u64 = 0x200;
    const START: u64 = 0x300;

    fn piece(start: u64, words: &[u64]) -> StackPiece {
        StackPiece { start, bytes: words.iter().flat_map(|word| word.to_ne_bytes()).collect() }
    }

    /// A thread that was interrupted in a leaf, with these words on its stack.
    fn snapshot(words: &[u64]) -> Snapshot {
        let mut registers = [0; 17];
        (registers[7], registers[16]) = (SP, LEAF);
        Snapshot { tid: 1, time_ns: 2, registers, pieces: vec![piece(SP, words)] }
    }

    /// Each function has its part of one file: a leaf, its caller, and where the stack starts.
    fn place_of(address: Avma) -> Place {
        let rule = match address.0 & !0xff {
            LEAF | CALLER => Ok(Rule::LEAF),
            START => Ok(Rule::ROOT),
            0x400 => return Place::NotYet { file: FileId(2), offset: FileOffset(address.0) },
            0x500 => return Place::Anonymous,
            _ => return Place::Unmapped,
        };
        Place::File { file: FileId(1), offset: FileOffset(address.0), rule }
    }

    fn walked(words: &[u64]) -> Result<(Vec<u64>, Outcome), Lacked> {
        let (frames, outcome) = walk(&snapshot(words), 9, place_of)?;
        Ok((frames.iter().map(|frame| frame.address()).collect(), outcome))
    }

    #[test]
    fn a_stack_is_walked_to_its_proven_start() {
        let (frames, outcome) = walk(&snapshot(&[CALLER + 5, START + 1]), 9, place_of).unwrap();
        let addresses: Vec<_> =
            frames.iter().map(|frame| (frame.address(), frame.is_return_address())).collect();
        assert_eq!(addresses, [(LEAF, false), (CALLER + 5, true), (START + 1, true)]);
        assert_eq!(outcome, Outcome::Complete);
    }

    #[test]
    fn a_frame_may_lie_between_what_was_kept_of_its_stack() {
        let large = |address: Avma| match place_of(address) {
            Place::File { file, offset, .. } if offset.0 == CALLER => {
                Place::File { file, offset, rule: Ok(Rule::above_stack_pointer(0x8000)) }
            }
            other => other,
        };
        let mut snapshot = snapshot(&[CALLER + 1]);
        assert_eq!(walk(&snapshot, 9, large).unwrap().1, Outcome::SnapshotEnd);
        snapshot.pieces.push(piece(SP + 0x8000, &[START + 1]));
        let (frames, outcome) = walk(&snapshot, 9, large).unwrap();
        assert_eq!((frames.len(), outcome), (3, Outcome::Complete));
    }

    #[test]
    fn a_walk_waits_for_a_table() {
        assert_eq!(walked(&[0x401]), Err((FileId(2), FileOffset(0x400))));
    }

    #[test]
    fn what_is_not_there_cuts_a_stack_and_is_named() {
        assert_eq!(walked(&[CALLER + 5]), Ok((vec![LEAF, CALLER + 5], Outcome::SnapshotEnd)));
        assert_eq!(walked(&[0x901]), Ok((vec![LEAF], Outcome::NoMapping)));
        let no_frame_pointer = Ok((vec![LEAF, 0x501], Outcome::NoRule));
        assert_eq!(walked(&[0x501]), no_frame_pointer);
        let recursion = walk(&snapshot(&[CALLER + 1; 20]), 9, place_of).unwrap();
        assert_eq!((recursion.0.len(), recursion.1), (9, Outcome::FrameLimit));
    }
}
