//! x86-64.

use crate::field_names::FieldNames;

/// The variables of a CPU that have its preempt count, of which a kernel has one.
pub(crate) const PREEMPT_COUNTS: [&str; 2] = ["__preempt_count", "pcpu_hot"];

/// The field that `thread_pointer` in `c/arch/x86_64.bpf.h` reads.
pub(crate) const THREAD_POINTER: FieldNames = FieldNames {
    id: "field_fsbase",
    field: "thread_struct.fsbase",
    name: "the thread pointer (thread_struct.fsbase)",
};
