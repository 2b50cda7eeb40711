//! Guesses callers where no rule leads to them, as `c/unwind.bpf.h` does.

use sidewinder_address::Avma;
use sidewinder_bpf::{SEARCH_WORDS, StackSnapshot, UNPROVEN_FRAME_BYTES_MAX, code_address};
use sidewinder_unwind::call_before;
use sidewinder_unwind_table::{Architecture, Cfa, FrameRegisters, Memory, Register, ReturnAddress, Rule};

use super::code_lookup::{CodeLocation, CodeLookup, MissingRule};

/// Guesses the caller of code that no rule covers, as `c/unwind.bpf.h` does.
///
/// # Errors
/// The location of a rule in the caller that is not loaded.
pub(super) fn guess_caller(
    registers: &FrameRegisters,
    address: Avma,
    is_generated: bool,
    stack: &SnapshotStack<'_>,
    code: &mut impl CodeLookup,
) -> Result<Option<FrameRegisters>, MissingRule> {
    if let Some(caller) = guess_by_link_register(registers, address, stack, code) {
        return Ok(Some(caller));
    }
    let above = registers.fp.wrapping_sub(registers.sp);
    let is_plausible =
        registers.fp & 7 == 0 && registers.fp >= registers.sp && above <= UNPROVEN_FRAME_BYTES_MAX;
    let mut by_frame_pointer = None;
    if let Some(caller) = Rule::FRAME_POINTER.step(registers, stack).ok().filter(|_| is_plausible) {
        // Where calls leave the return address in a register, the frame record is anywhere in its frame.
        let sp_is_bound = Architecture::HOST.link().is_some();
        let caller = FrameRegisters { pc: code_address(caller.pc), sp_is_bound, ..caller };
        let location = code.locate(Avma(caller.pc.0.wrapping_sub(1)));
        if let CodeLocation::TableNotLoaded { file, offset } = location {
            return Err((file, offset));
        }
        let (is_after_call, calls_another) =
            match code.bytes_before(caller.pc).map(|code| call_before(caller.pc, code)) {
                Some(Some(call)) => (true, !is_generated && !call.may_lead_to(address)),
                Some(None) => (false, false),
                // Generated code and code of a deleted file can't be read afterwards.
                None => {
                    let can_be_code = !matches!(location, CodeLocation::Unmapped);
                    (matches!(location, CodeLocation::Anonymous) || is_generated && can_be_code, false)
                }
            };
        if is_after_call && !calls_another {
            return Ok(Some(caller));
        }
        by_frame_pointer = Some(caller).filter(|_| is_after_call);
    }
    if !is_generated && by_frame_pointer.is_none() {
        return Ok(None);
    }
    let slots = (0..SEARCH_WORDS).map(|word| registers.sp.wrapping_add(word * 8));
    for at in slots.take_while(|at| is_generated || *at < registers.fp) {
        let Some(pc) = stack.code_address(at) else { break };
        let call = code.bytes_before(pc).and_then(|bytes| call_before(pc, bytes));
        if call.is_none_or(|call| !is_generated && !call.leads_near(address)) {
            continue;
        }
        let caller = FrameRegisters {
            pc,
            sp: at.wrapping_add(8),
            sp_is_bound: false,
            fp: registers.fp,
            callee_saved: None,
            general: None,
        };
        if is_plausible_caller(&caller, is_generated, stack, code)? {
            return Ok(Some(caller));
        }
    }
    // The code was reached by a jump from the function that was called.
    Ok(by_frame_pointer)
}

/// The caller of interrupted code that has no rule, and in which the link register still has the return address: not the one
/// that is in the frame record, and after a call.
fn guess_by_link_register(
    registers: &FrameRegisters,
    address: Avma,
    stack: &SnapshotStack<'_>,
    code: &mut impl CodeLookup,
) -> Option<FrameRegisters> {
    Architecture::HOST.link()?;
    let pc = code_address(Avma(registers.callee_saved?));
    if stack.code_address(registers.fp.wrapping_add(8)) == Some(pc) {
        return None;
    }
    let call = call_before(pc, code.bytes_before(pc)?)?;
    call.may_lead_to(address).then(|| FrameRegisters {
        pc,
        sp_is_bound: true,
        callee_saved: None,
        general: None,
        ..registers.clone()
    })
}

/// Whether a return address is in code; for a caller of generated code, also whether the caller's own return address follows
/// a call that may lead to it.
///
/// # Errors
/// The location of a rule that is not loaded.
fn is_plausible_caller(
    caller: &FrameRegisters,
    calls_generated: bool,
    stack: &SnapshotStack<'_>,
    code: &mut impl CodeLookup,
) -> Result<bool, MissingRule> {
    let rule = match code.locate(Avma(caller.pc.0.wrapping_sub(1))) {
        CodeLocation::Unmapped => return Ok(false),
        CodeLocation::TableNotLoaded { file, offset } => return Err((file, offset)),
        CodeLocation::File { rule: Ok(rule), .. } if calls_generated => rule,
        CodeLocation::Anonymous | CodeLocation::File { .. } => return Ok(true),
    };
    let (
        Cfa::Register { register: Register::STACK_POINTER, offset: to_cfa },
        ReturnAddress::AtCfa(offset) | ReturnAddress::OfParent(offset),
    ) = (rule.cfa, rule.return_address)
    else {
        return Ok(true);
    };
    let at = caller.sp.wrapping_add_signed(to_cfa.into()).wrapping_add_signed(offset.into());
    let Some(pc) = stack.code_address(at) else { return Ok(false) };
    let call = code.bytes_before(pc).and_then(|bytes| call_before(pc, bytes));
    Ok(call.is_some_and(|call| call.may_lead_to(caller.pc)))
}

/// The stack memory in a snapshot.
pub(super) struct SnapshotStack<'a>(pub(super) &'a StackSnapshot);

impl SnapshotStack<'_> {
    /// The address of code that is at an address, without a signature.
    fn code_address(&self, address: u64) -> Option<Avma> {
        self.word(address).map(|word| code_address(Avma(word)))
    }
}

impl Memory for SnapshotStack<'_> {
    fn word(&self, address: u64) -> Option<u64> {
        self.0.word(address)
    }
}
