//! What the programs have counted, and the memory of their maps.

use std::mem::offset_of;
use std::ops::{AddAssign, Range};
use std::os::fd::AsFd as _;
use std::sync::atomic::Ordering;
use std::time::Duration;

use libbpf_rs::MapCore;

use super::Profiler;
use crate::interrupt_check::{InterruptCheck, Interrupts};
use crate::intf::{self, sw_cpu, sw_slot_head};
use crate::memory::MappedArray;
use crate::outcome::Outcome;
use crate::programs;
#[cfg(feature = "test-programs")]
use crate::programs::ProgramTrigger;
use crate::run_time::run_time;
use crate::runtime::{FunctionCopies, VmCounts, VmMissing};
use crate::sample_kind::SampleKind;

/// How reads of threads' contexts ended.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ContextCounts {
    /// The thread published a span or labels.
    pub read: u64,
    /// The thread was updating its record.
    pub changing: u64,
    /// The thread's variable or record could not be read.
    pub unreadable: u64,
}

impl AddAssign for ContextCounts {
    fn add_assign(&mut self, more: Self) {
        let Self { read, changing, unreadable } = more;
        self.read += read;
        self.changing += changing;
        self.unreadable += unreadable;
    }
}

/// Callers that walks found, by method.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct FrameCounts {
    /// By rows of tables.
    pub table: u64,
    /// By frame pointers that a table proves.
    pub frame_pointer: u64,
    /// By unproven frame pointers.
    pub guess: u64,
}

impl AddAssign for FrameCounts {
    fn add_assign(&mut self, more: Self) {
        let Self { table, frame_pointer, guess } = more;
        self.table += table;
        self.frame_pointer += frame_pointer;
        self.guess += guess;
    }
}

impl Profiler<'_> {
    /// Interrupts for samples of a kind since the start, by outcome.
    #[must_use]
    pub fn interrupts(&self, kind: SampleKind) -> Interrupts {
        // The clocks first, so that the programs don't count more interrupts than were due.
        let witness = match kind {
            SampleKind::OffCpu if self.traces_switches => Some(InterruptCheck::without_counter()),
            SampleKind::UserProbe(_) | SampleKind::Waker => Some(InterruptCheck::without_counter()),
            _ => self.watch.interrupt_check(kind),
        };
        let (Some(witness), Some(index)) = (witness, kind.index()) else {
            return Interrupts::default();
        };
        let counted = |cpu: u32, outcome: Outcome| {
            let place = index * intf::SW_OUTCOME_PLACES as usize + outcome as usize;
            let (cpu, offset) = (cpu as usize, place * size_of::<u64>());
            let slots = cpu * intf::SW_SLOTS_PER_CPU as usize..(cpu + 1) * intf::SW_SLOTS_PER_CPU as usize;
            sum(&self.cpus, cpu..cpu + 1, offset_of!(sw_cpu, outcomes) + offset)
                + sum(&self.slots, slots, offset_of!(sw_slot_head, outcomes) + offset)
        };
        witness.interrupts(counted, self.watch.cpus())
    }

    /// Time in all of our programs since they were loaded; `None` if the kernel doesn't measure it
    /// ([`measure_run_time`](crate::measure_run_time)).
    #[must_use]
    pub fn bpf_run_time(&self) -> Option<Duration> {
        let ours = programs::loaded(&self.skeleton.progs);
        #[cfg(feature = "test-programs")]
        let ours = ours.filter(|(runs, _)| *runs != ProgramTrigger::InTests);
        ours.filter_map(|(_, program)| run_time(program.as_fd())).reduce(|sum, time| sum + time)
    }

    /// Callers that walks found, since the start.
    #[must_use]
    pub fn frames(&self) -> FrameCounts {
        FrameCounts {
            table: self.sum_over_slots(offset_of!(sw_slot_head, frames_table)),
            frame_pointer: self.sum_over_slots(offset_of!(sw_slot_head, frames_frame_pointer)),
            guess: self.sum_over_slots(offset_of!(sw_slot_head, frames_guess)),
        }
    }

    /// Stacks by their depth, since the start: the element at index `i` counts stacks of 2^i to 2^(i+1)-1 frames. A walk
    /// takes one iteration of its loop per frame, or one tail call per 32 frames.
    #[must_use]
    pub fn stack_depths(&self) -> [u64; intf::SW_DEPTHS as usize] {
        std::array::from_fn(|class| {
            self.sum_over_slots(offset_of!(sw_slot_head, stack_depths) + class * size_of::<u64>())
        })
    }

    /// Samples whose stack was already known, since the start.
    #[must_use]
    pub fn stacks_known(&self) -> u64 {
        self.sum_over_slots(offset_of!(sw_slot_head, stacks_known))
    }

    /// Stacks that were sent, since the start.
    #[must_use]
    pub fn stacks_sent(&self) -> u64 {
        self.sum_over_slots(offset_of!(sw_slot_head, stacks_sent))
    }

    /// Processes that did not fit into the list: children of listed processes, and processes that the receiver tried to
    /// list.
    #[must_use]
    pub fn scope_list_full(&self) -> u64 {
        self.sum_over_cpus(offset_of!(sw_cpu, scope_list_full)) + self.refused.get()
    }

    /// Threads from before the start that had begun to wait before it: that wait is not sampled.
    #[must_use]
    pub fn off_cpu_waits_missing_unseen(&self) -> u64 {
        self.sum_over_cpus(offset_of!(sw_cpu, off_cpu_waits_missing_unseen))
    }

    /// Ends of sampled waits that found no room in the ring.
    #[must_use]
    pub fn off_cpu_waits_missing_end_lost(&self) -> u64 {
        self.sum_over_cpus(offset_of!(sw_cpu, off_cpu_waits_missing_end_lost))
    }

    /// Walks that started during another walk on the same CPU.
    #[must_use]
    pub fn nested_walks(&self) -> u64 {
        self.sum_over_slots(offset_of!(sw_slot_head, nested_walks))
    }

    /// Walks that ended too early, and whose stack could not be sent for a later walk.
    #[must_use]
    pub fn snapshots_refused(&self) -> u64 {
        self.sum_over_slots(offset_of!(sw_slot_head, snapshots_refused))
    }

    /// Records of unknown kinds.
    #[must_use]
    pub fn unknown_records(&self) -> u64 {
        self.rings.unknown_records()
    }

    /// How reads of threads' contexts ended.
    #[must_use]
    pub fn thread_contexts(&self) -> ContextCounts {
        ContextCounts {
            read: self.sum_over_slots(offset_of!(sw_slot_head, thread_contexts_read)),
            changing: self.sum_over_slots(offset_of!(sw_slot_head, thread_contexts_changing)),
            unreadable: self.sum_over_slots(offset_of!(sw_slot_head, thread_contexts_unreadable)),
        }
    }

    /// How walks of runtimes' frames ended.
    #[must_use]
    pub fn vm_frames(&self) -> VmCounts {
        let mut missing = [0; VmMissing::ALL.len()];
        for (reason, count) in missing.iter_mut().enumerate() {
            let offset = offset_of!(sw_slot_head, vm_frames_missing) + reason * size_of::<u64>();
            *count = self.sum_over_slots(offset);
        }
        VmCounts {
            frames: self.sum_over_slots(offset_of!(sw_slot_head, vm_frames_frames)),
            groups: self.sum_over_slots(offset_of!(sw_slot_head, vm_frames_groups)),
            missing,
        }
    }

    /// Functions of young processes.
    #[must_use]
    pub fn vm_function_copies(&self) -> FunctionCopies {
        FunctionCopies {
            sent: self.sum_over_slots(offset_of!(sw_slot_head, vm_function_copies_sent)),
            dropped: self.sum_over_slots(offset_of!(sw_slot_head, vm_function_copies_dropped)),
        }
    }

    /// Bytes of kernel memory that the maps use, including rings and arena.
    #[must_use]
    pub fn map_bytes(&self) -> u64 {
        let maps = &self.skeleton.maps;
        let all: [&dyn MapCore; 12] = [
            &maps.slots,
            &maps.vm_scratches,
            &maps.cpus,
            &maps.segments,
            &maps.processes,
            &maps.known_stacks,
            &maps.listed,
            &maps.listed_programs,
            &maps.executed_programs,
            &maps.exiting,
            &maps.waits,
            &maps.probe_sites,
        ];
        let arrays: u64 = all.iter().map(|m| u64::from(m.max_entries()) * u64::from(m.value_size())).sum();
        let ring_bytes = self.skeleton.maps.rodata_data.map_or(0, |fixed| u64::from(fixed.ring_bytes));
        let rings_bytes =
            self.watch.cpus().iter().count() as u64 * ring_bytes + u64::from(maps.snapshots.max_entries());
        arrays + self.arena.chunk_bytes() + rings_bytes
    }

    fn sum_over_cpus(&self, offset: usize) -> u64 {
        sum(&self.cpus, 0..self.cpus.entries(), offset)
    }

    fn sum_over_slots(&self, offset: usize) -> u64 {
        sum(&self.slots, 0..self.slots.entries(), offset)
    }
}

