//! Counters of the kernel and of the CPU, by the names that `perf list` has for them.

use std::fmt;

use crate::value_type::{ValueType, unit};

/// The part of the machine that counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CounterSource {
    /// The kernel. Every machine has these.
    Kernel,
    /// The CPU's performance monitoring unit, which virtual machines lack wholly or in part.
    Cpu,
}

/// The properties of a counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CounterDescriptor {
    /// Its name on the command line and in the configuration: the one in `perf list`.
    pub name: &'static str,
    /// Other names of `perf list`.
    pub aliases: &'static [&'static str],
    /// What counts.
    pub source: CounterSource,
    /// What is counted.
    pub value_type: ValueType,
    /// The period if none is given; `None`: it is sampled at the rate of the CPU clock instead.
    pub default_period: Option<u64>,
    /// The meaning of one count, for users.
    pub meaning: &'static str,
}

macro_rules! counters {
    ($(
        $variant:ident, $source:ident, $name:literal $(or $alias:literal)*,
        $value:literal in $unit:ident as $display:literal, $period:expr, $meaning:literal;
    )*) => {
        /// A counter of the kernel or of the CPU.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Counter {
            $(
                #[doc = $meaning]
                $variant,
            )*
        }

        impl Counter {
            /// All counters, the most often used first.
            pub const ALL: &[Self] = &[$(Self::$variant),*];
            /// Their names.
            pub const NAMES: &[&str] = &[$($name),*];

            /// The properties of this counter.
            #[must_use]
            pub const fn descriptor(self) -> &'static CounterDescriptor {
                match self {
                    $(
                        Self::$variant => &CounterDescriptor {
                            name: $name,
                            aliases: &[$($alias),*],
                            source: CounterSource::$source,
                            value_type: ValueType { name: $value, unit: unit::$unit, display: $display },
                            default_period: $period,
                            meaning: $meaning,
                        },
                    )*
                }
            }
        }
    };
}

// A period of 64 page faults costs a program that does nothing but touch new memory up to 5% of its speed, one of 1 a third
// (`make bench`). Switches and migrations are less frequent than faults. What the CPU counts has no period that fits both a slow
// and a fast machine.
counters! {
    PageFaults, Kernel, "page-faults" or "faults", "faults" in COUNT as "page faults", Some(64),
        "memory accesses that the kernel had to complete: first touches, copies on write, pages on disk";
    MinorFaults, Kernel, "minor-faults", "minor_faults" in COUNT as "minor faults", Some(64),
        "page faults that needed no I/O";
    MajorFaults, Kernel, "major-faults", "major_faults" in COUNT as "major faults", Some(1),
        "page faults that waited for a disk";
    ContextSwitches, Kernel, "context-switches" or "cs", "context_switches" in COUNT as "context switches", Some(16),
        "times that a thread left its CPU, voluntarily or not";
    CpuMigrations, Kernel, "cpu-migrations" or "migrations", "cpu_migrations" in COUNT as "migrations", Some(1),
        "times that a thread moved to another CPU";
    AlignmentFaults, Kernel, "alignment-faults", "alignment_faults" in COUNT as "alignment faults", Some(1),
        "unaligned accesses that the kernel completed; none on x86";
    EmulationFaults, Kernel, "emulation-faults", "emulation_faults" in COUNT as "emulation faults", Some(1),
        "instructions that the kernel emulated";
    TaskClock, Kernel, "task-clock", "task_clock" in NANOSECONDS as "task", None,
        "nanoseconds on a CPU";
    Cycles, Cpu, "cpu-cycles" or "cycles", "cycles" in COUNT as "cycles", None,
        "cycles of a CPU that is not halted, at its current frequency";
    Instructions, Cpu, "instructions", "instructions" in COUNT as "instructions", None,
        "instructions that a CPU completed";
    CacheReferences, Cpu, "cache-references", "cache_references" in COUNT as "cache references", None,
        "accesses to the last-level cache";
    CacheMisses, Cpu, "cache-misses", "cache_misses" in COUNT as "cache misses", None,
        "memory accesses that missed all caches";
    Branches, Cpu, "branch-instructions" or "branches", "branches" in COUNT as "branches", None,
        "branches that a CPU completed";
    BranchMisses, Cpu, "branch-misses", "branch_misses" in COUNT as "branch misses", None,
        "branches that the CPU mispredicted";
    BusCycles, Cpu, "bus-cycles", "bus_cycles" in COUNT as "bus cycles", None,
        "bus cycles";
    StalledFrontend, Cpu, "stalled-cycles-frontend" or "idle-cycles-frontend", "stalled_cycles_frontend" in COUNT as "frontend stalls", None,
        "cycles in which no instruction was decoded";
    StalledBackend, Cpu, "stalled-cycles-backend" or "idle-cycles-backend", "stalled_cycles_backend" in COUNT as "backend stalls", None,
        "cycles in which no instruction was completed";
    ReferenceCycles, Cpu, "ref-cycles", "ref_cycles" in COUNT as "reference cycles", None,
        "cycles of a CPU that is not halted, at a fixed frequency";
    L1DataMisses, Cpu, "L1-dcache-load-misses", "l1_dcache_load_misses" in COUNT as "L1 data misses", None,
        "reads that missed the first-level data cache";
    LastLevelMisses, Cpu, "LLC-load-misses", "llc_load_misses" in COUNT as "LLC misses", None,
        "reads that missed the last-level cache";
    DataTlbMisses, Cpu, "dTLB-load-misses", "dtlb_load_misses" in COUNT as "data TLB misses", None,
        "reads that missed the data TLB";
    InstructionTlbMisses, Cpu, "iTLB-load-misses", "itlb_load_misses" in COUNT as "instruction TLB misses", None,
        "instruction fetches that missed the instruction TLB";
}

