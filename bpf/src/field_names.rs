//! Names of fields of the kernel's types.

/// What a field of the kernel's is called, to whom.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FieldNames {
    /// As a probe's.
    pub(crate) id: &'static str,
    /// The field as the kernel's sources have it.
    pub(crate) field: &'static str,
    /// What it is for, as a probe's name.
    pub(crate) name: &'static str,
}
