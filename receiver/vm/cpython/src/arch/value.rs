//! What the registers of a short function contain, as far as its code alone tells.

use sidewinder_address::Svma;
use sidewinder_process::tls::TlsGotEntry;

use super::{Argument, ThreadLocal};

/// What a register contains.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Value {
    /// The address of something in the file.
    Address(u64),
    /// The word at an address of the file, and a distance.
    Word(u64, i64),
    /// The thread pointer and a distance.
    Thread(i64),
    /// A thread's copy of a variable.
    Variable(TlsGotEntry),
    /// The offset of a thread's copy from the thread pointer.
    OffsetOf(TlsGotEntry),
    /// A value of 4 bytes, as an argument.
    Half(Argument),
}

impl Value {
    /// The value that is a distance behind.
    pub(super) fn plus(self, distance: i64) -> Option<Self> {
        Some(match self {
            Self::Address(at) => Self::Address(at.wrapping_add_signed(distance)),
            Self::Word(word, before) => Self::Word(word, before.checked_add(distance)?),
            Self::Thread(before) => Self::Thread(before.checked_add(distance)?),
            Self::Variable(entry) => Self::Variable(moved(entry, distance)?),
            Self::OffsetOf(entry) => Self::OffsetOf(moved(entry, distance)?),
            Self::Half(_) => return None,
        })
    }

    /// The sum of the thread pointer and an offset.
    pub(super) fn sum(self, other: Self) -> Option<Self> {
        match (self, other) {
            (Self::Thread(a), Self::Word(word, b)) | (Self::Word(word, b), Self::Thread(a)) => {
                Some(Self::Variable(TlsGotEntry::Offset(Svma(word), a.checked_add(b)?)))
            }
            (Self::Thread(by), Self::OffsetOf(entry)) | (Self::OffsetOf(entry), Self::Thread(by)) => {
                Some(Self::Variable(moved(entry, by)?))
            }
            _ => None,
        }
    }

    /// The thread-local variable at the address that is a distance behind this one.
    pub(super) fn variable(self, distance: i64) -> Option<ThreadLocal> {
        match self {
            Self::Thread(before) => Some(ThreadLocal::Static(before.checked_add(distance)?)),
            Self::Variable(entry) => Some(ThreadLocal::Got(moved(entry, distance)?)),
            _ => None,
        }
    }

    /// The value of 4 bytes at this address.
    pub(super) fn half(self) -> Option<Self> {
        Some(Self::Half(match self {
            Self::Address(at) => Argument::Value(Svma(at)),
            Self::Word(word, by) => Argument::ValueThroughWord(Svma(word), by.try_into().ok()?),
            _ => return None,
        }))
    }

    /// The value as an argument.
    pub(super) fn passed(self) -> Option<Argument> {
        match self {
            Self::Half(argument) => Some(argument),
            Self::Address(at) => Some(Argument::Address(Svma(at))),
            Self::Word(word, by) => Some(Argument::ThroughWord(Svma(word), by.try_into().ok()?)),
            _ => None,
        }
    }
}

/// The entry for what is a distance behind.
pub(super) fn moved(entry: TlsGotEntry, by: i64) -> Option<TlsGotEntry> {
    Some(match entry {
        TlsGotEntry::Offset(at, distance) => TlsGotEntry::Offset(at, distance.checked_add(by)?),
        TlsGotEntry::Descriptor(at, distance) => TlsGotEntry::Descriptor(at, distance.checked_add(by)?),
        TlsGotEntry::Module(at, distance) => TlsGotEntry::Module(at, distance.checked_add(by)?),
        TlsGotEntry::OwnModule(at, offset) => TlsGotEntry::OwnModule(at, offset.checked_add_signed(by)?),
    })
}
