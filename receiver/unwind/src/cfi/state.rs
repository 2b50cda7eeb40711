//! Applies the instructions of call frame information to the rules that a walk needs.
//!
//! gimli parses the instructions. Their effect is kept for the CFA, the frame pointer, the stack pointer, the
//! [callee-saved register](Architecture::callee_saved) and the return address only: no caller depends on the rules of other
//! registers, so functions with unusual rules for them are still walked.

use gimli::{
    BaseAddresses, CallFrameInstruction, CallFrameInstructionIter, CfaRule, Error, RegisterRule, Result,
    UnwindExpression, UnwindSection,
};
use sidewinder_unwind_table::Architecture;

use super::entry::{Cie, Fde, SectionBytes};

/// The deepest nesting of `DW_CFA_remember_state`; a function that needs more counts as malformed. Compilers rarely
/// nest at all.
const MAX_REMEMBERED_STATES: usize = 64;

/// `DW_CFA_AARCH64_negate_ra_state_with_pc` (DWARF for the Arm 64-bit Architecture, 2024Q3): the parser doesn't know it,
/// so what follows in the function isn't known. Another such instruction, without `_with_pc`, changes no rule: a signature
/// is stripped from every return address.
const NEGATE_RA_STATE_WITH_PC: u8 = 0x2c;

/// The rules in force at one address of a function.
#[derive(Clone)]
pub(super) struct CfiState {
    cfa_register: gimli::Register,
    cfa_offset_bytes: i64,
    /// Replaces register and offset, which are kept.
    cfa_expression: Option<UnwindExpression<usize>>,
    pub(super) frame_pointer: Option<RegisterRule<usize>>,
    pub(super) stack_pointer: Option<RegisterRule<usize>>,
    pub(super) callee_saved: Option<RegisterRule<usize>>,
    pub(super) return_address: Option<RegisterRule<usize>>,
    /// Whether an instruction that isn't known came before.
    pub(super) is_unknown: bool,
}

impl CfiState {
    const EMPTY: Self = Self {
        cfa_register: gimli::Register(0),
        cfa_offset_bytes: 0,
        cfa_expression: None,
        frame_pointer: None,
        stack_pointer: None,
        callee_saved: None,
        return_address: None,
        is_unknown: false,
    };

    pub(super) fn cfa(&self) -> CfaRule<usize> {
        self.cfa_expression.map_or(
            CfaRule::RegisterAndOffset { register: self.cfa_register, offset: self.cfa_offset_bytes },
            CfaRule::Expression,
        )
    }
}

/// Runs the instructions of functions, one after the other.
#[derive(Default)]
pub(super) struct Evaluator {
    remembered: Vec<CfiState>,
}

impl Evaluator {
    /// Passes each state of a function to `sink` with the stated address from which it holds, in order. Of states with
    /// equal addresses, the last holds.
    ///
    /// # Errors
    ///
    /// If an instruction is unknown or makes no sense where it is. What was passed to `sink` may then be wrong.
    pub(super) fn states<'data, Section: UnwindSection<SectionBytes<'data>>>(
        &mut self,
        fde: &Fde<'data>,
        section: &Section,
        bases: &BaseAddresses,
        architecture: Architecture,
        mut sink: impl FnMut(u64, &CfiState),
    ) -> Result<()> {
        self.remembered.clear();
        let mut run = CfiInterpreter {
            architecture,
            cie: fde.cie(),
            at: fde.initial_address(),
            state: CfiState::EMPTY,
            initial: None,
            remembered: &mut self.remembered,
        };
        run.execute(fde.cie().instructions(section, bases), |_, _| ())?;
        run.at = fde.initial_address();
        run.initial = Some(run.state.clone());
        match run.execute(fde.instructions(section, bases), &mut sink) {
            Err(Error::UnknownCallFrameInstruction(unknown))
                if unknown.0 == NEGATE_RA_STATE_WITH_PC && architecture == Architecture::Aarch64 =>
            {
                run.state.is_unknown = true;
            }
            executed => executed?,
        }
        sink(run.at, &run.state);
        Ok(())
    }
}

struct CfiInterpreter<'a, 'data> {
    architecture: Architecture,
    cie: &'a Cie<'data>,
    /// The address that has been reached.
    at: u64,
    state: CfiState,
    /// The state after the CIE's instructions, once they have run.
    initial: Option<CfiState>,
    remembered: &'a mut Vec<CfiState>,
}

