//! The methods of the instruction at which compiled code was interrupted, from debug information that not all instructions have.
//!
//! The instruction belongs to what is executed next: so the code is followed, as far as no branch is taken, to an instruction
//! that has debug information, or to where the method returns. Addresses are no guide: at the end of a method are the parts that
//! are hardly ever executed, and each loop may have further copies. Between the two, code of several methods may be mixed. A
//! branch to a call by which compiled code is left, because an assumption of the compiler proved wrong, tells more: such a call
//! has the state before the branch. Methods are those that both have in common: one that was put into another may be missing.
//!
//! Beside the truth, which `-XX:+DebugNonSafepoints` is, `javac` in JDK 25 has 5% of samples with a method that is not executed,
//! instead of 22% with the next debug information by address, and as many with exactly the right ones (68%). Following code for
//! longer finds more, but more often those of other methods.

use sidewinder_address::Avma;
use sidewinder_process::ForeignMemory;
use sidewinder_vm_runtime::FunctionError;
use sidewinder_vm_runtime::arch::{Flow, INSTRUCTION_BYTES_MAX, step};

use super::scopes::{MethodDebugInfo, MethodScope, PcDesc};

/// Instructions that are followed.
const INSTRUCTIONS_MAX: usize = 64;
/// Instructions between a branch and the call by which compiled code is left.
const INSTRUCTIONS_TO_LEAVE_MAX: usize = 12;

/// The scopes of an instruction, and how sure they are.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Scopes {
    /// The innermost first; empty if only the method itself is known.
    pub(super) scopes: Vec<MethodScope>,
    /// How many of them, from the outermost on, are right with the offsets in their bytecode.
    pub(super) certain: usize,
}

impl Scopes {
    pub(super) fn certain(scopes: Vec<MethodScope>) -> Self {
        Self { certain: scopes.len(), scopes }
    }
}

/// A method's code with its debug information.
pub(super) struct CompiledCode<'m, M> {
    pub(super) memory: &'m M,
    /// Its first instruction.
    pub(super) start: Avma,
    /// From which offset on it has its frame.
    pub(super) frame_complete: u32,
    /// The method that was compiled.
    pub(super) method: Avma,
    pub(super) debug: MethodDebugInfo,
    /// Whether all instructions have debug information, but for those that enter and leave the method.
    pub(super) has_debug_everywhere: bool,
}

/// Where code leads if no branch is taken.
struct Path {
    /// To this; `None`: it returns, or goes on for longer than it is followed.
    end: Option<PcDesc>,
    /// On the way is a branch to this call, by which compiled code is left. The first one counts.
    exit: Option<PcDesc>,
}

