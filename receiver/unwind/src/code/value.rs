//! Values of a frame, as far as they can be told without running it.

/// The largest distance of an address from its origin, in bytes.
const MAX_DISTANCE: i32 = 1 << 30;

/// Bytes of a stack word.
pub(crate) const WORD: i32 = 8;

/// The origin that addresses of a frame are relative to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Origin {
    /// The CFA.
    Cfa,
    /// The result of the instruction at `by`, which cleared the lowest bits of an address.
    Aligned {
        /// The instruction, in bytes from the lowest code.
        by: u32,
    },
    /// The stack pointer after the instruction at `by` moved it once the return address had been popped: past arguments
    /// that the function removes, often by an amount in a register.
    Dropped {
        /// The instruction, in bytes from the lowest code.
        by: u32,
    },
}

impl Origin {
    pub(super) fn is_dropped(self) -> bool {
        matches!(self, Self::Dropped { .. })
    }
}

/// `origin + offset`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct SymbolicAddress {
    pub(crate) origin: Origin,
    pub(crate) offset: i32,
}

impl SymbolicAddress {
    pub(crate) const fn cfa(offset: i32) -> Self {
        Self { origin: Origin::Cfa, offset }
    }

    pub(crate) fn checked_add(self, by: i64) -> Option<Self> {
        let offset = i32::try_from(i64::from(self.offset).checked_add(by)?).ok()?;
        (offset.abs() <= MAX_DISTANCE).then_some(Self { offset, ..self })
    }
}

/// The content of a register or of a word of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AbstractValue {
    /// Anything: paths to this instruction disagree, or the value can't be tracked.
    Unknown,
    /// Something that was computed or passed in, and is none of the below.
    Other,
    /// A constant, by which some code moves the stack pointer.
    Constant(i64),
    /// An address of this frame.
    Address(SymbolicAddress),
    /// The function's return address.
    ReturnAddress,
    /// The value of the frame pointer at the function's entry.
    CallerFramePointer,
}

impl AbstractValue {
    pub(crate) fn address(self) -> Option<SymbolicAddress> {
        match self {
            Self::Address(address) => Some(address),
            _ => None,
        }
    }

    /// Whether it is known to belong to the frame.
    pub(crate) fn is_of_frame(self) -> bool {
        matches!(self, Self::Address(_) | Self::ReturnAddress | Self::CallerFramePointer)
    }

    pub(super) fn join(self, other: Self) -> Self {
        match (self, other) {
            (one, other) if one == other => one,
            (Self::Other | Self::Constant(_), Self::Other | Self::Constant(_)) => Self::Other,
            _ => Self::Unknown,
        }
    }
}
