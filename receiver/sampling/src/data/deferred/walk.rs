//! Walks the stack in a snapshot, by the same steps as `c/unwind.bpf.h`.

use sidewinder_address::Avma;
use sidewinder_bpf::{
    Outcome, RawFrame, RawFrameKind, STACK_ALIGNMENT_BYTES, STACK_SWITCHES_MAX, StackSnapshot, VmMissing,
    code_address,
};
use sidewinder_unwind_table::{FrameRegisters, ReturnAddress, StepError};
use sidewinder_vm::LoopCode;

use super::code_lookup::{CodeLocation, CodeLookup, MissingRule};
use super::groups::VmGroups;
use super::guess::{SnapshotStack, guess_caller};
use crate::VmCode;

/// The frames of the user stack, leaf first, and the outcome of the walk. `groups`: the frames of runtimes that were
/// taken with the sample. Functions on the native stack can't be found any more: one frame stands for each run of them.
///
/// # Errors
/// The location of a rule that is not loaded.
pub(crate) fn walk(
    snapshot: &StackSnapshot,
    mut groups: VmGroups,
    frame_limit: usize,
    code: &mut impl CodeLookup,
) -> Result<(Vec<RawFrame>, Outcome), MissingRule> {
    let mut frames = Vec::new();
    let mut registers = FrameRegisters::interrupted(&snapshot.registers);
    let (mut is_return_address, mut is_unproven) = (false, false);
    let (mut has_guessed, mut stack_switches) = (false, 0);
    let mut unknown_function = None;
    let outcome = loop {
        let address = Avma(registers.pc.0.wrapping_sub(u64::from(is_return_address)));
        let location = code.locate(address);
        if frames.len() >= frame_limit
            && !matches!(location, CodeLocation::TableNotLoaded { .. } | CodeLocation::Unmapped)
        {
            break Outcome::FrameLimit;
        }
        let frame = |kind, address| RawFrame::new(kind, address, is_return_address, is_unproven);
        let mut is_generated = false;
        let before = std::mem::replace(&mut unknown_function, code.unknown_function_at(&location));
        if let Some(runtime) = unknown_function
            && before.is_none()
            && frames.len() + 1 < frame_limit
        {
            frames.push(RawFrame::missing(runtime, VmMissing::TooEarly));
        }
        let rule = match location {
            CodeLocation::TableNotLoaded { file, offset } => return Err((file, offset)),
            // The base of a fibre's stack: see `is_base` in `c/unwind.bpf.h`.
            CodeLocation::Unmapped
                if registers.pc.0 == 0
                    && is_return_address
                    && !has_guessed
                    && registers.sp.is_multiple_of(STACK_ALIGNMENT_BYTES) =>
            {
                break Outcome::Complete;
            }
            CodeLocation::Unmapped => {
                if !is_return_address {
                    frames.push(frame(RawFrameKind::Anonymous, registers.pc.0));
                }
                break Outcome::NoMapping;
            }
            CodeLocation::Anonymous => {
                frames.push(frame(RawFrameKind::Anonymous, registers.pc.0));
                is_generated = true;
                None
            }
            CodeLocation::File { file, offset, rule } => {
                let kind = RawFrameKind::Native { file: file.0 };
                let native = frame(kind, offset.0 + u64::from(is_return_address));
                let vm_code = code.vm_code_at(file, offset);
                if let Some(VmCode { runtime, code: LoopCode::Group(link) }) = vm_code {
                    let caller =
                        rule.as_ref().ok().map(|rule| rule.step(&registers, &SnapshotStack(snapshot)));
                    let end = caller.and_then(Result::ok).map(|caller| caller.sp);
                    let room = frame_limit.saturating_sub(frames.len() + 1);
                    frames.extend(groups.take(runtime, link, registers.sp, end).into_iter().take(room));
                }
                frames.push(if vm_code.is_some() { native.in_vm_loop() } else { native });
                match rule {
                    Ok(rule) => Some(rule),
                    Err(Outcome::NoRule) => None,
                    Err(outcome) => break outcome,
                }
            }
        };
        let stack = SnapshotStack(snapshot);
        let caller = match &rule {
            Some(rule) => rule.step(&registers, &stack).map_err(outcome_from_error),
            None => guess_caller(&registers, address, is_generated, &stack, code)?.ok_or(Outcome::NoRule),
        };
        let caller = match caller {
            Ok(caller) => caller,
            Err(outcome) => break outcome,
        };
        // A leaf function whose return address is in a register has no frame.
        let has_no_frame =
            rule.is_none_or(|rule| matches!(rule.return_address, ReturnAddress::InRegister(_)));
        if caller.sp <= registers.sp && !(caller.sp == registers.sp && has_no_frame) {
            stack_switches += 1;
            if stack_switches > STACK_SWITCHES_MAX {
                break Outcome::StackNotRising;
            }
        }
        is_return_address = !rule.is_some_and(|rule| rule.signal_frame);
        is_unproven = rule.is_none();
        has_guessed |= is_unproven;
        registers = FrameRegisters { pc: code_address(caller.pc), ..caller };
    };
    Ok((frames, outcome))
}

