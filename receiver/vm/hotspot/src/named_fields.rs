//! What the tables of a virtual machine say by name.

use std::io;

use sidewinder_address::Avma;
use thiserror::Error;

use super::structs::Structs;

/// Why a process's virtual machine is not known.
#[derive(Debug, Error)]
pub enum MachineError {
    /// Its memory can't be read, or what was read is not what a virtual machine has.
    #[error("can't read the tables of the Java virtual machine")]
    Unreadable(#[from] io::Error),
    /// It is being started.
    #[error("the Java virtual machine is not initialised yet")]
    NotYet,
    /// The tables lack something, so this version is not supported.
    #[error("the tables of the Java virtual machine have no {0}")]
    Missing(&'static str),
}

/// Fields by name.
pub(super) struct NamedFields<'a>(pub(super) &'a Structs);

impl NamedFields<'_> {
    pub(super) fn variable(&self, name: &'static str) -> Result<Avma, MachineError> {
        self.0.field(name).map(Avma).ok_or(MachineError::Missing(name))
    }

    pub(super) fn offset(&self, name: &'static str) -> Result<u16, MachineError> {
        self.0.field(name).and_then(|offset| offset.try_into().ok()).ok_or(MachineError::Missing(name))
    }

    /// The offset of a field that has another name in other versions.
    pub(super) fn either(&self, name: &'static str, other: &'static str) -> Result<u16, MachineError> {
        self.offset(name).or_else(|_| self.offset(other))
    }

    pub(super) fn size(&self, name: &'static str) -> Result<u16, MachineError> {
        self.0.size(name).and_then(|size| size.try_into().ok()).ok_or(MachineError::Missing(name))
    }
}
