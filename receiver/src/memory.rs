//! How much memory there is for a receiver, and for what.

use std::fs;
use std::path::{Path, PathBuf};

use sidewinder_config::{Config, MemoryLimitMib, ProfilingReceiver};

/// Where the hierarchy of cgroups is mounted.
const CGROUP_MOUNT: &str = "/sys/fs/cgroup";

/// What the program itself takes: its code, its threads, the rings and other maps of a fixed size, what is known of
/// processes and files, and what the heap can't give back. Measured with every part on, on a busy node.
const PROGRAM_BYTES: u64 = 24 << 20;

/// What each of the working sets takes at the most, however much there is: more makes nothing better.
pub(crate) const WORKING_SET_BYTES_MAX: usize = 6 << 20;

/// What a receiver may take of memory, and for what.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct MemoryBudget {
    /// Everything together, in MiB.
    pub(crate) total: MemoryLimitMib,
    /// What sampling may take.
    pub(crate) sampling: SamplingBudget,
    /// Symbol tables and names.
    pub(crate) names_bytes: usize,
    /// What reports have interned and the next ones may refer to again.
    pub(crate) interned_bytes: usize,
}

/// What sampling may take.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct SamplingBudget {
    /// Unwind tables and mappings, in eBPF maps.
    pub(crate) tables_bytes: u64,
    /// Stacks that samples may refer to.
    pub(crate) stacks_bytes: usize,
    /// Snapshots, registers and stacks, for deferred walks.
    pub(crate) snapshots_bytes: usize,
    /// What is on its way from the kernel.
    pub(crate) rings: RingsBudget,
    /// Building a table.
    pub(crate) table_building: TableBuildBudget,
}

/// The sizes of rings: powers of two, and multiples of the page size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RingsBudget {
    /// Each CPU's, for its samples and their stacks.
    pub(crate) samples_bytes: u32,
    /// The one for snapshots.
    pub(crate) snapshots_bytes: u32,
}

impl RingsBudget {
    const SMALL: Self = Self { samples_bytes: 32 << 10, snapshots_bytes: 1 << 20 };
    const LARGE: Self = Self { samples_bytes: 128 << 10, snapshots_bytes: 4 << 20 };

    /// For processes that already run: their tables are there before the first sample, so that few snapshots are taken.
    /// The mapping of a ring counts twice as resident, since it shows the ring twice in a row.
    pub(crate) fn for_running_processes(self) -> Self {
        Self { snapshots_bytes: self.snapshots_bytes.min(Self::SMALL.snapshots_bytes), ..self }
    }
}

impl SamplingBudget {
    /// Limits the tables as given, and the rest as if there were plenty.
    pub(crate) fn with_tables_bytes(tables_bytes: u64) -> Self {
        Self {
            tables_bytes,
            stacks_bytes: WORKING_SET_BYTES_MAX,
            snapshots_bytes: WORKING_SET_BYTES_MAX,
            rings: RingsBudget::LARGE,
            table_building: TableBuildBudget { total_bytes: u64::MAX, min_bytes: 0 },
        }
    }
}

/// What building one table may take: large files need tens of MiB for a moment, which no share of a small limit has. So
/// it gets what is free when it begins, and never less than its share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TableBuildBudget {
    total_bytes: u64,
    min_bytes: u64,
}

impl TableBuildBudget {
    /// Whether there is a limit at all.
    pub(crate) fn is_limited(self) -> bool {
        self.total_bytes != u64::MAX
    }

    /// For a table that is begun now.
    pub(crate) fn available_bytes(self) -> u64 {
        // Where that can't be read, nothing is known to be free.
        self.available_bytes_at(resident_bytes().unwrap_or(u64::MAX))
    }

    /// While everything takes so much. Twice the share stays free, for what grows meanwhile.
    fn available_bytes_at(self, resident_bytes: u64) -> u64 {
        let free_bytes = self.total_bytes.saturating_sub(resident_bytes);
        free_bytes.saturating_sub(2 * self.min_bytes).max(self.min_bytes)
    }
}

/// Physical memory of this process, mapped eBPF maps included, as `/proc/self/statm` has it; `None` where that can't be
/// read.
pub(crate) fn resident_bytes() -> Option<u64> {
    let statm = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split(' ').nth(1)?.parse().ok()?;
    Some(pages * u64::try_from(rustix::param::page_size()).ok()?)
}

impl MemoryBudget {
    /// Divides the receiver's limit: first what the program takes, a sixth for queues, a 24th for each working set
    /// and a twelfth for building tables; then half each of what is left for tables and names.
    pub(crate) fn from_config(receiver: &ProfilingReceiver) -> Self {
        let whole = memory_limit(receiver);
        let whole_bytes = mib_to_bytes(whole);
        let working_set_bytes = (whole_bytes / 24).min(WORKING_SET_BYTES_MAX as u64);
        let building_bytes = whole_bytes / 12;
        let taken_bytes =
            PROGRAM_BYTES + whole_bytes / QUEUES_SHARE + WORKING_SETS * working_set_bytes + building_bytes;
        // The smallest limits have less room than that: tables and names get a quarter all the same.
        let divided_bytes = whole_bytes.saturating_sub(taken_bytes).max(whole_bytes / 4);
        let in_memory = |bytes| usize::try_from(bytes).unwrap_or(usize::MAX);
        Self {
            total: whole,
            sampling: SamplingBudget {
                tables_bytes: divided_bytes / 2,
                stacks_bytes: in_memory(working_set_bytes),
                snapshots_bytes: in_memory(working_set_bytes),
                rings: RingsBudget::SMALL,
                table_building: TableBuildBudget { total_bytes: whole_bytes, min_bytes: building_bytes },
            },
            names_bytes: in_memory(divided_bytes / 2),
            interned_bytes: in_memory(working_set_bytes),
        }
    }

