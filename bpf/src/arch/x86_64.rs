//! x86-64.

use crate::field_names::FieldNames;

/// The field that `thread_pointer` in `c/arch/x86_64.bpf.h` reads.
pub(crate) const THREAD_POINTER: FieldNames = FieldNames {
    id: "field_fsbase",
    field: "thread_struct.fsbase",
    name: "the thread pointer (thread_struct.fsbase)",
};
