//! Architecture-dependent code: everything else in this crate is the same for all architectures.
//!
//! Tables are made of files of any [`Architecture`], on any other. Stacks are walked on the architecture that the program
//! runs on, [`Architecture::HOST`]: constants of [`Register`] and [`Rule`] are those of that one.
//!
//! The module of an architecture defines its registers by DWARF number, and the rules that its ABI defines.

mod aarch64;
pub(crate) mod register;
mod x86_64;

use std::fmt;

pub use self::register::{Architecture, Register};
pub use self::x86_64::PLT_ENTRY_BYTES;
use crate::rule::{CalleeSaved, Cfa, ReturnAddress, Rule, SavedRegister};

impl Architecture {
    /// The architecture that this program runs on.
    #[cfg(target_arch = "x86_64")]
    pub const HOST: Self = Self::X86_64;
    /// The architecture that this program runs on.
    #[cfg(target_arch = "aarch64")]
    pub const HOST: Self = Self::Aarch64;

    /// The registers by their DWARF number. The number after them is the pc's.
    #[must_use]
    pub const fn registers(self) -> &'static [Register] {
        match self {
            Self::X86_64 => &x86_64::REGISTERS,
            Self::Aarch64 => &aarch64::REGISTERS,
        }
    }

    /// The register with this DWARF number, if there is one.
    #[must_use]
    pub fn register(self, dwarf_number: u16) -> Option<Register> {
        self.registers().get(usize::from(dwarf_number)).copied()
    }

    const fn register_names(self) -> &'static [&'static str] {
        match self {
            Self::X86_64 => &x86_64::NAMES,
            Self::Aarch64 => &aarch64::NAMES,
        }
    }

    /// The stack pointer.
    #[must_use]
    pub const fn stack_pointer(self) -> Register {
        match self {
            Self::X86_64 => Register::Rsp,
            Self::Aarch64 => Register::Sp,
        }
    }

    /// The frame pointer: it points to the frame record, which is the caller's frame pointer followed by the return
    /// address.
    #[must_use]
    pub const fn frame_pointer(self) -> Register {
        match self {
            Self::X86_64 => Register::Rbp,
            Self::Aarch64 => Register::X29,
        }
    }

    /// The third register that walks track, besides the stack pointer and the frame pointer: the
    /// [callee-saved](Self::callee_saved) one, or the [link register](Self::link), which is known in frames that were
    /// interrupted and in no others.
    #[must_use]
    pub const fn tracked(self) -> Register {
        match self {
            Self::X86_64 => Register::Rbx,
            Self::Aarch64 => Register::X30,
        }
    }

    /// The callee-saved register, other than the frame pointer, that callers' rules may need.
    #[must_use]
    pub const fn callee_saved(self) -> Option<Register> {
        match self {
            Self::X86_64 => Some(Register::Rbx),
            Self::Aarch64 => None,
        }
    }

    /// The register in which a call leaves the return address, if it isn't on the stack.
    #[must_use]
    pub const fn link(self) -> Option<Register> {
        match self {
            Self::X86_64 => None,
            Self::Aarch64 => Some(Register::X30),
        }
    }

    /// The general registers whose values a call needn't preserve.
    #[must_use]
    pub const fn call_clobbered(self) -> &'static [Register] {
        match self {
            Self::X86_64 => x86_64::CALL_CLOBBERED,
            Self::Aarch64 => aarch64::CALL_CLOBBERED,
        }
    }

    /// The register with the result of a system call: 0 in the child of `clone`.
    #[must_use]
    pub const fn syscall_result(self) -> Register {
        match self {
            Self::X86_64 => Register::Rax,
            Self::Aarch64 => Register::X0,
        }
    }

    /// The frame of a function that hasn't touched the stack yet.
    #[must_use]
    pub const fn leaf(self) -> Rule {
        match self {
            Self::X86_64 => x86_64::LEAF,
            Self::Aarch64 => aarch64::LEAF,
        }
    }

    /// The outermost frame of a stack, about which nothing else is known.
    #[must_use]
    pub const fn root(self) -> Rule {
        Rule { return_address: ReturnAddress::Undefined, ..self.leaf() }
    }

    /// The kernel's signal frame, for the code that the handler returns to (`rt_sigreturn`).
    #[must_use]
    pub const fn kernel_signal_frame(self) -> Rule {
        match self {
            Self::X86_64 => x86_64::KERNEL_SIGNAL_FRAME,
            Self::Aarch64 => aarch64::KERNEL_SIGNAL_FRAME,
        }
    }

    /// The frame of a function whose frame pointer points to a frame record, above which the caller's frame begins.
    #[must_use]
    pub const fn frame_pointer_rule(self) -> Rule {
        Rule {
            cfa: Cfa::Register { register: self.frame_pointer(), offset: 16 },
            frame_pointer: SavedRegister::AtCfa(-16),
            return_address: ReturnAddress::AtCfa(-8),
            callee_saved: CalleeSaved::Unknown,
            signal_frame: false,
        }
    }
}

impl Register {
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

/// The rules of the architecture that this program runs on.
impl Rule {
    /// The frame of a function whose frame pointer points to a frame record: the caller's frame pointer, followed by the
    /// return address.
    pub const FRAME_POINTER: Self = Architecture::HOST.frame_pointer_rule();

    /// The frame of a function that hasn't touched the stack yet.
    pub const LEAF: Self = Architecture::HOST.leaf();

    /// The outermost frame of a stack, about which nothing else is known.
    pub const ROOT: Self = Architecture::HOST.root();

    /// The kernel's signal frame, for the code that the handler returns to (`rt_sigreturn`).
    pub const KERNEL_SIGNAL_FRAME: Self = Architecture::HOST.kernel_signal_frame();
}

/// Rules of x86-64, where a call leaves the return address on top of the stack.
impl Rule {
    /// The frame of a function that has called `clone` and hasn't touched the stack, in the parent and in the child.
    pub const AFTER_CLONE: Self = Self { return_address: ReturnAddress::OfParent(-8), ..x86_64::LEAF };

    /// The frame of a function that has moved the stack pointer but not changed the frame pointer.
    #[must_use]
    pub const fn above_stack_pointer(offset: i32) -> Self {
        x86_64::above_stack_pointer(offset)
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
