//! Memory budgets: how much memory a receiver may use, and how it is divided.
//!
//! Input: the configuration, or else the limit of the cgroup. Output: a budget for each consumer of memory.

use std::fs;
use std::path::{Path, PathBuf};

use sidewinder_config::{Config, MemoryLimitMib, ProfilingReceiver};
use sidewinder_kind::{CounterRate, Kind, KindSet, SampledCounter};

/// Where the cgroup hierarchy is mounted.
const CGROUP_MOUNT: &str = "/sys/fs/cgroup";

/// The memory of the program itself: its code, its threads, the rings and other maps of a fixed size, the state of processes
/// and files, and heap memory that can't be returned to the kernel. Measured with every feature enabled, on a busy node.
const PROGRAM_BYTES: u64 = 24 << 20;

/// The maximum size of each working set, regardless of the limit: more memory brings no improvement.
pub const WORKING_SET_BYTES_MAX: usize = 6 << 20;

/// The memory that a receiver may use, divided by purpose.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct MemoryBudget {
    /// The total limit, in MiB.
    pub total: MemoryLimitMib,
    /// The part for sampling.
    pub sampling: SamplingBudget,
    /// Symbol tables and names.
    pub names_bytes: usize,
    /// Interned data of reports, which later reports may refer to again.
    pub interned_bytes: usize,
}

/// The memory that sampling may use.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SamplingBudget {
    /// Unwind tables and mappings, in eBPF maps.
    pub tables_bytes: u64,
    /// The executable mappings of processes.
    pub mappings_bytes: usize,
    /// Stacks that samples may refer to.
    pub stacks_bytes: usize,
    /// Snapshots (registers and stack memory) for deferred walks.
    pub snapshots_bytes: usize,
    /// The rings from the kernel.
    pub rings: RingsBudget,
    /// Building a table.
    pub table_building: TableBuildBudget,
}

/// The sizes of rings: powers of two, and multiples of the page size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RingsBudget {
    /// Each CPU's ring, for its samples and their stacks.
    pub samples_bytes: u32,
    /// The ring for snapshots.
    pub snapshots_bytes: u32,
}

impl RingsBudget {
    const SMALL: Self = Self { samples_bytes: 32 << 10, snapshots_bytes: 1 << 20 };
    const LARGE: Self = Self { samples_bytes: 128 << 10, snapshots_bytes: 4 << 20 };

    /// The sizes for interactive commands: they hold a few ms of events of a counter, or of a probe, that may interrupt a
    /// million times a second, and most of a second of waits, if threads leave their CPUs 10,000 times in it: each wait has two
    /// records, and a thread that reads them may have to wait for a CPU as others do.
    pub fn interactive(kinds: &KindSet) -> Self {
        const FREQUENT_PERIOD_MAX: u64 = 63;
        let is_frequent = |counter: SampledCounter| match counter.rate {
            CounterRate::Period(period) => period <= FREQUENT_PERIOD_MAX,
            CounterRate::Frequency(_) => false,
        };
        let is_of_waits = |kind: Kind| matches!(kind, Kind::OffCpu | Kind::Wall { .. }) || kind.is_of_locks();
        let has_many = kinds.counters().any(is_frequent)
            || kinds.probes().next().is_some()
            || kinds.iter().any(is_of_waits);
        let samples_bytes = if has_many { 1 << 20 } else { Self::LARGE.samples_bytes };
        Self { samples_bytes, ..Self::LARGE }
    }

    /// The sizes for processes that are already running: their tables are loaded before the first sample, so few snapshots
    /// are taken. A ring counts twice as resident memory, since it is mapped twice in a row.
    pub fn for_running_processes(self) -> Self {
        Self { snapshots_bytes: self.snapshots_bytes.min(Self::SMALL.snapshots_bytes), ..self }
    }
}

impl SamplingBudget {
    /// Limits the tables to `tables_bytes`, and sets everything else as if memory were plentiful.
    pub fn with_tables_bytes(tables_bytes: u64) -> Self {
        Self {
            tables_bytes,
            mappings_bytes: 128 << 20,
            stacks_bytes: WORKING_SET_BYTES_MAX,
            snapshots_bytes: WORKING_SET_BYTES_MAX,
            rings: RingsBudget::LARGE,
            table_building: TableBuildBudget { total_bytes: u64::MAX, min_bytes: 0 },
        }
    }
}

/// The memory for building one table. Large files briefly need tens of MiB, which exceeds any fixed share of a small limit.
/// So a build gets the memory that is free when it begins, and never less than its share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableBuildBudget {
    total_bytes: u64,
    min_bytes: u64,
}

