//! The rules that the ABI defines: a call leaves the return address on top of the stack.

use super::Register;
use crate::rule::{CalleeSaved, Cfa, ReturnAddress, Rule, SavedRegister};

impl Rule {
    /// The frame of a function that hasn't touched the stack yet.
    pub const LEAF: Self = Self::above_stack_pointer(8);

    /// The frame of a function that has called `clone` and hasn't touched the stack, in the parent and in the child.
    pub const AFTER_CLONE: Self = Self { return_address: ReturnAddress::OfParent(-8), ..Self::LEAF };

    /// The outermost frame of a stack, about which nothing else is known.
    pub const ROOT: Self = Self { return_address: ReturnAddress::Undefined, ..Self::LEAF };

    /// The kernel's signal frame, for the code that the handler returns to (`rt_sigreturn`): the stack pointer is at a
    /// `struct ucontext`, which contains the saved registers.
    pub const KERNEL_SIGNAL_FRAME: Self = Self {
        cfa: Cfa::Deref { register: Register::Rsp, offset: 160, addend: 0 },
        frame_pointer: SavedRegister::At { register: Register::Rsp, offset: 120 },
        return_address: ReturnAddress::At { register: Register::Rsp, offset: 168 },
        callee_saved: CalleeSaved::Unknown,
        signal_frame: true,
    };

    /// The frame of a function that has moved the stack pointer but not changed the frame pointer.
    #[must_use]
    pub const fn above_stack_pointer(offset: i32) -> Self {
        Self {
            cfa: Cfa::Register { register: Register::Rsp, offset },
            frame_pointer: SavedRegister::Same,
            return_address: ReturnAddress::AtCfa(-8),
            callee_saved: CalleeSaved::Unknown,
            signal_frame: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::Entry;

    fn text(rule: Rule) -> String {
        Entry::Rule(rule).to_string()
    }

    #[test]
    fn entries_read_as_the_documented_columns() {
        assert_eq!(text(Rule::FRAME_POINTER), "rbp+16\tcfa-16\tcfa-8");
        assert_eq!(text(Rule::LEAF), "rsp+8\tsame\tcfa-8");
        assert_eq!(text(Rule::ROOT), "rsp+8\tsame\tundefined");
        assert_eq!(text(Rule::KERNEL_SIGNAL_FRAME), "*(rsp+160)\t*(rsp+120)\t*(rsp+168)");
        assert_eq!(text(Rule { cfa: Cfa::Plt { threshold: 11 }, ..Rule::LEAF }), "plt\tsame\tcfa-8");
        let vfork = Rule { return_address: ReturnAddress::InRegister(Register::Rdi), ..Rule::LEAF };
        assert_eq!(text(vfork), "rsp+8\tsame\trdi");
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