/// The sum of a counter over some entries of an array.
fn sum(array: &MappedArray, entries: Range<usize>, offset: usize) -> u64 {
    entries.map(|entry| array.atomic_u64(entry, offset).load(Ordering::Relaxed)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A new counter needs an accessor here, and a row in the receiver's table of counters.
    #[test]
    fn every_counter_of_the_programs_has_an_accessor() {
        let sw_slot_head {
            // Not counters: the claims of the slot.
            claims: _,
            sequence: _,
            stacks_known: _,               // stacks_known
            stacks_sent: _,                // stacks_sent
            frames_table: _,               // frames
            frames_frame_pointer: _,       // frames
            frames_guess: _,               // frames
            nested_walks: _,               // nested_walks
            outcomes: _,                   // interrupts
            stack_depths: _,               // stack_depths
            snapshots_refused: _,          // snapshots_refused
            thread_contexts_read: _,       // thread_contexts
            thread_contexts_changing: _,   // thread_contexts
            thread_contexts_unreadable: _, // thread_contexts
            vm_frames_frames: _,           // vm_frames
            vm_frames_groups: _,           // vm_frames
            vm_frames_missing: _,          // vm_frames
            vm_function_copies_sent: _,    // vm_function_copies
            vm_function_copies_dropped: _, // vm_function_copies
        } = sw_slot_head::default();
        let sw_cpu {
            // Not counters: settings and cached values.
            epoch: _,
            clock: _,
            listed_start_ns: _,
            listed_pid: _,
            waits_since_ns: _,
            tells_newcomers: _,
            snapshot_window: _,
            snapshots_in_window: _,
            outcomes: _,                       // interrupts
            scope_list_full: _,                // scope_list_full
            off_cpu_waits_missing_unseen: _,   // off_cpu_waits_missing_unseen
            off_cpu_waits_missing_end_lost: _, // off_cpu_waits_missing_end_lost
            hooks_paused: _,                   // a setting
            switches_paused: _,                // a setting
            probes: _,                         // user_probe_hits
        } = sw_cpu::default();
    }
}