impl TableBuildBudget {
    /// Of a receiver's limit.
    fn of(total_bytes: u64) -> Self {
        Self { total_bytes, min_bytes: total_bytes / BUILDING_SHARE }
    }

    /// Whether there is a limit.
    pub fn is_limited(self) -> bool {
        self.total_bytes != u64::MAX
    }

    /// The memory for a table whose build begins now, beside builds in progress that may take this much; `u64::MAX`: unlimited.
    pub fn available_bytes(self, in_progress_bytes: u64) -> u64 {
        // If the resident size can't be read, no memory counts as free.
        let resident_bytes = resident_bytes().unwrap_or(u64::MAX);
        self.available_bytes_at(resident_bytes.saturating_add(in_progress_bytes))
    }

    /// The memory for a build at this resident size. Twice the share is left free, for growth during the build.
    fn available_bytes_at(self, resident_bytes: u64) -> u64 {
        if !self.is_limited() {
            return u64::MAX;
        }
        let free_bytes = self.total_bytes.saturating_sub(resident_bytes);
        free_bytes.saturating_sub(2 * self.min_bytes).max(self.min_bytes)
    }
}

/// The resident memory of this process, including mapped eBPF maps, from `/proc/self/statm`; `None` if it can't be read.
pub fn resident_bytes() -> Option<u64> {
    let statm = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split(' ').nth(1)?.parse().ok()?;
    Some(pages * u64::try_from(rustix::param::page_size()).ok()?)
}

impl MemoryBudget {
    /// Divides the receiver's limit. First [`PROGRAM_BYTES`], a sixth for queues, a 24th for each working set and a twelfth
    /// for building tables are deducted; tables and names get half of the rest each.
    pub fn from_config(receiver: &ProfilingReceiver) -> Self {
        let total = memory_limit(receiver);
        let total_bytes = mib_to_bytes(total);
        let working_set_bytes = working_set_bytes(total_bytes);
        let divided_bytes = divided_bytes(total_bytes);
        let in_memory = |bytes| usize::try_from(bytes).unwrap_or(usize::MAX);
        Self {
            total,
            sampling: SamplingBudget {
                tables_bytes: divided_bytes / 2,
                mappings_bytes: in_memory(total_bytes / MAPPINGS_SHARE),
                stacks_bytes: in_memory(working_set_bytes),
                snapshots_bytes: in_memory(working_set_bytes),
                rings: RingsBudget::SMALL,
                table_building: TableBuildBudget::of(total_bytes),
            },
            names_bytes: in_memory(divided_bytes / 2),
            interned_bytes: in_memory(working_set_bytes),
        }
    }

    /// The memory for all queues of encoded reports together, from the limits of all receivers.
    pub fn for_queues(config: &Config) -> usize {
        let shares =
            config.receivers.values().map(|receiver| mib_to_bytes(memory_limit(receiver)) / QUEUES_SHARE);
        usize::try_from(shares.sum::<u64>()).unwrap_or(usize::MAX)
    }
}

/// What is left for tables and names together.
fn divided_bytes(total_bytes: u64) -> u64 {
    let deducted_bytes = PROGRAM_BYTES
        + total_bytes / QUEUES_SHARE
        + WORKING_SETS * working_set_bytes(total_bytes)
        + total_bytes / BUILDING_SHARE;
    // The smallest limits are less than that; tables and names together still get a quarter.
    total_bytes.saturating_sub(deducted_bytes).max(total_bytes / 4)
}

fn working_set_bytes(total_bytes: u64) -> u64 {
    (total_bytes / 24).min(WORKING_SET_BYTES_MAX as u64)
}

/// The lowest limit, in MiB, with this much for tables; the highest one if none has.
pub fn limit_mib_for_tables(tables_bytes: u64) -> u32 {
    lowest_limit_mib(|total_bytes| divided_bytes(total_bytes) / 2 >= tables_bytes)
}

/// The lowest limit, in MiB, at which the build of a table may take this much beside what is resident now; the highest one if none
/// allows it.
pub fn limit_mib_for_building(bytes: u64) -> u32 {
    let resident_bytes = resident_bytes().unwrap_or_default();
    lowest_limit_mib(|total_bytes| {
        TableBuildBudget::of(total_bytes).available_bytes_at(resident_bytes) >= bytes
    })
}

fn lowest_limit_mib(is_enough: impl Fn(u64) -> bool) -> u32 {
    let limits = MemoryLimitMib::MIN..MemoryLimitMib::MAX;
    limits.into_iter().find(|mib| is_enough(u64::from(*mib) << 20)).unwrap_or(MemoryLimitMib::MAX)
}

