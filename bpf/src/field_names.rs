//! Names of fields of the kernel's types.

/// The names of a field of a kernel type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FieldNames {
    /// The id of its probe.
    pub(crate) id: &'static str,
    /// The field as in the kernel's sources.
    pub(crate) field: &'static str,
    /// Its purpose, as the name of its probe.
    pub(crate) name: &'static str,
}