impl<M: ForeignMemory> CompiledCode<'_, M> {
    /// The scopes of an instruction that is to be executed next.
    pub(super) fn scopes_at(&self, offset: u32) -> Result<Scopes, FunctionError> {
        if offset < self.frame_complete {
            return Ok(Scopes::certain(vec![MethodScope { method: self.method, bci: 0 }]));
        }
        let path = self.path_from(offset)?;
        let Some(end) = path.end else { return Ok(Scopes::default()) };
        let mut scopes = self.debug.scopes_of(self.memory, end)?;
        if end.is_at(offset) || self.has_debug_everywhere {
            return Ok(Scopes::certain(scopes));
        }
        let mut certain = equal_scopes(&scopes, &self.debug.before(self.memory, offset)?);
        if let Some(exit) = path.exit {
            let exit = self.debug.scopes_of(self.memory, exit)?;
            certain = certain.min(equal_scopes(&scopes, &exit));
            scopes.drain(..scopes.len() - common_calls(&scopes, &exit));
        }
        Ok(Scopes { scopes, certain })
    }

    fn path_from(&self, offset: u32) -> Result<Path, FunctionError> {
        let mut path = Path { end: None, exit: None };
        let mut at = offset;
        for _ in 0..INSTRUCTIONS_MAX {
            let Some(instruction) = self.instruction(at)? else { break };
            path.end = instruction.pc_desc;
            if path.end.is_some() {
                break;
            }
            at = match instruction.flow {
                Flow::Next | Flow::Call => instruction.next,
                Flow::Branch(target) => {
                    if path.exit.is_none()
                        && let Some(target) = self.offset_of(target)
                    {
                        path.exit = self.exit_at(target)?;
                    }
                    instruction.next
                }
                Flow::Jump(target) => match self.offset_of(target) {
                    Some(target) => target,
                    None => break,
                },
                Flow::End => break,
            };
        }
        Ok(path)
    }

    /// The call by which compiled code is left, if that is all what code does.
    fn exit_at(&self, offset: u32) -> Result<Option<PcDesc>, FunctionError> {
        let mut at = offset;
        for _ in 0..INSTRUCTIONS_TO_LEAVE_MAX {
            let Some(instruction) = self.instruction(at)? else { break };
            if let Some(found) = instruction.pc_desc {
                return Ok(Some(found).filter(|_| instruction.flow == Flow::Call && found.is_reexecuted));
            }
            at = match instruction.flow {
                Flow::Next | Flow::Call => instruction.next,
                Flow::Jump(target) => match self.offset_of(target) {
                    Some(target) => target,
                    None => break,
                },
                Flow::Branch(_) | Flow::End => break,
            };
        }
        Ok(None)
    }

    /// The instruction at an offset, with its debug information; `None` if there is none, or it can't be read.
    fn instruction(&self, offset: u32) -> Result<Option<FlowInstruction>, FunctionError> {
        let Some(at) = self.start.checked_add(offset.into()) else { return Ok(None) };
        let mut code = [0; INSTRUCTION_BYTES_MAX];
        let is_read = self.memory.read_exact(at, &mut code).is_ok();
        let Some(step) = step(&code, at.0).filter(|_| is_read) else { return Ok(None) };
        let Some(next) = self.offset_of(step.next) else { return Ok(None) };
        // That of a call belongs to the instruction that it returns to.
        let found = self.debug.first_from(self.memory, offset)?;
        let is_own = |found: &PcDesc| found.is_at(offset) || step.flow == Flow::Call && found.is_at(next);
        Ok(Some(FlowInstruction { next, flow: step.flow, pc_desc: found.filter(is_own) }))
    }

    fn offset_of(&self, address: u64) -> Option<u32> {
        address.checked_sub(self.start.0)?.try_into().ok()
    }
}

struct FlowInstruction {
    /// The offset of the one behind it.
    next: u32,
    flow: Flow,
    pc_desc: Option<PcDesc>,
}

/// How many scopes, from the outermost on, are equal.
fn equal_scopes(scopes: &[MethodScope], others: &[MethodScope]) -> usize {
    scopes.iter().rev().zip(others.iter().rev()).take_while(|(scope, other)| scope == other).count()
}