impl Counter {
    /// How many counters one run samples at the most.
    pub const SAMPLED_MAX: usize = 4;

    /// The counter with this name or alias, in any case.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let is_named = |counter: &Self| counter.names().any(|known| known.eq_ignore_ascii_case(name));
        Self::ALL.iter().copied().find(is_named)
    }

    /// Its name and its aliases.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let row = self.descriptor();
        std::iter::once(row.name).chain(row.aliases.iter().copied())
    }

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.descriptor().name
    }
}

impl fmt::Display for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How often a counter interrupts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CounterRate {
    /// Once per this many counts; at least 1.
    Period(u64),
    /// About this often per second on each CPU; at least 1. The kernel adapts the period, and each event has the one that
    /// led to it as its value.
    Frequency(u32),
}

/// A counter that is sampled.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SampledCounter {
    /// The counter.
    pub counter: Counter,
    /// How often it interrupts.
    pub rate: CounterRate,
}

impl SampledCounter {
    /// A counter at its default period, or, if it has none, as often as the CPU clock interrupts.
    #[must_use]
    pub fn by_default(counter: Counter, samples_per_second: u32) -> Self {
        let rate = match counter.descriptor().default_period {
            Some(period) => CounterRate::Period(period),
            None => CounterRate::Frequency(samples_per_second.max(1)),
        };
        Self { counter, rate }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_name_alias_and_value_type_belongs_to_one_counter() {
        let (mut names, mut values) = (BTreeSet::new(), BTreeSet::new());
        for &counter in Counter::ALL {
            let row = counter.descriptor();
            for name in counter.names() {
                assert!(names.insert(name.to_ascii_lowercase()), "{name} twice");
                assert_eq!(Counter::from_name(&name.to_ascii_uppercase()), Some(counter));
            }
            assert!(values.insert(row.value_type.name), "{} twice", row.value_type.name);
            assert!(row.default_period != Some(0), "{counter}");
        }
        assert_eq!(Counter::ALL.len(), Counter::NAMES.len());
        assert_eq!(Counter::from_name("page"), None);
    }

    #[test]
    fn what_has_no_period_of_its_own_is_sampled_as_often_as_the_clock() {
        let rate = |counter| SampledCounter::by_default(counter, 97).rate;
        assert_eq!(rate(Counter::PageFaults), CounterRate::Period(64));
        assert_eq!(rate(Counter::Cycles), CounterRate::Frequency(97));
    }
}
