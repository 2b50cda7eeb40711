//! x86-64 (System V ABI for AMD64).

use super::register::Register;
use crate::rule::{CalleeSaved, Cfa, ReturnAddress, Rule, SavedRegister};

/// Bytes per entry of a lazily bound procedure linkage table (section 5.2): the index is on the stack from byte 11 on, or
/// from byte 10 if the entry starts with `endbr64`.
pub const PLT_ENTRY_BYTES: u32 = 16;

/// The registers by their DWARF number (figure 3.36); 16 is the pc.
pub(super) const REGISTERS: [Register; 16] = [
    Register::Rax,
    Register::Rdx,
    Register::Rcx,
    Register::Rbx,
    Register::Rsi,
    Register::Rdi,
    Register::Rbp,
    Register::Rsp,
    Register::R8,
    Register::R9,
    Register::R10,
    Register::R11,
    Register::R12,
    Register::R13,
    Register::R14,
    Register::R15,
];

pub(super) const NAMES: [&str; 16] = [
    "rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp", "r8", "r9", "r10", "r11", "r12", "r13", "r14",
    "r15",
];

/// A call leaves the return address on top of the stack.
pub(super) const LEAF: Rule = above_stack_pointer(8);

/// The stack pointer is at a `struct ucontext`, which contains the saved registers.
pub(super) const KERNEL_SIGNAL_FRAME: Rule = Rule {
    cfa: Cfa::Deref { register: Register::Rsp, offset: 160, addend: 0 },
    frame_pointer: SavedRegister::At { register: Register::Rsp, offset: 120 },
    return_address: ReturnAddress::At { register: Register::Rsp, offset: 168 },
    callee_saved: CalleeSaved::Unknown,
    signal_frame: true,
};

pub(super) const fn above_stack_pointer(offset: i32) -> Rule {
    Rule {
        cfa: Cfa::Register { register: Register::Rsp, offset },
        frame_pointer: SavedRegister::Same,
        return_address: ReturnAddress::AtCfa(-8),
        callee_saved: CalleeSaved::Unknown,
        signal_frame: false,
    }
}

/// Figure 3.4.
pub(super) const CALL_CLOBBERED: &[Register] = &[
    Register::Rax,
    Register::Rcx,
    Register::Rdx,
    Register::Rsi,
    Register::Rdi,
    Register::R8,
    Register::R9,
    Register::R10,
    Register::R11,
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Architecture;
    use crate::rule::Entry;

    fn text(rule: Rule) -> String {
        Entry::Rule(rule).to_string()
    }

    #[test]
    fn entries_read_as_the_documented_columns() {
        assert_eq!(text(Architecture::X86_64.frame_pointer_rule()), "rbp+16\tcfa-16\tcfa-8");
        assert_eq!(text(LEAF), "rsp+8\tsame\tcfa-8");
        assert_eq!(text(Architecture::X86_64.root()), "rsp+8\tsame\tundefined");
        assert_eq!(text(KERNEL_SIGNAL_FRAME), "*(rsp+160)\t*(rsp+120)\t*(rsp+168)");
        assert_eq!(text(Rule { cfa: Cfa::Plt { threshold: 11 }, ..LEAF }), "plt\tsame\tcfa-8");
        let vfork = Rule { return_address: ReturnAddress::InRegister(Register::Rdi), ..LEAF };
        assert_eq!(text(vfork), "rsp+8\tsame\trdi");
        #[cfg(target_arch = "x86_64")]
        assert_eq!(text(Rule::AFTER_CLONE), "rsp+8\tsame\tcfa-8 unless rax=0");
        let assembly = Cfa::Deref { register: Register::Rsp, offset: 56, addend: 8 };
        assert_eq!(assembly.to_string(), "*(rsp+56)+8");
        let indexed =
            Cfa::DerefIndexed { register: Register::Rsp, index: Register::R9, offset: 8, addend: 8 };
        assert_eq!(indexed.to_string(), "*(rsp+8*r9+8)+8");
        assert_eq!(Cfa::Register { register: Register::R10, offset: 0 }.to_string(), "r10+0");
        assert_eq!(Entry::NO_INFORMATION.to_string(), "end\t-\t-");
    }
}
