//! Places of probes in files, and the values of their hits.

use sidewinder_address::FileOffset;

/// The value of a hit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProbeOperand {
    /// Where it is.
    pub place: OperandPlace,
    /// Its width: 8, 16, 32 or 64.
    pub bits: u8,
    /// Whether its highest bit is its sign. Negative values count as 0.
    pub is_signed: bool,
}

/// Where a value is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OperandPlace {
    /// Nowhere: it is always the same.
    Constant(i64),
    /// In a register, by its DWARF number.
    Register(u8),
    /// In memory, at an offset from the address in a register.
    Memory {
        /// By its DWARF number.
        register: u8,
        /// In bytes.
        offset: i64,
    },
}

/// A place in a file at which a probe is hit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UserProbeSite {
    /// The instruction.
    pub offset: FileOffset,
    /// The counter of probes that are attached, which a program checks before it goes there (USDT).
    pub semaphore: Option<FileOffset>,
    /// Whether the hit is when the function that starts there returns.
    pub is_return: bool,
    /// The value of a hit; `None`: hits are counted.
    pub operand: Option<ProbeOperand>,
}
