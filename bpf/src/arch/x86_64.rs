//! x86-64.

use sidewinder_address::Avma;

use crate::field_names::FieldNames;
use crate::skeleton::sample::types::rodata;

/// The variables of a CPU that have its preempt count, of which a kernel has one.
pub(crate) const PREEMPT_COUNTS: &[&str] = &["__preempt_count", "pcpu_hot"];

/// The field that `thread_pointer` in `c/arch/x86_64.bpf.h` reads.
pub(crate) const THREAD_POINTER: FieldNames = FieldNames {
    id: "field_fsbase",
    field: "thread_struct.fsbase",
    name: "the thread pointer (thread_struct.fsbase)",
};

/// Since Linux 5.10.
pub(crate) const ALLOWS_TAIL_CALLS: bool = true;

/// An address of code in user space: it has no signature.
#[must_use]
pub const fn code_address(address: Avma) -> Avma {
    address
}

/// None of the programs' constants depends on this machine.
pub(crate) const fn set_constants(_constants: &mut rodata) {}