fn outcome_from_error(error: StepError) -> Outcome {
    match error {
        StepError::Outermost => Outcome::Complete,
        StepError::RegisterLost(_) => Outcome::RegisterLost,
        StepError::Unreadable(_) => Outcome::SnapshotEnd,
    }
}

#[cfg(test)]
mod tests {
    use sidewinder_address::FileOffset;
    use sidewinder_bpf::{StackPiece, WalkedRuntime};
    use sidewinder_process::FileId;
    use sidewinder_unwind::CALL_BYTES;
    use sidewinder_unwind_table::Rule;
    use sidewinder_vm::GroupLink;

    use super::*;

    const SP: u64 = 0x7000;
    const LEAF: u64 = 0x100;
    const CALLER: u64 = 0x200;
    const START: u64 = 0x300;
    const LOOP: u64 = 0xab00;
    const JAVASCRIPT_LOOP: u64 = 0xac00;
    const GENERATED: u64 = 0x501;

    fn piece(start: u64, words: &[u64]) -> StackPiece {
        StackPiece { start, bytes: words.iter().flat_map(|word| word.to_ne_bytes()).collect() }
    }

    /// A thread that was interrupted in a leaf function, with these words on its stack.
    fn snapshot(words: &[u64]) -> StackSnapshot {
        let mut registers = [0; 17];
        (registers[7], registers[16]) = (SP, LEAF);
        StackSnapshot { tid: 1, time_ns: 2, registers, pieces: vec![piece(SP, words)] }
    }

    /// Code that closures describe: the location of an address, and the bytes before an address.
    struct MockCode<P, C>(P, C);

    /// Code of a process that runs JavaScript.
    struct JavaScriptCode<P>(P);

    impl<P: Fn(Avma) -> CodeLocation> CodeLookup for JavaScriptCode<P> {
        fn locate(&mut self, address: Avma) -> CodeLocation {
            self.0(address)
        }

        fn vm_code_at(&self, _: FileId, offset: FileOffset) -> Option<VmCode> {
            let code = VmCode { runtime: WalkedRuntime::V8, code: LoopCode::OneFunction };
            (offset.0 & !0xff == JAVASCRIPT_LOOP).then_some(code)
        }

        fn generator(&mut self) -> Option<WalkedRuntime> {
            Some(WalkedRuntime::V8)
        }

        fn bytes_before(&mut self, _: Avma) -> Option<[u8; CALL_BYTES]> {
            None
        }
    }

    impl<P: Fn(Avma) -> CodeLocation, C: Fn(Avma) -> Option<[u8; CALL_BYTES]>> CodeLookup for MockCode<P, C> {
        fn locate(&mut self, address: Avma) -> CodeLocation {
            self.0(address)
        }

        fn vm_code_at(&self, _: FileId, offset: FileOffset) -> Option<VmCode> {
            let code = LoopCode::Group(GroupLink::Linked);
            (offset.0 & !0xff == LOOP).then_some(VmCode { runtime: WalkedRuntime::CPython, code })
        }

        fn generator(&mut self) -> Option<WalkedRuntime> {
            None
        }

        fn bytes_before(&mut self, address: Avma) -> Option<[u8; CALL_BYTES]> {
            self.1(address)
        }
    }

    /// One file with a leaf function, its caller, a runtime's loop and the root function of the stack, each in its own
    /// 256 bytes; and code without a loaded table, generated code, and unmapped addresses.
    fn locate(address: Avma) -> CodeLocation {
        let rule = match address.0 & !0xff {
            LEAF | CALLER | LOOP | JAVASCRIPT_LOOP => Ok(Rule::LEAF),
            START => Ok(Rule::ROOT),
            0x400 => return CodeLocation::TableNotLoaded { file: FileId(2), offset: FileOffset(address.0) },
            0x500 => return CodeLocation::Anonymous,
            _ => return CodeLocation::Unmapped,
        };
        CodeLocation::File { file: FileId(1), offset: FileOffset(address.0), rule }
    }

