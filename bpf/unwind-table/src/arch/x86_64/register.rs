//! Registers, and their roles in the ABI.

use std::fmt;

/// A register that a rule can refer to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[expect(missing_docs, reason = "the names are the registers'")]
pub enum Register {
    Rax,
    Rdx,
    Rcx,
    Rbx,
    Rsi,
    Rdi,
    Rbp,
    Rsp,
    R8,
    R9,
    R10,
    R11,
    R12,
    R13,
    R14,
    R15,
}

/// The registers by their DWARF number (System V ABI for AMD64, figure 3.36).
const BY_DWARF_NUMBER: [Register; 16] = [
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

impl Register {
    /// The general register with this DWARF number, if there is one.
    #[must_use]
    pub fn from_dwarf(number: u16) -> Option<Self> {
        BY_DWARF_NUMBER.get(usize::from(number)).copied()
    }

    /// This register's DWARF number.
    #[must_use]
    pub const fn dwarf(self) -> u16 {
        self as u16
    }

    /// The stack pointer.
    pub const STACK_POINTER: Self = Self::Rsp;

    /// The frame pointer: it points to the frame record, which is the caller's frame pointer followed by the return
    /// address.
    pub const FRAME_POINTER: Self = Self::Rbp;

    /// The callee-saved register, other than the frame pointer, that callers' rules may need:
    /// [`Rule::callee_saved`](crate::Rule::callee_saved) tracks it.
    pub const CALLEE_SAVED: Self = Self::Rbx;

    /// The register with the result of a system call: 0 in the child of `clone`.
    pub const SYSCALL_RESULT: Self = Self::Rax;

    /// The pc's DWARF number, which isn't that of a general register.
    pub const PC_DWARF: u16 = 16;

    /// The number of registers.
    pub const COUNT: usize = BY_DWARF_NUMBER.len();

    /// The registers that are not callee-saved (System V ABI for AMD64, figure 3.4).
    pub const CALL_CLOBBERED: [Self; 9] =
        [Self::Rax, Self::Rcx, Self::Rdx, Self::Rsi, Self::Rdi, Self::R8, Self::R9, Self::R10, Self::R11];

    /// All registers, by DWARF number.
    pub fn all() -> impl Iterator<Item = Self> {
        BY_DWARF_NUMBER.into_iter()
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Rax => "rax",
            Self::Rdx => "rdx",
            Self::Rcx => "rcx",
            Self::Rbx => "rbx",
            Self::Rsi => "rsi",
            Self::Rdi => "rdi",
            Self::Rbp => "rbp",
            Self::Rsp => "rsp",
            Self::R8 => "r8",
            Self::R9 => "r9",
            Self::R10 => "r10",
            Self::R11 => "r11",
            Self::R12 => "r12",
            Self::R13 => "r13",
            Self::R14 => "r14",
            Self::R15 => "r15",
        }
    }
}

impl fmt::Display for Register {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dwarf_number_leads_to_its_register_and_back() {
        for number in 0..16 {
            assert_eq!(Register::from_dwarf(number).map(Register::dwarf), Some(number));
        }
        assert_eq!(Register::from_dwarf(Register::PC_DWARF), None, "the return address is no register");
    }
}