/// The share of a limit that is for building tables, as a divisor.
const BUILDING_SHARE: u64 = 12;

/// The share of a limit that is for the mappings of processes, as a divisor. It is a part of [`PROGRAM_BYTES`] at the default limit.
const MAPPINGS_SHARE: u64 = 8;

/// The share of a limit that is for queues of encoded reports, as a divisor.
const QUEUES_SHARE: u64 = 6;

/// The number of working sets: stacks, snapshots, and interned data.
const WORKING_SETS: u64 = 3;

fn memory_limit(receiver: &ProfilingReceiver) -> MemoryLimitMib {
    receiver.memory_limit_mib.unwrap_or_else(|| limit_from_cgroup(cgroup_limit(Path::new(CGROUP_MOUNT))))
}

fn mib_to_bytes(mib: MemoryLimitMib) -> u64 {
    u64::from(mib.get()) << 20
}

/// Three quarters of the cgroup's limit, or the default of a sidecar if the cgroup has no limit.
fn limit_from_cgroup(cgroup_bytes: Option<u64>) -> MemoryLimitMib {
    let Some(bytes) = cgroup_bytes else { return MemoryLimitMib::default() };
    let mib = u32::try_from((bytes / 4 * 3) >> 20).unwrap_or(u32::MAX);
    MemoryLimitMib::new(mib.clamp(MemoryLimitMib::MIN, MemoryLimitMib::MAX)).unwrap_or_default()
}

/// The lowest limit of our cgroup and its ancestors; `None` if none has a limit. In a container, the mount shows the
/// container's cgroup as the root.
fn cgroup_limit(mount: &Path) -> Option<u64> {
    let membership = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    lowest_cgroup_limit(mount, &membership)
}

fn lowest_cgroup_limit(mount: &Path, membership: &str) -> Option<u64> {
    let paths = membership.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        // The line of version 2 has no controllers; version 1 has a separate hierarchy for memory.
        let (root, file) = match controllers {
            "" => (mount.to_owned(), "memory.max"),
            controllers if controllers.split(',').any(|name| name == "memory") => {
                (mount.join("memory"), "memory.limit_in_bytes")
            }
            _ => return None,
        };
        Some((root.join(path.trim_start_matches('/')), root, file))
    });
    let limits = paths.flat_map(|(path, root, file)| {
        // A path outside the container's cgroup namespace doesn't exist here; the root is then our cgroup.
        let cgroups: Vec<PathBuf> =
            path.ancestors().take_while(|at| at.starts_with(&root)).map(Path::to_owned).collect();
        cgroups
            .into_iter()
            .filter_map(move |at| fs::read_to_string(at.join(file)).ok()?.trim().parse::<u64>().ok())
    });
    // Version 1 writes "no limit" as a number larger than any memory.
    limits.filter(|limit| *limit < 1 << 60).min()
}

#[cfg(test)]
mod tests {
    use sidewinder_kind::{Counter, Kind};

    use super::*;

    fn write(at: PathBuf, text: &str) {
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        fs::write(at, text).unwrap();
    }

    #[test]
    fn the_lowest_limit_of_the_cgroup_and_its_ancestors_applies() {
        let directory = tempfile::tempdir().unwrap();
        let mount = directory.path();
        write(mount.join("pod/app/memory.max"), "max\n");
        write(mount.join("pod/memory.max"), "67108864\n");
        assert_eq!(lowest_cgroup_limit(mount, "0::/pod/app\n"), Some(64 << 20));
        write(mount.join("pod/app/memory.max"), "33554432\n");
        assert_eq!(lowest_cgroup_limit(mount, "0::/pod/app\n"), Some(32 << 20));
        assert_eq!(lowest_cgroup_limit(mount, "0::/elsewhere\n"), None);
        write(mount.join("memory.max"), "100\n");
        assert_eq!(lowest_cgroup_limit(mount, "0::/../outside\n"), Some(100));
    }

    #[test]
    fn cgroup_version_1_is_read_too() {
        let directory = tempfile::tempdir().unwrap();
        let mount = directory.path();
        write(mount.join("memory/app/memory.limit_in_bytes"), "134217728\n");
        write(mount.join("memory/memory.limit_in_bytes"), "9223372036854771712\n");
        let membership = "12:pids:/app\n4:cpu,memory:/app\n0::/\n";
        assert_eq!(lowest_cgroup_limit(mount, membership), Some(128 << 20));
    }