    fn walked(words: &[u64]) -> Result<(Vec<u64>, Outcome), MissingRule> {
        let (frames, outcome) =
            walk(&snapshot(words), VmGroups::default(), 9, &mut MockCode(locate, |_| None))?;
        Ok((frames.iter().map(|frame| frame.address()).collect(), outcome))
    }

    #[test]
    fn a_stack_is_walked_to_its_proven_root() {
        let (frames, outcome) = walk(
            &snapshot(&[CALLER + 5, START + 1]),
            VmGroups::default(),
            9,
            &mut MockCode(locate, |_| None),
        )
        .unwrap();
        let addresses: Vec<_> =
            frames.iter().map(|frame| (frame.address(), frame.is_return_address())).collect();
        assert_eq!(addresses, [(LEAF, false), (CALLER + 5, true), (START + 1, true)]);
        assert_eq!(outcome, Outcome::Complete);
    }

    #[test]
    fn frames_of_a_virtual_machine_are_marked_as_missing() {
        let (frames, outcome) =
            walk(&snapshot(&[LOOP + 5, START + 1]), VmGroups::default(), 9, &mut MockCode(locate, |_| None))
                .unwrap();
        let kinds: Vec<_> = frames.iter().map(|frame| (frame.kind(), frame.is_vm_loop())).collect();
        let native = Some(RawFrameKind::Native { file: 1 });
        let missing =
            Some(RawFrameKind::Missing { runtime: WalkedRuntime::CPython, reason: VmMissing::TooEarly });
        assert_eq!(kinds, [(native, false), (missing, false), (native, true), (native, false)]);
        assert_eq!(outcome, Outcome::Complete);
    }

    /// Which frames a walk finds: the marker of missing functions, a hidden loop, generated code, or others by their address.
    fn walked_javascript(words: &[u64], frame_limit: usize) -> Vec<String> {
        let mut snapshot = snapshot(words);
        snapshot.registers[6] = SP + 8 * (words.len() as u64 - 2);
        let mut code = JavaScriptCode(locate);
        let (frames, _) = walk(&snapshot, VmGroups::default(), frame_limit, &mut code).unwrap();
        let name = |frame: &RawFrame| match frame.kind() {
            Some(RawFrameKind::Missing { runtime: WalkedRuntime::V8, reason }) => reason.label().to_owned(),
            _ if frame.is_vm_loop() => "loop".to_owned(),
            Some(RawFrameKind::Anonymous) => "generated".to_owned(),
            _ => format!("{:#x}", frame.address() & !0xff),
        };
        frames.iter().map(name).collect()
    }

    #[test]
    fn each_run_of_missing_functions_of_javascript_has_one_marker() {
        let (in_loop, native) = (JAVASCRIPT_LOOP + 5, CALLER + 5);
        assert_eq!(
            walked_javascript(&[in_loop, in_loop, native, in_loop, START + 1], 9),
            ["0x100", "too_early", "loop", "loop", "0x200", "too_early", "loop", "0x300"]
        );
        assert_eq!(
            walked_javascript(&[in_loop, GENERATED, 0, START + 1], 9)[..4],
            ["0x100", "too_early", "loop", "generated"],
            "generated code belongs to the run"
        );
        assert_eq!(
            walked_javascript(&[GENERATED, 0, START + 1], 9)[..3],
            ["0x100", "too_early", "generated"]
        );
        assert_eq!(walked_javascript(&[in_loop, START + 1], 2), ["0x100", "loop"], "there is no room for it");
    }

    #[test]
    fn generated_code_of_other_processes_has_no_marker() {
        let (frames, _) =
            walk(&snapshot(&[GENERATED, START + 1]), VmGroups::default(), 9, &mut MockCode(locate, |_| None))
                .unwrap();
        assert!(!frames.iter().any(|frame| matches!(frame.kind(), Some(RawFrameKind::Missing { .. }))));
    }