    /// What all queues of encoded reports together may take of the limits of all receivers.
    pub(crate) fn for_queues(config: &Config) -> usize {
        let shares =
            config.receivers.values().map(|receiver| mib_to_bytes(memory_limit(receiver)) / QUEUES_SHARE);
        usize::try_from(shares.sum::<u64>()).unwrap_or(usize::MAX)
    }
}

/// Of a limit, one part in so many is for encoded reports.
const QUEUES_SHARE: u64 = 6;

/// Stacks, snapshots, and what is interned.
const WORKING_SETS: u64 = 3;

fn memory_limit(receiver: &ProfilingReceiver) -> MemoryLimitMib {
    receiver.memory_limit_mib.unwrap_or_else(|| limit_from_cgroup(cgroup_limit(Path::new(CGROUP_MOUNT))))
}

fn mib_to_bytes(mib: MemoryLimitMib) -> u64 {
    u64::from(mib.get()) << 20
}

/// Three quarters of what the cgroup allows, or the default of a sidecar where it allows anything.
fn limit_from_cgroup(cgroup_bytes: Option<u64>) -> MemoryLimitMib {
    let Some(bytes) = cgroup_bytes else { return MemoryLimitMib::default() };
    let mib = u32::try_from((bytes / 4 * 3) >> 20).unwrap_or(u32::MAX);
    MemoryLimitMib::new(mib.clamp(MemoryLimitMib::MIN, MemoryLimitMib::MAX)).unwrap_or_default()
}

/// The least limit of our cgroup and those around it; `None` where there is none. In a container, the mount shows the
/// container's cgroup as the root.
fn cgroup_limit(mount: &Path) -> Option<u64> {
    let membership = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    lowest_cgroup_limit(mount, &membership)
}

fn lowest_cgroup_limit(mount: &Path, membership: &str) -> Option<u64> {
    let paths = membership.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        // Version 2 names no controllers; version 1 has a hierarchy for memory.
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
        // A path from outside of the container's namespace does not exist here: the root is ours then.
        let within: Vec<PathBuf> =
            path.ancestors().take_while(|at| at.starts_with(&root)).map(Path::to_owned).collect();
        within
            .into_iter()
            .filter_map(move |at| fs::read_to_string(at.join(file)).ok()?.trim().parse::<u64>().ok())
    });
    // Version 1 writes "no limit" as a number larger than any memory.
    limits.filter(|limit| *limit < 1 << 60).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(at: PathBuf, text: &str) {
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        fs::write(at, text).unwrap();
    }

    #[test]
    fn the_least_limit_of_the_cgroup_and_those_around_it_counts() {
        let folder = tempfile::tempdir().unwrap();
        let mount = folder.path();
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
    fn the_older_hierarchy_is_read_too() {
        let folder = tempfile::tempdir().unwrap();
        let mount = folder.path();
        write(mount.join("memory/app/memory.limit_in_bytes"), "134217728\n");
        write(mount.join("memory/memory.limit_in_bytes"), "9223372036854771712\n");
        let membership = "12:pids:/app\n4:cpu,memory:/app\n0::/\n";
        assert_eq!(lowest_cgroup_limit(mount, membership), Some(128 << 20));
    }

    #[test]
    fn without_a_limit_of_its_own_a_receiver_gets_three_quarters_of_the_cgroups() {
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
    fn all_parts_together_are_no_more_than_the_whole() {
        for mib in [64, 96, 256, 1024] {
            let MemoryBudget { sampling, names_bytes, interned_bytes, .. } = budget(mib);
            let in_memory = names_bytes + interned_bytes + sampling.stacks_bytes + sampling.snapshots_bytes;
            let queues_bytes = (u64::from(mib) << 20) / QUEUES_SHARE;
            let of_parts =
                [in_memory as u64, sampling.tables_bytes, sampling.table_building.min_bytes, queues_bytes];
            let sum = PROGRAM_BYTES + of_parts.iter().sum::<u64>();
            assert!(sum <= u64::from(mib) << 20, "{sum} bytes of {mib} MiB");
        }
        assert_eq!(budget(16).sampling.tables_bytes, 2 << 20, "less than the program takes");
    }

    #[test]
    fn a_table_is_built_with_what_is_free_and_never_with_less_than_its_share() {
        let building = TableBuildBudget { total_bytes: 48 << 20, min_bytes: 4 << 20 };
        assert_eq!(building.available_bytes_at(20 << 20), 20 << 20);
        assert_eq!(building.available_bytes_at(44 << 20), 4 << 20);
        assert_eq!(building.available_bytes_at(u64::MAX), 4 << 20);
    }

    #[test]
    fn the_rings_of_a_running_process_have_no_room_for_what_starts() {
        let rings = SamplingBudget::with_tables_bytes(64 << 20).rings.for_running_processes();
        // A ring is mapped with its data twice.
        assert!(2 * rings.snapshots_bytes <= 2 << 20, "{rings:?}");
        assert_eq!(rings.samples_bytes, RingsBudget::LARGE.samples_bytes);
        assert_eq!(RingsBudget::SMALL.for_running_processes(), RingsBudget::SMALL);
    }

    #[test]
    fn holding_takes_memory() {
        // Other tests give memory back meanwhile.
        let grows = || {
            let before = resident_bytes().unwrap();
            let held = vec![1_u8; 32 << 20];
            assert!(held.iter().map(|byte| u64::from(*byte)).sum::<u64>() == 32 << 20);
            resident_bytes().unwrap() >= before + (24 << 20)
        };
        assert!((0..20).any(|_| grows()));
    }
}
