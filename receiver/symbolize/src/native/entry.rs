//! A symbol in 12 bytes.

use crate::alias::Binding;
use crate::elf::CodeSymbol;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct SymbolEntry {
    /// Bytes from the table's base.
    pub(super) start: u32,
    /// In bytes, 0 if unknown.
    pub(super) size: u32,
    pub(super) name: NameRef,
}

const _: () = assert!(size_of::<SymbolEntry>() == 12);

/// The location of a name (29 bits of offset), the table with its string (1 bit), and its binding or that it is a stub
/// (2 bits).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct NameRef(u32);

/// Where a symbol comes from, in descending order of precedence.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum SymbolSource {
    /// `.symtab`.
    Full,
    /// `.dynsym`.
    Dynamic,
    /// A stub of a procedure linkage table.
    Stub,
}

impl SymbolEntry {
    pub(super) fn reaches(&self, offset: u32) -> bool {
        self.start <= offset && offset < self.end()
    }

    pub(super) fn end(&self) -> u32 {
        self.start.saturating_add(self.size)
    }
}

impl NameRef {
    const OFFSET_BITS: u32 = 29;
    const DYNAMIC: u32 = 1 << 31;
    /// The value in place of a binding for stubs, which have none.
    const STUB: u32 = 3;

    pub(super) fn in_symtab(symbol: &CodeSymbol) -> Option<Self> {
        let binding = match symbol.binding {
            Binding::Global => 0,
            Binding::Weak => 1,
            Binding::Local => 2,
        };
        (symbol.name >> Self::OFFSET_BITS == 0).then_some(Self(symbol.name | binding << Self::OFFSET_BITS))
    }

    pub(super) fn in_dynsym(symbol: &CodeSymbol) -> Option<Self> {
        Self::in_symtab(symbol).map(|name| Self(name.0 | Self::DYNAMIC))
    }

    /// A stub, with the name of the function that it jumps to.
    pub(super) fn for_stub(name: u32) -> Option<Self> {
        (name >> Self::OFFSET_BITS == 0)
            .then_some(Self(name | Self::STUB << Self::OFFSET_BITS | Self::DYNAMIC))
    }

    pub(super) fn source(self) -> SymbolSource {
        match (self.is_stub(), self.is_dynamic()) {
            (true, _) => SymbolSource::Stub,
            (false, true) => SymbolSource::Dynamic,
            (false, false) => SymbolSource::Full,
        }
    }

    pub(super) fn is_stub(self) -> bool {
        self.0 >> Self::OFFSET_BITS & 3 == Self::STUB
    }

    pub(super) fn offset(self) -> u32 {
        self.0 & ((1 << Self::OFFSET_BITS) - 1)
    }

    pub(super) fn is_dynamic(self) -> bool {
        self.0 & Self::DYNAMIC != 0
    }

    pub(super) fn binding(self) -> Binding {
        match self.0 >> Self::OFFSET_BITS & 3 {
            0 => Binding::Global,
            1 => Binding::Weak,
            _ => Binding::Local,
        }
    }
}