    #[test]
    fn a_frame_may_lie_between_the_captured_pieces_of_its_stack() {
        let large = |address: Avma| match locate(address) {
            CodeLocation::File { file, offset, .. } if offset.0 == CALLER => {
                CodeLocation::File { file, offset, rule: Ok(Rule::above_stack_pointer(0x8000)) }
            }
            other => other,
        };
        let mut snapshot = snapshot(&[CALLER + 1]);
        assert_eq!(
            walk(&snapshot, VmGroups::default(), 9, &mut MockCode(large, |_| None)).unwrap().1,
            Outcome::SnapshotEnd
        );
        snapshot.pieces.push(piece(SP + 0x8000, &[START + 1]));
        let (frames, outcome) =
            walk(&snapshot, VmGroups::default(), 9, &mut MockCode(large, |_| None)).unwrap();
        assert_eq!((frames.len(), outcome), (3, Outcome::Complete));
    }

    /// A return address of 0 is the base of a stack if the stack pointer is a multiple of 16, as at the end of a called
    /// function's frame.
    #[test]
    fn a_return_address_of_zero_ends_an_aligned_stack() {
        assert_eq!(walked(&[CALLER + 5, 0]), Ok((vec![LEAF, CALLER + 5], Outcome::Complete)));
        assert_eq!(walked(&[0]), Ok((vec![LEAF], Outcome::NoMapping)), "not aligned");
        let guessed = |words: &[u64]| {
            let mut snapshot = snapshot(words);
            (snapshot.registers[6], snapshot.registers[16]) = (SP + 8, 0x501);
            let call = Some([0xff, 0xd0, 0x90, 0x90, 0x90, 0x90, 0xff, 0xd0]);
            walk(&snapshot, VmGroups::default(), 9, &mut MockCode(locate, |_| call)).unwrap().1
        };
        assert_eq!(guessed(&[0, 0, CALLER + 5, 0]), Outcome::NoMapping, "after a guessed step");
    }

    /// Generated code without frame pointers returns to the first word that is a return address.
    #[test]
    fn a_caller_of_generated_code_is_searched_on_the_stack() {
        let mut snapshot = snapshot(&[7, START + 8, CALLER + 5, START + 1]);
        snapshot.registers[16] = 0x501;
        let call = [0xff, 0xd0, 0x90, 0x90, 0x90, 0x90, 0xff, 0xd0];
        let called = |at: Avma| [CALLER + 5, START + 1].contains(&at.0).then_some(call);
        let (frames, outcome) =
            walk(&snapshot, VmGroups::default(), 9, &mut MockCode(locate, called)).unwrap();
        let found: Vec<_> = frames.iter().map(|frame| (frame.address(), frame.is_unproven())).collect();
        assert_eq!(found, [(0x501, false), (CALLER + 5, true), (START + 1, false)]);
        assert_eq!(outcome, Outcome::Complete);
    }

    /// A stale return address from an earlier call, in the frame of generated code, leads by its rule to no return address.
    #[test]
    fn a_function_that_has_returned_is_not_a_caller_of_generated_code() {
        let mut snapshot = snapshot(&[7, CALLER + 9, 8, CALLER + 5, START + 1]);
        snapshot.registers[16] = 0x501;
        let call = [0xff, 0xd0, 0x90, 0x90, 0x90, 0x90, 0xff, 0xd0];
        let called = |at: Avma| (at.0 > CALLER).then_some(call);
        let (frames, outcome) =
            walk(&snapshot, VmGroups::default(), 9, &mut MockCode(locate, called)).unwrap();
        let found: Vec<_> = frames.iter().map(|frame| frame.address()).collect();
        assert_eq!((found, outcome), (vec![0x501, CALLER + 5, START + 1], Outcome::Complete));
    }

    #[test]
    fn a_walk_waits_for_a_table() {
        assert_eq!(walked(&[0x401]), Err((FileId(2), FileOffset(0x400))));
    }

    #[test]
    fn missing_data_truncates_a_stack_and_sets_the_outcome() {
        assert_eq!(walked(&[CALLER + 5]), Ok((vec![LEAF, CALLER + 5], Outcome::SnapshotEnd)));
        assert_eq!(walked(&[0x901]), Ok((vec![LEAF], Outcome::NoMapping)));
        let no_frame_pointer = Ok((vec![LEAF, 0x501], Outcome::NoRule));
        assert_eq!(walked(&[0x501]), no_frame_pointer);
        let recursion =
            walk(&snapshot(&[CALLER + 1; 20]), VmGroups::default(), 9, &mut MockCode(locate, |_| None))
                .unwrap();
        assert_eq!((recursion.0.len(), recursion.1), (9, Outcome::FrameLimit));
    }

    /// `call rel32` (`E8`) right before `RETURN`, to a target.
    fn call_of(target: u64) -> [u8; CALL_BYTES] {
        let mut code = [0x90; CALL_BYTES];
        code[3] = 0xe8;
        code[4..].copy_from_slice(&(target.wrapping_sub(RETURN) as i32).to_le_bytes());
        code
    }

