//! The places in a file at which users probe programs: functions by name, and static trace points (USDT).
//!
//! Unlike names for addresses, these must be right or refused: a probe in the wrong place counts something else.

mod function;
pub(crate) mod operand;
mod strings;
mod usdt;

use thiserror::Error;

use crate::arch;
use crate::error::SymbolTableError;

pub use self::function::{find_function, find_return};
pub use self::operand::{Operand, OperandAt};
pub use self::usdt::find_usdt;

/// A place in a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProbeSite {
    /// Where its instruction is in the file.
    pub file_offset: u64,
    /// Where the counter is in the file with which a program finds out that the place is probed.
    pub semaphore: Option<u64>,
    /// The arguments; `None` for one that can't be read.
    pub arguments: Vec<Option<Operand>>,
}

/// The place of an argument of a C function, counted from 0, when the function begins; `None` if it is on the stack.
#[must_use]
pub fn argument(index: usize) -> Option<OperandAt> {
    arch::ARGUMENT_REGISTERS.get(index).map(|register| OperandAt::Register(*register))
}

/// The place of what a C function returns, when it has returned.
#[must_use]
pub const fn result() -> OperandAt {
    OperandAt::Register(arch::RESULT_REGISTER)
}

/// The place of a register by its name in assembly: `%NAME`.
#[must_use]
pub fn register(name: &str) -> Option<OperandAt> {
    arch::parse_operand(name).filter(|at| matches!(at, OperandAt::Register(_)))
}

/// Why a file has no such place.
#[derive(Debug, Error)]
pub enum SiteError {
    /// The file can't be read.
    #[error("can't read its symbols")]
    Symbols(#[from] SymbolTableError),
    /// It is not for this architecture.
    #[error("it is not a program for this machine")]
    ForeignMachine,
    /// It has no function of this name.
    #[error("it has no function {name}{}", list_of(", but ", similar))]
    NoFunction {
        /// The name.
        name: String,
        /// Names that contain it.
        similar: Vec<String>,
    },
    /// It has several functions of this name.
    #[error(
        "it has several functions {name}{}; give one by its symbol or its address",
        list_of(": ", functions)
    )]
    Ambiguous {
        /// The name.
        name: String,
        /// Their symbols and addresses.
        functions: Vec<String>,
    },
    /// The function only chooses the real one.
    #[error(
        "its function {0} only selects an implementation for this CPU at load time: probe that implementation"
    )]
    Resolver(String),
    /// The returns of Go's functions can't be probed.
    #[error(
        "it is a Go program, which moves its stacks and crashes when it finds the return address that such a probe puts there"
    )]
    GoReturn,
    /// The offset is not in the function.
    #[error("its function {name} has only {size} bytes, so offset {offset} is outside it")]
    BeyondFunction {
        /// The function.
        name: String,
        /// Its size in bytes.
        size: u64,
        /// The offset that was given.
        offset: u64,
    },
    /// An instruction doesn't begin there: a probe would change the program.
    #[error("no instruction begins at offset {offset} of its function {name}")]
    InsideInstruction {
        /// The function.
        name: String,
        /// The offset that was given.
        offset: u64,
    },
    /// It has no trace point of this name.
    #[error("it has no trace point {name}{}", list_of(", but ", similar))]
    NoTracePoint {
        /// Provider and name.
        name: String,
        /// Those that it has.
        similar: Vec<String>,
    },
}

/// How many names a message lists.
const LISTED_MAX: usize = 6;

fn list_of(before: &str, names: &[String]) -> String {
    match names {
        [] => String::new(),
        names => {
            let shown = names.iter().take(LISTED_MAX).cloned().collect::<Vec<_>>().join(", ");
            let others = names.len().saturating_sub(LISTED_MAX);
            let rest = if others > 0 { format!(", and {others} more") } else { String::new() };
            format!("{before}{shown}{rest}")
        }
    }
}
