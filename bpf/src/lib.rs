//! Sidewinder's kernel side: the eBPF programs, their loader, and the maps that they share with the receiver.
//!
//! The programs are C, under `c/`; `c/intf.h` defines what both sides share. [`Profiler`] loads and attaches them,
//! [`Arena`] holds the data that they look up ([`UnwindTables`] and [`ProcessMap`]), [`Rings`] deliver their records, and
//! [`SideBand`] delivers process events from the kernel. All unsafe code of Sidewinder is in this crate: it accesses
//! memory shared with the kernel.

mod arch;
mod arena;
mod chunk;
mod code_object;
mod container;
mod counter;
mod denial;
mod events;
mod field_names;
mod fields;
mod foreign_memory;
mod frame;
mod heap;
mod interrupt_check;
mod intf;
mod iterator;
mod kernel_names;
mod load;
mod lock;
mod memory;
mod no_op_program;
mod opener;
mod outcome;
mod pod;
mod probe;
mod processes;
mod profiler;
mod programs;
mod ring;
mod run_time;
mod runtime;
mod sample_kind;
mod settings;
mod sideband;
mod skeleton;
mod table;
mod tables;
#[cfg(feature = "test-programs")]
mod test_programs;
#[cfg(test)]
mod tests;
mod tls;
mod tracepoint;
mod user_probe;
mod verifier_log;
mod verify;
mod wait;
mod wait_list;
mod walk;
mod watch;

pub use arch::code_address;
pub use arena::{Arena, ArenaError};
pub use chunk::can_create_maps;
pub use code_object::CodeObject;
pub use container::{CgroupId, Container};
pub use events::{EventError, can_open_events, online_cpus, probe_counter};
pub use foreign_memory::{ForeignMemoryPrograms, ReadableProcess};
pub use frame::{RawFrame, RawFrameKind, VmForm, VmFunction};
pub use heap::limit_heap;
pub use interrupt_check::{Interrupts, StealTime};
pub use load::{
    ListedFrom, LoadError, Options, PodCgroup, Storage, TaskFilter, boot_time_ns, is_in_initial_pid_namespace,
};
pub use lock::{LockEvidence, LockWait, waits_of_sample};
pub use opener::{Opener, Spawned};
pub use outcome::Outcome;
pub use pod::own_cgroups;
pub use probe::{Probe, Requirement, Support, probe};
pub use processes::{MappedRange, ProcessMap, ProcessesError};
pub use profiler::{ContextCounts, ExecutedProgram, FrameCounts, Profiler};
pub use ring::{
    LabelSet, Newcomer, Record, RegisterFile, Rings, SampleRecord, StackBody, StackEntries, StackHash,
    StackPiece, StackSnapshot, ThreadContext,
};
pub use run_time::measure_run_time;
pub use runtime::{
    BLOB_BYTES_MAX, CODE_HEAPS_MAX, CPythonLayout, CodeHeap, FileRange, FunctionCopies, HotSpotLayout,
    PublishedCPython, PublishedRuntime, PublishedV8, RuntimeCode, V8Layout, VmCounts, VmMissing,
    WalkedRuntime, can_look_up_loop, cpython_group_form, cpython_instruction,
};
pub use sample_kind::SampleKind;
pub use sideband::{SideBand, SideBandEvent, SideBandKind};
pub use table::{PackedSegment, Packing, pack, pack_part, page_range, repack};
pub use tables::{SegmentId, UnwindTables};
#[cfg(feature = "test-programs")]
pub use test_programs::{AttachedProbe, StackMemory};
pub use tls::{Pointee, PublishedTlsLocation, TlsVariable, TlsVector};
pub use tracepoint::{NumericArgument, TracepointError};
pub use user_probe::{
    OperandPlace, ProbeOperand, UserProbeError, UserProbeHits, UserProbeSite, probe_user_probes,
};
pub use verifier_log::VerifierLog;
pub use verify::{VerifierStats, verify};
pub use wait::{CERTAIN, WaitEnd, WaitReason, WakerSample, weighted_off_cpu_ns};
pub use wait_list::{FoundWait, ListedWait};
pub use walk::{SEARCH_WORDS, STACK_ALIGNMENT_BYTES, STACK_SWITCHES_MAX, UNPROVEN_FRAME_BYTES_MAX, WalkMode};
pub use watch::EventScope;

/// Nanoseconds of `CLOCK_MONOTONIC`, the clock of every record and event.
#[must_use]
pub fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}