    const UNKNOWN: u64 = 0x600;
    const RETURN: u64 = UNKNOWN + 0x40;

    /// Walks from a function without a rule whose frame pointer leads to a frame that returns to `RETURN`, with `code`
    /// before each return address. Returns each frame's address and whether it is unproven, and the outcome.
    fn walked_by_frame_pointer(pc: u64, code: Option<[u8; CALL_BYTES]>) -> (Vec<(u64, bool)>, Outcome) {
        let locate = |address: Avma| match address.0 & !0xff {
            UNKNOWN => CodeLocation::File {
                file: FileId(1),
                offset: FileOffset(address.0),
                rule: Err(Outcome::NoRule),
            },
            _ => locate(address),
        };
        let mut snapshot = snapshot(&[0, RETURN]);
        (snapshot.registers[6], snapshot.registers[16]) = (SP, pc);
        let (frames, outcome) =
            walk(&snapshot, VmGroups::default(), 9, &mut MockCode(locate, |_| code)).unwrap();
        (frames.iter().map(|frame| (frame.address(), frame.is_unproven())).collect(), outcome)
    }

    /// A function that doesn't set up a frame pointer keeps its caller's, which leads to the caller's caller.
    #[test]
    fn a_return_address_below_the_frame_pointer_comes_first_if_the_frame_pointer_skips_a_caller() {
        const OWN: u64 = RETURN + 0x30;
        let pc = UNKNOWN + 0x20;
        let unknown = |address: Avma| match address.0 & !0xff {
            UNKNOWN => CodeLocation::File {
                file: FileId(1),
                offset: FileOffset(address.0),
                rule: Err(Outcome::NoRule),
            },
            _ => locate(address),
        };
        let walked = |outer_target: u64, own_target: u64| {
            let mut snapshot = snapshot(&[7, OWN, 0, RETURN]);
            (snapshot.registers[6], snapshot.registers[16]) = (SP + 16, pc);
            let call_to = |from: u64, target: u64| {
                let mut code = [0x90; CALL_BYTES];
                code[3] = 0xe8;
                code[4..].copy_from_slice(&(target.wrapping_sub(from) as i32).to_le_bytes());
                Some(code)
            };
            let before = |at: Avma| match at.0 {
                RETURN => call_to(RETURN, outer_target),
                OWN => call_to(OWN, own_target),
                _ => None,
            };
            let (frames, _) =
                walk(&snapshot, VmGroups::default(), 2, &mut MockCode(unknown, before)).unwrap();
            frames[1].address()
        };
        let (own, elsewhere) = (UNKNOWN + 0x10, UNKNOWN + 0x80);
        assert_eq!(walked(elsewhere, own), OWN);
        assert_eq!(walked(elsewhere, elsewhere), RETURN, "it was reached by a jump");
        assert_eq!(walked(own, own), RETURN, "the frame pointer is consistent");
    }

    #[test]
    fn a_guessed_caller_must_have_called_its_callee_and_is_marked() {
        let pc = UNKNOWN + 0x20;
        let found = (vec![(pc, false), (RETURN, true)], Outcome::NoRule);
        let stopped = (vec![(pc, false)], Outcome::NoRule);
        assert_eq!(walked_by_frame_pointer(pc, Some(call_of(UNKNOWN + 0x10))), found);
        assert_eq!(
            walked_by_frame_pointer(pc, Some([0xff, 0xd0, 0x90, 0x90, 0x90, 0x90, 0xff, 0xd0])),
            found
        );
        assert_eq!(walked_by_frame_pointer(pc, Some(call_of(UNKNOWN + 0x30))), found, "which jumped here");
        assert_eq!(walked_by_frame_pointer(pc, Some([0x90; CALL_BYTES])), stopped, "no call");
        assert_eq!(walked_by_frame_pointer(pc, None), stopped, "unreadable");
    }

    #[test]
    fn generated_code_may_be_called_through_a_stub() {
        let pc = 0x540;
        let (frames, _) = walked_by_frame_pointer(pc, Some(call_of(0x900)));
        assert_eq!(frames, [(pc, false), (RETURN, true)]);
        assert_eq!(walked_by_frame_pointer(pc, Some([0x90; CALL_BYTES])).0.len(), 1);
        assert_eq!(walked_by_frame_pointer(pc, None).0.len(), 2, "the code can't be read any more");
    }
}