    #[test]
    fn a_receiver_without_a_limit_gets_three_quarters_of_the_cgroup_limit() {
        assert_eq!(limit_from_cgroup(Some(64 << 20)).get(), 48);
        assert_eq!(limit_from_cgroup(Some(1 << 30)).get(), 768);
        assert_eq!(limit_from_cgroup(Some(1 << 20)).get(), MemoryLimitMib::MIN);
        assert_eq!(limit_from_cgroup(None).get(), 48);
    }

    fn budget(mib: u32) -> MemoryBudget {
        let memory_limit_mib = MemoryLimitMib::new(mib).ok();
        MemoryBudget::from_config(&ProfilingReceiver { memory_limit_mib, ..ProfilingReceiver::default() })
    }

    #[test]
    fn all_parts_together_fit_the_limit() {
        for mib in [64, 96, 256, 1024] {
            let MemoryBudget { sampling, names_bytes, interned_bytes, .. } = budget(mib);
            let in_memory = names_bytes + interned_bytes + sampling.stacks_bytes + sampling.snapshots_bytes;
            let queues_bytes = (u64::from(mib) << 20) / QUEUES_SHARE;
            let parts =
                [in_memory as u64, sampling.tables_bytes, sampling.table_building.min_bytes, queues_bytes];
            let sum = PROGRAM_BYTES + parts.iter().sum::<u64>();
            assert!(sum <= u64::from(mib) << 20, "{sum} bytes of {mib} MiB");
        }
        assert_eq!(budget(16).sampling.tables_bytes, 2 << 20, "less than the program takes");
    }

    #[test]
    fn the_limit_for_tables_is_the_lowest_that_has_room_for_them() {
        for tables_bytes in [1, 7 << 20, 40 << 20] {
            let mib = limit_mib_for_tables(tables_bytes);
            assert!(budget(mib).sampling.tables_bytes >= tables_bytes, "{mib}");
            assert!(
                mib == MemoryLimitMib::MIN || budget(mib - 1).sampling.tables_bytes < tables_bytes,
                "{mib}"
            );
        }
        assert_eq!(limit_mib_for_tables(u64::MAX), MemoryLimitMib::MAX);
    }

    #[test]
    fn the_limit_for_building_leaves_what_is_resident() {
        let mib = limit_mib_for_building(100 << 20);
        let resident_bytes = resident_bytes().unwrap();
        assert!(u64::from(mib) << 20 > (100 << 20) + resident_bytes / 2, "{mib}");
        assert_eq!(limit_mib_for_building(u64::MAX), MemoryLimitMib::MAX);
    }

    #[test]
    fn a_table_is_built_with_the_free_memory_and_never_with_less_than_its_share() {
        let building = TableBuildBudget { total_bytes: 48 << 20, min_bytes: 4 << 20 };
        assert_eq!(building.available_bytes_at(20 << 20), 20 << 20);
        assert_eq!(building.available_bytes_at(44 << 20), 4 << 20);
        assert_eq!(building.available_bytes_at(u64::MAX), 4 << 20);
        let unlimited = SamplingBudget::with_tables_bytes(64 << 20).table_building;
        assert_eq!(unlimited.available_bytes_at(20 << 20), u64::MAX);
    }

    #[test]
    fn rings_for_running_processes_are_small() {
        let rings = SamplingBudget::with_tables_bytes(64 << 20).rings.for_running_processes();
        // A ring's data is mapped twice.
        assert!(2 * rings.snapshots_bytes <= 2 << 20, "{rings:?}");
        assert_eq!(rings.samples_bytes, RingsBudget::LARGE.samples_bytes);
        assert_eq!(RingsBudget::SMALL.for_running_processes(), RingsBudget::SMALL);
    }

    #[test]
    fn a_counter_with_a_short_period_has_large_rings() {
        let samples_bytes = |period| {
            let counter = SampledCounter { counter: Counter::PageFaults, rate: CounterRate::Period(period) };
            RingsBudget::interactive(&KindSet::new(Kind::Counter(counter))).samples_bytes
        };
        assert!(samples_bytes(1) > samples_bytes(64));
        assert_eq!(samples_bytes(64), RingsBudget::LARGE.samples_bytes);
    }

    #[test]
    fn allocations_increase_the_resident_size() {
        // Other tests may free memory at the same time.
        let grows = || {
            let before = resident_bytes().unwrap();
            let allocated = vec![1_u8; 32 << 20];
            assert!(allocated.iter().map(|byte| u64::from(*byte)).sum::<u64>() == 32 << 20);
            resident_bytes().unwrap() >= before + (24 << 20)
        };
        assert!((0..20).any(|_| grows()));
    }
}
