//! How much memory there is for a receiver, and for what.

use std::fs;
use std::path::{Path, PathBuf};

use sidewinder_config::{Config, MemoryLimitMib, ProfilingReceiver};

/// Where the hierarchy of cgroups is mounted.
const CGROUPS: &str = "/sys/fs/cgroup";

/// What everything besides tables, names and queues takes: the program itself, its threads, stacks that are known,
/// reports in the making. Measured with every part on.
const REST_BYTES: u64 = 18 << 20;

/// What a receiver may take of memory, and for what.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Budget {
    /// Everything together, in MiB.
    pub(crate) whole: MemoryLimitMib,
    /// Unwind tables and mappings, in eBPF maps.
    pub(crate) tables_bytes: u64,
    /// Symbol tables and names.
    pub(crate) names_bytes: usize,
}

impl Budget {
    /// Divides the receiver's limit: a sixth for queues and what the rest takes first, then half each for tables and
    /// names.
    pub(crate) fn of(receiver: &ProfilingReceiver) -> Self {
        let whole = whole(receiver);
        let whole_bytes = bytes(whole);
        // The smallest limits have less room than the rest takes: tables and names get an eighth each all the same.
        let divided =
            whole_bytes.saturating_sub(REST_BYTES + whole_bytes / QUEUES_SHARE).max(whole_bytes / 4);
        Self {
            whole,
            tables_bytes: divided / 2,
            names_bytes: usize::try_from(divided / 2).unwrap_or(usize::MAX),
        }
    }

    /// What all queues of encoded reports together may take of the limits of all receivers.
    pub(crate) fn of_queues(config: &Config) -> usize {
        let shares = config.receivers.values().map(|receiver| bytes(whole(receiver)) / QUEUES_SHARE);
        usize::try_from(shares.sum::<u64>()).unwrap_or(usize::MAX)
    }
}

/// Of a limit, one part in so many is for encoded reports.
const QUEUES_SHARE: u64 = 6;

fn whole(receiver: &ProfilingReceiver) -> MemoryLimitMib {
    receiver.memory_limit_mib.unwrap_or_else(|| limit_of(cgroup_limit(Path::new(CGROUPS))))
}

fn bytes(mib: MemoryLimitMib) -> u64 {
    u64::from(mib.get()) << 20
}

/// Three quarters of what the cgroup allows, or the default of a sidecar where it allows anything.
fn limit_of(cgroup_bytes: Option<u64>) -> MemoryLimitMib {
    let Some(bytes) = cgroup_bytes else { return MemoryLimitMib::default() };
    let mib = u32::try_from((bytes / 4 * 3) >> 20).unwrap_or(u32::MAX);
    MemoryLimitMib::new(mib.clamp(MemoryLimitMib::MIN, MemoryLimitMib::MAX)).unwrap_or_default()
}

/// The least limit of our cgroup and those around it; `None` where there is none. In a container, the mount shows the
/// container's cgroup as the root.
fn cgroup_limit(mount: &Path) -> Option<u64> {
    let membership = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    limit_below(mount, &membership)
}

fn limit_below(mount: &Path, membership: &str) -> Option<u64> {
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
        assert_eq!(limit_below(mount, "0::/pod/app\n"), Some(64 << 20));
        write(mount.join("pod/app/memory.max"), "33554432\n");
        assert_eq!(limit_below(mount, "0::/pod/app\n"), Some(32 << 20));
        assert_eq!(limit_below(mount, "0::/elsewhere\n"), None);
        write(mount.join("memory.max"), "100\n");
        assert_eq!(limit_below(mount, "0::/../outside\n"), Some(100));
    }

    #[test]
    fn the_older_hierarchy_is_read_too() {
        let folder = tempfile::tempdir().unwrap();
        let mount = folder.path();
        write(mount.join("memory/app/memory.limit_in_bytes"), "134217728\n");
        write(mount.join("memory/memory.limit_in_bytes"), "9223372036854771712\n");
        let membership = "12:pids:/app\n4:cpu,memory:/app\n0::/\n";
        assert_eq!(limit_below(mount, membership), Some(128 << 20));
    }

    #[test]
    fn without_a_limit_of_its_own_a_receiver_gets_three_quarters_of_the_cgroups() {
        assert_eq!(limit_of(Some(64 << 20)).get(), 48);
        assert_eq!(limit_of(Some(1 << 30)).get(), 768);
        assert_eq!(limit_of(Some(1 << 20)).get(), MemoryLimitMib::MIN);
        assert_eq!(limit_of(None).get(), 48);
    }

    #[test]
    fn queues_and_the_program_come_first_and_tables_and_names_share_what_is_left() {
        let of = |mib| {
            let memory_limit_mib = MemoryLimitMib::new(mib).ok();
            Budget::of(&ProfilingReceiver { memory_limit_mib, ..ProfilingReceiver::default() })
        };
        assert_eq!(of(96).tables_bytes, ((80 << 20) - REST_BYTES) / 2);
        assert_eq!(of(16).tables_bytes, 2 << 20);
    }
}
