/// A value that code has in a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Operand {
    /// Where it is.
    pub at: OperandAt,
    /// Its width: 8, 16, 32 or 64.
    pub bits: u8,
    /// Whether its highest bit is its sign.
    pub is_signed: bool,
}

/// Where a value is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OperandAt {
    /// Nowhere: it is always the same.
    Constant(i64),
    /// In a register, by its DWARF number.
    Register(u8),
    /// In memory.
    Memory {
        /// The register with the base address, by its DWARF number.
        register: u8,
        /// In bytes from that address.
        offset: i64,
    },
}