impl<'data> CfiInterpreter<'_, 'data> {
    fn execute(
        &mut self,
        mut instructions: CallFrameInstructionIter<'_, SectionBytes<'data>>,
        mut sink: impl FnMut(u64, &CfiState),
    ) -> Result<()> {
        while let Some(instruction) = instructions.next()? {
            if let Some(next) = self.address_after(&instruction)? {
                sink(self.at, &self.state);
                self.at = next;
            } else {
                self.apply(instruction)?;
            }
        }
        Ok(())
    }

    /// The address of the next state, if the instruction sets one.
    fn address_after(&self, instruction: &CallFrameInstruction<usize>) -> Result<Option<u64>> {
        match *instruction {
            CallFrameInstruction::SetLoc { address } if address < self.at => {
                Err(Error::InvalidCfiSetLoc(address))
            }
            CallFrameInstruction::SetLoc { address } => Ok(Some(address)),
            CallFrameInstruction::AdvanceLoc { delta } => {
                let bytes = u64::from(delta).checked_mul(self.cie.code_alignment_factor());
                let next = bytes.and_then(|bytes| self.at.checked_add(bytes));
                next.map(Some).ok_or(Error::AddressOverflow)
            }
            _ => Ok(None),
        }
    }

    fn apply(&mut self, instruction: CallFrameInstruction<usize>) -> Result<()> {
        use CallFrameInstruction as Instruction;

        let factored = |offset: i64| offset.wrapping_mul(self.cie.data_alignment_factor());
        match instruction {
            Instruction::DefCfa { register, offset } => self.set_cfa(register, offset.cast_signed()),
            Instruction::DefCfaSf { register, factored_offset } => {
                self.set_cfa(register, factored(factored_offset));
            }
            // After an expression, DWARF gives these two no meaning, but assemblers write them and the unwinders of GCC
            // and LLVM agree on one: the offset from before the expression applies again.
            Instruction::DefCfaRegister { register } => self.set_cfa(register, self.state.cfa_offset_bytes),
            Instruction::DefCfaOffset { offset } => self.state.cfa_offset_bytes = offset.cast_signed(),
            Instruction::DefCfaOffsetSf { factored_offset } => {
                self.state.cfa_offset_bytes = factored(factored_offset);
            }
            Instruction::DefCfaExpression { expression } => self.state.cfa_expression = Some(expression),
            Instruction::Undefined { register } => self.set(register, RegisterRule::Undefined),
            Instruction::SameValue { register } => self.set(register, RegisterRule::SameValue),
            Instruction::Offset { register, factored_offset } => {
                self.set(register, RegisterRule::Offset(factored(factored_offset.cast_signed())));
            }
            Instruction::OffsetExtendedSf { register, factored_offset } => {
                self.set(register, RegisterRule::Offset(factored(factored_offset)));
            }
            Instruction::ValOffset { register, factored_offset } => {
                self.set(register, RegisterRule::ValOffset(factored(factored_offset.cast_signed())));
            }
            Instruction::ValOffsetSf { register, factored_offset } => {
                self.set(register, RegisterRule::ValOffset(factored(factored_offset)));
            }
            Instruction::Register { dest_register, src_register } => {
                self.set(dest_register, RegisterRule::Register(src_register));
            }
            Instruction::Expression { register, expression } => {
                self.set(register, RegisterRule::Expression(expression));
            }
            Instruction::ValExpression { register, expression } => {
                self.set(register, RegisterRule::ValExpression(expression));
            }
            Instruction::Restore { register } => self.restore(register)?,
            Instruction::RememberState if self.remembered.len() >= MAX_REMEMBERED_STATES => {
                return Err(Error::StackFull);
            }
            Instruction::RememberState => self.remembered.push(self.state.clone()),
            Instruction::RestoreState => {
                self.state = self.remembered.pop().ok_or(Error::PopWithEmptyStack)?;
            }
            // Irrelevant to a walk, or of another architecture.
            _ => {}
        }
        Ok(())
    }

    fn set_cfa(&mut self, register: gimli::Register, offset_bytes: i64) {
        self.state.cfa_register = register;
        self.state.cfa_offset_bytes = offset_bytes;
        self.state.cfa_expression = None;
    }

    fn set(&mut self, register: gimli::Register, rule: RegisterRule<usize>) {
        if let Some(place) = rule_of(&mut self.state, register, self.cie, self.architecture) {
            *place = Some(rule);
        }
    }

    fn restore(&mut self, register: gimli::Register) -> Result<()> {
        let initial = self.initial.as_mut().ok_or(Error::CfiInstructionInInvalidContext)?;
        if let Some(place) = rule_of(&mut self.state, register, self.cie, self.architecture) {
            *place = rule_of(initial, register, self.cie, self.architecture).and_then(|rule| rule.clone());
        }
        Ok(())
    }
}

/// The rule of a register, if the register matters to a walk.
fn rule_of<'a>(
    state: &'a mut CfiState,
    register: gimli::Register,
    cie: &Cie<'_>,
    architecture: Architecture,
) -> Option<&'a mut Option<RegisterRule<usize>>> {
    if register == cie.return_address_register() {
        return Some(&mut state.return_address);
    }
    match architecture.register(register.0)? {
        frame_pointer if frame_pointer.is_frame_pointer() => Some(&mut state.frame_pointer),
        stack_pointer if stack_pointer.is_stack_pointer() => Some(&mut state.stack_pointer),
        other => (architecture.callee_saved() == Some(other)).then_some(&mut state.callee_saved),
    }
}
