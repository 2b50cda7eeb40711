//! Address spaces as types.
//!
//! An address means nothing without the space it belongs to, so each space is a type of its own and
//! crossing from one to another is a named method. No function of this project takes a bare `u64`
//! for an address.
#![forbid(unsafe_code)]

use std::fmt;

macro_rules! address_space {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub u64);

        impl $name {
            /// The address `bytes` higher, or `None` if that is outside the address space.
            #[must_use]
            pub const fn checked_add(self, bytes: u64) -> Option<Self> {
                match self.0.checked_add(bytes) {
                    Some(sum) => Some(Self(sum)),
                    None => None,
                }
            }

            /// Bytes from `start` to this address, or `None` if `start` is higher.
            #[must_use]
            pub const fn checked_offset_from(self, start: Self) -> Option<u64> {
                self.0.checked_sub(start.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:#x})"), self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:#x}", self.0)
            }
        }

        impl fmt::LowerHex for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::LowerHex::fmt(&self.0, f)
            }
        }
    };
}

address_space! {
    /// An actual virtual memory address: where a byte is in one process.
    Avma
}
address_space! {
    /// A stated virtual memory address: where the file's headers place a byte.
    Svma
}
address_space! {
    /// A distance in bytes from the start of a file.
    FileOffset
}

/// A range of a file that the file's own headers map at an address (an ELF `PT_LOAD`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoadSegment {
    /// The start of the range in the file (`p_offset`).
    pub file_offset: FileOffset,
    /// Its start in memory according to the headers (`p_vaddr`).
    pub svma: Svma,
    /// Bytes present in the file (`p_filesz`).
    pub size: u64,
    /// Whether the headers request that it is executable (`PF_X`).
    pub executable: bool,
}

impl LoadSegment {
    /// The stated address of a byte of the file, if this segment holds it.
    #[must_use]
    pub fn svma_of(&self, offset: FileOffset) -> Option<Svma> {
        let within = offset.checked_offset_from(self.file_offset)?;
        (within < self.size).then(|| self.svma.checked_add(within)).flatten()
    }

    /// The file offset of a stated address, if this segment holds it.
    #[must_use]
    pub fn file_offset_of(&self, svma: Svma) -> Option<FileOffset> {
        let within = svma.checked_offset_from(self.svma)?;
        (within < self.size).then(|| self.file_offset.checked_add(within)).flatten()
    }
}

/// A code address on a stack, tagged with how it relates to the instruction that was executing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CodeAddress<A> {
    /// The next instruction to be executed: an interrupted leaf, or a frame above a signal handler.
    InstructionPointer(A),
    /// Where execution continues after a call: one past the end of the call instruction.
    ReturnAddress(A),
}

macro_rules! lookup {
    ($space:ident) => {
        impl CodeAddress<$space> {
            /// The address to look up in tables of rows, symbols and lines.
            ///
            /// A call may be the last instruction of its function, so its return address can belong
            /// to the next one: a return address is looked up one byte before.
            #[must_use]
            pub const fn address_for_lookup(self) -> $space {
                match self {
                    Self::InstructionPointer(at) => at,
                    Self::ReturnAddress(at) => $space(at.0.saturating_sub(1)),
                }
            }
        }
    };
}

lookup!(Avma);
lookup!(Svma);
lookup!(FileOffset);

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: LoadSegment =
        LoadSegment { file_offset: FileOffset(0x1000), svma: Svma(0x401000), size: 0x500, executable: true };

    #[test]
    fn a_segment_converts_both_ways_and_refuses_what_it_does_not_hold() {
        assert_eq!(TEXT.svma_of(FileOffset(0x1004)), Some(Svma(0x401004)));
        assert_eq!(TEXT.file_offset_of(Svma(0x4014ff)), Some(FileOffset(0x14ff)));
        assert_eq!(TEXT.file_offset_of(Svma(0x401500)), None);
        assert_eq!(TEXT.svma_of(FileOffset(0xfff)), None);
    }

    #[test]
    fn only_a_return_address_is_looked_up_one_byte_before() {
        assert_eq!(CodeAddress::InstructionPointer(Svma(8)).address_for_lookup(), Svma(8));
        assert_eq!(CodeAddress::ReturnAddress(Svma(8)).address_for_lookup(), Svma(7));
        assert_eq!(CodeAddress::ReturnAddress(Svma(0)).address_for_lookup(), Svma(0));
    }
}
