//! arm64 (Procedure Call Standard for the Arm 64-bit Architecture, and DWARF for it).

use super::register::Register;
use crate::rule::{CalleeSaved, Cfa, ReturnAddress, Rule, SavedRegister};

/// The registers by their DWARF number; 32 is the pc.
pub(super) const REGISTERS: [Register; 32] = [
    Register::X0,
    Register::X1,
    Register::X2,
    Register::X3,
    Register::X4,
    Register::X5,
    Register::X6,
    Register::X7,
    Register::X8,
    Register::X9,
    Register::X10,
    Register::X11,
    Register::X12,
    Register::X13,
    Register::X14,
    Register::X15,
    Register::X16,
    Register::X17,
    Register::X18,
    Register::X19,
    Register::X20,
    Register::X21,
    Register::X22,
    Register::X23,
    Register::X24,
    Register::X25,
    Register::X26,
    Register::X27,
    Register::X28,
    Register::X29,
    Register::X30,
    Register::Sp,
];

pub(super) const NAMES: [&str; 32] = [
    "x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14", "x15",
    "x16", "x17", "x18", "x19", "x20", "x21", "x22", "x23", "x24", "x25", "x26", "x27", "x28", "x29", "x30",
    "sp",
];

/// x0 to x18: section 6.1.1 of the procedure call standard. The platform's register is among them.
pub(super) const CALL_CLOBBERED: &[Register] = REGISTERS.split_at(19).0;

/// A call leaves the return address in the link register, and the stack pointer as it was.
pub(super) const LEAF: Rule = Rule {
    cfa: Cfa::Register { register: Register::Sp, offset: 0 },
    frame_pointer: SavedRegister::Same,
    return_address: ReturnAddress::InRegister(Register::X30),
    callee_saved: CalleeSaved::Unknown,
    signal_frame: false,
};

/// The stack pointer is at a `siginfo_t` of 128 bytes, followed by a `struct ucontext`: in it are, at 176, the `regs`,
/// `sp` and `pc` of `struct sigcontext` (Linux, `arch/arm64/include/uapi/asm/{ucontext,sigcontext}.h`).
pub(super) const KERNEL_SIGNAL_FRAME: Rule = Rule {
    cfa: Cfa::Deref { register: Register::Sp, offset: REGISTERS_AT + 31 * 8, addend: 0 },
    frame_pointer: SavedRegister::At { register: Register::Sp, offset: REGISTERS_AT + 29 * 8 },
    return_address: ReturnAddress::At { register: Register::Sp, offset: REGISTERS_AT + 32 * 8 },
    callee_saved: CalleeSaved::AfterFramePointer,
    signal_frame: true,
};

/// From the stack pointer to `regs`: the `siginfo_t`, the context before its `struct sigcontext`, and `fault_address`.
const REGISTERS_AT: i32 = 128 + 176 + 8;

#[cfg(test)]
mod tests {
    use sidewinder_address::Avma;

    use super::*;
    use crate::rule::Entry;
    use crate::step::tests::Words;
    use crate::{Architecture, FrameRegisters, StepError};

    #[test]
    fn entries_read_as_the_documented_columns() {
        let text = |rule| Entry::Rule(rule).to_string();
        assert_eq!(text(LEAF), "sp+0\tsame\tx30");
        assert_eq!(text(Architecture::Aarch64.frame_pointer_rule()), "x29+16\tcfa-16\tcfa-8");
        assert_eq!(text(Architecture::Aarch64.root()), "sp+0\tsame\tundefined");
        assert_eq!(text(KERNEL_SIGNAL_FRAME), "*(sp+560)\t*(sp+544)\t*(sp+568)");
    }

    #[test]
    fn the_link_register_leads_to_the_caller_of_what_was_interrupted_and_of_nothing_else() {
        let arm64 = Architecture::Aarch64;
        let frame = FrameRegisters {
            pc: Avma(1),
            sp: 0x1000,
            sp_is_bound: false,
            fp: 7,
            callee_saved: Some(0x55),
            general: None,
        };
        let caller = arm64.leaf().step(&frame, &Words(vec![])).unwrap();
        let expected = FrameRegisters {
            pc: Avma(0x55),
            sp: 0x1000,
            sp_is_bound: false,
            fp: 7,
            callee_saved: None,
            general: None,
        };
        assert_eq!(caller, expected);
        let lost = Err(StepError::RegisterLost(Register::X30));
        assert_eq!(arm64.leaf().step(&caller, &Words(vec![])), lost, "the call in it overwrote that");

        let mut context = vec![0; 72];
        for (offset, value) in [(544, 0x29), (552, 0x30), (560, 0x2000), (568, 0x99)] {
            context[offset / 8] = value;
        }
        let interrupted = arm64.kernel_signal_frame().step(&caller, &Words(context)).unwrap();
        assert_eq!((interrupted.pc, interrupted.sp, interrupted.fp), (Avma(0x99), 0x2000, 0x29));
        assert_eq!(arm64.leaf().step(&interrupted, &Words(vec![])).unwrap().pc, Avma(0x30));
    }
}
