//! The architectures, their registers, and the DWARF numbers of these.

/// An architecture that there can be tables for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Architecture {
    /// x86-64.
    X86_64,
    /// arm64.
    Aarch64,
}

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
}
