/// An instruction of generated code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// The address of the next one.
    pub next: u64,
    /// What is executed after it.
    pub flow: Flow,
}

/// What is executed after an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flow {
    /// The next one.
    Next,
    /// A function, and then the next one.
    Call,
    /// What is at an address.
    Jump(u64),
    /// The next one, or what is at an address.
    Branch(u64),
    /// What is not known from the instruction: it returns, jumps to an address in a register or in memory, or traps.
    End,
}
