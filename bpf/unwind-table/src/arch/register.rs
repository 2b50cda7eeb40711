//! The registers of all architectures, and their DWARF numbers.

use std::fmt;

use super::Architecture;

/// A register that a rule can refer to.
///
/// The value is the DWARF number, which fits five bits, above it the architecture.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
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

    X0 = 32,
    X1,
    X2,
    X3,
    X4,
    X5,
    X6,
    X7,
    X8,
    X9,
    X10,
    X11,
    X12,
    X13,
    X14,
    X15,
    X16,
    X17,
    X18,
    X19,
    X20,
    X21,
    X22,
    X23,
    X24,
    X25,
    X26,
    X27,
    X28,
    X29,
    X30,
    Sp,
}

/// The bits of a register's value that hold its DWARF number.
const DWARF_NUMBER: u8 = 31;

impl Register {
    /// This register's DWARF number, by which its architecture distinguishes it.
    #[must_use]
    pub const fn dwarf(self) -> u16 {
        (self as u8 & DWARF_NUMBER) as u16
    }

    /// The architecture that has it.
    #[must_use]
    pub const fn architecture(self) -> Architecture {
        if self as u8 <= DWARF_NUMBER { Architecture::X86_64 } else { Architecture::Aarch64 }
    }

    /// Whether it is the stack pointer of its architecture.
    #[must_use]
    pub fn is_stack_pointer(self) -> bool {
        self == self.architecture().stack_pointer()
    }

    /// Whether it is the frame pointer of its architecture.
    #[must_use]
    pub fn is_frame_pointer(self) -> bool {
        self == self.architecture().frame_pointer()
    }
}

/// What is true of the architecture that this program runs on, whose stacks it walks.
impl Register {
    /// The stack pointer.
    pub const STACK_POINTER: Self = Architecture::HOST.stack_pointer();

    /// The frame pointer.
    pub const FRAME_POINTER: Self = Architecture::HOST.frame_pointer();

    /// The third register that walks track.
    pub const CALLEE_SAVED: Self = Architecture::HOST.tracked();

    /// The register with the result of a system call: 0 in the child of `clone`.
    pub const SYSCALL_RESULT: Self = Architecture::HOST.syscall_result();

    /// The pc's DWARF number, which isn't that of a register in a rule.
    pub const PC_DWARF: u16 = Architecture::HOST.registers().len() as u16;

    /// The number of registers.
    pub const COUNT: usize = Architecture::HOST.registers().len();

    /// The register with this DWARF number, if there is one.
    #[must_use]
    pub fn from_dwarf(number: u16) -> Option<Self> {
        Architecture::HOST.register(number)
    }
}

impl fmt::Display for Register {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.architecture().register_names();
        f.write_str(names.get(usize::from(self.dwarf())).copied().unwrap_or("?"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dwarf_number_leads_to_its_register_and_back() {
        for architecture in [Architecture::X86_64, Architecture::Aarch64] {
            let registers = architecture.registers();
            for (number, register) in (0..).zip(registers) {
                assert_eq!(architecture.register(number), Some(*register));
                assert_eq!((register.dwarf(), register.architecture()), (number, architecture));
            }
            assert_eq!(architecture.register(registers.len() as u16), None, "the pc");
            assert_eq!(architecture.register_names().len(), registers.len());
        }
        assert_eq!(
            [Register::R15, Register::X0, Register::Sp].map(|one| one.to_string()),
            ["r15", "x0", "sp"]
        );
    }
}