/// How many scopes, from the outermost on, are the same calls: of the same method, from the same place.
fn common_calls(scopes: &[MethodScope], others: &[MethodScope]) -> usize {
    let mut place = None;
    let is_same = |(scope, other): &(&MethodScope, &MethodScope)| {
        let is_same = scope.method == other.method && place.is_none_or(|(a, b)| a == b);
        place = Some((scope.bci, other.bci));
        is_same
    };
    scopes.iter().rev().zip(others.iter().rev()).take_while(is_same).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::{Bytes, machine};
    use sidewinder_vm_runtime::arch::instructions::{CALL, NEXT, RETURN, branch, jump};

    const OUTER: Avma = Avma(0x1000);
    const INNER: Avma = Avma(0x1100);
    const BLOB: Avma = Avma(0x100);
    const CODE: usize = 0x2000;
    const PCS: usize = 0x320;
    const SCOPES: usize = 0x310;
    const METADATA: usize = 0x300;
    const FRAME_COMPLETE: u32 = 2;

    fn outer(bci: i32) -> MethodScope {
        MethodScope { method: OUTER, bci }
    }

    const IN_IT: MethodScope = MethodScope { method: INNER, bci: 0 };

    /// Scopes of an instruction of a method that calls one that was put into it, with a loop behind its end.
    fn scopes_at(offset: u32, has_debug_everywhere: bool) -> Scopes {
        let mut bytes = vec![0; 0x3000];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        let mut code = |offset: usize, value: &[u8]| put(CODE + offset, value);
        // The frame is made; then the branch to a call by which the code is left.
        code(0, &[NEXT, NEXT]);
        code(2, &branch(2, 30));
        code(4, &[NEXT]);
        code(5, &CALL);
        code(10, &[NEXT, RETURN]);
        code(12, &jump(12, 5));
        code(14, &branch(14, 12));
        code(16, &jump(16, 10));
        code(30, &CALL);
        // (sender, number of the method, offset in the bytecode + 1)
        put(SCOPES + 1, &[0, 1, 4]);
        put(SCOPES + 4, &[1, 2, 1]);
        put(SCOPES + 7, &[0, 1, 2]);
        put(METADATA, &OUTER.0.to_le_bytes());
        put(METADATA + 8, &INNER.0.to_le_bytes());
        let pc_descs = [(-1, 0, 0), (10, 4, 0), (35, 7, REEXECUTED), (i32::MAX, 0, 0)];
        for (number, (offset, scope, flags)) in pc_descs.into_iter().enumerate() {
            put(PCS + 16 * number, &i32::to_le_bytes(offset));
            put(PCS + 16 * number + 4, &u32::to_le_bytes(scope));
            put(PCS + 16 * number + 12, &u32::to_le_bytes(flags));
        }
        let mut header = vec![0; 384];
        let mut field = |at: usize, value: u64| header[at..at + 8].copy_from_slice(&value.to_le_bytes());
        let offset_of = |at: usize| at as u64 - BLOB.0;
        field(120, SCOPES as u64);
        field(260, offset_of(METADATA));
        field(268, offset_of(PCS));
        field(272, offset_of(PCS + 16 * pc_descs.len()));
        let layout = machine(17).debug.unwrap();
        let code = CompiledCode {
            memory: &Bytes(bytes),
            start: Avma(CODE as u64),
            frame_complete: FRAME_COMPLETE,
            method: OUTER,
            debug: MethodDebugInfo::new(&layout, 17, BLOB, &header).unwrap(),
            has_debug_everywhere,
        };
        code.scopes_at(offset).unwrap()
    }

    const REEXECUTED: u32 = 1;

    #[test]
    fn interrupted_code_belongs_to_what_follows() {
        let both = || vec![IN_IT, outer(3)];
        // Behind the branch, the call follows. What is before it is not known to be the same.
        assert_eq!(scopes_at(4, false), Scopes { scopes: both(), certain: 0 });
        assert_eq!(scopes_at(5, false), Scopes { scopes: both(), certain: 0 });
        assert_eq!(scopes_at(10, false), Scopes::certain(both()));
        // By the jump that is behind the end of the method, and then by one more.
        assert_eq!(scopes_at(12, false), Scopes { scopes: both(), certain: 2 });
        assert_eq!(scopes_at(16, false), Scopes { scopes: both(), certain: 2 });
    }

    #[test]
    fn a_branch_out_of_the_code_tells_what_is_before_it() {
        // The method that was put into the other may or may not have begun.
        assert_eq!(scopes_at(2, false), Scopes { scopes: vec![outer(3)], certain: 0 });
        // Other branches don't.
        assert_eq!(scopes_at(14, false).scopes, [IN_IT, outer(3)]);
    }

    #[test]
    fn a_method_that_enters_or_returns_executes_nothing_else() {
        for has_debug_everywhere in [false, true] {
            assert_eq!(scopes_at(0, has_debug_everywhere), Scopes::certain(vec![outer(0)]));
            assert_eq!(scopes_at(1, has_debug_everywhere), Scopes::certain(vec![outer(0)]));
            assert_eq!(scopes_at(11, has_debug_everywhere), Scopes::default());
        }
        assert_eq!(scopes_at(12, true), Scopes::certain(vec![IN_IT, outer(3)]));
        // What is no code leads nowhere.
        assert_eq!(scopes_at(36, false), Scopes::default());
        assert_eq!(scopes_at(u32::MAX, false), Scopes::default());
    }
}
