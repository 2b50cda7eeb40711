//! Sidewinder's kernel side: the eBPF programs, their loader, and the maps through which the receiver speaks to them.
//!
//! The programs are C, under `c/`; `c/intf.h` is what both sides see. [`Profiler`] loads and attaches them,
//! [`Arena`] holds what they look up ([`Tables`] and [`Processes`]), [`Rings`] and [`SideBand`] bring what they and the
//! kernel have to say. Everything unsafe that Sidewinder does is in this crate: memory shared with the kernel.

mod arch;
mod arena;
mod chunk;
mod container;
mod denial;
mod events;
mod field_names;
mod fields;
mod heap;
mod intf;
mod kernel_names;
mod load;
mod memory;
mod opener;
mod outcome;
mod pod;
mod probe;
mod processes;
mod profiler;
mod programs;
mod ring;
mod run_time;
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
mod verify;
mod walk;
mod watch;
mod witness;

pub use arena::{Arena, ArenaError};
pub use chunk::can_create_maps;
pub use container::{Container, ContainerId};
pub use events::{CpuList, EventError, can_open_events};
pub use heap::keep_heap_small;
pub use load::{LoadError, Options, PodCgroup, ScopeMode, Storage, is_in_initial_pid_namespace};
pub use opener::{Opener, Spawned};
pub use outcome::Outcome;
pub use pod::own_cgroups;
pub use probe::{Probe, Support, probe};
pub use processes::{Pointee, Processes, ProcessesError, Range, TlsVariable, TlsVector};
pub use profiler::{ContextCounts, Profiler};
pub use ring::{
    Body, Entries, Frame, FrameKind, LabelSet, Newcomer, Record, RegisterFile, Rings, Sample, Snapshot,
    StackHash, StackPiece, ThreadContext,
};
pub use run_time::measure_run_time;
pub use sample_kind::SampleKind;
pub use sideband::{SideBand, SideBandEvent, SideBandKind};
pub use table::{PackedSegment, Packing, pack, pack_again, pack_part, pages_of};
pub use tables::{SegmentId, Tables};
#[cfg(feature = "test-programs")]
pub use test_programs::{ProbedPlace, StackMemory};
pub use verify::{Verified, verify};
pub use walk::{SEARCH_WORDS, STACK_ALIGNMENT_BYTES, STACK_SWITCHES_MAX, UNPROVEN_FRAME_BYTES_MAX, Walk};
pub use watch::Audience;
pub use witness::Interrupts;

/// Nanoseconds of `CLOCK_MONOTONIC`, the clock of every record and event.
#[must_use]
pub fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}
