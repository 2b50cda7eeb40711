//! Loads the programs, with settings that are fixed from then on.

use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use libbpf_rs::OpenObject;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use sidewinder_kind::{CpuIds, Kind, KindSet};
use thiserror::Error;

use crate::arch;
use crate::denial;
use crate::events::EventError;
use crate::intf;
use crate::programs::{self, ProgramSelection};
use crate::ring::{create_ring, whole_pages};
use crate::sample_kind::SampleKind;
use crate::skeleton::sample::{OpenSampleSkel, SampleSkel, SampleSkelBuilder};
use crate::tracepoint;
use crate::verifier_log::VerifierLog;
use crate::walk::{LOOPS_REMEDY, WalkMode};

/// The inode number of the initial PID namespace (`PROC_PID_INIT_INO`).
const INITIAL_PID_NAMESPACE: u64 = 0xEFFF_FFFC;

/// Which tasks are in scope, within our PID namespace and, if there is a pod, within the pod.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TaskFilter {
    /// All tasks.
    All,
    /// The listed processes, and with [`Options::lists_children`] those that they fork.
    Listed,
    /// All except those.
    Unlisted,
}

/// From when on a process is listed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ListedFrom {
    /// From now on.
    Now,
    /// From its next exec on: the program that it executes before is not meant.
    NextExec,
}

/// A cgroup (version 2) by its level and id, which a program can compare.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PodCgroup {
    /// Its depth below the root; at least 1.
    pub level: u32,
    /// Its id, as in [`CgroupId`](crate::CgroupId).
    pub id: u64,
}

/// Settings that are fixed when the programs are loaded. Sizes are for all CPUs together unless they say otherwise.
#[derive(Clone, Debug)]
pub struct Options {
    /// What is sampled.
    pub kinds: KindSet,
    /// How many of the probes among the kinds are at tracepoints; at most
    /// [`TRACEPOINTS_MAX`](sidewinder_kind::SampledProbe::TRACEPOINTS_MAX).
    pub tracepoints: usize,
    /// The least probability with which a wait is sampled, from 0 to 1, if off-CPU time is sampled.
    pub off_cpu_threshold: f64,
    /// The same of a wait in a futex, if waits for locks are sampled.
    pub lock_threshold: f64,
    /// Whether off-CPU time includes the time in which threads wait for a CPU.
    pub samples_runnable: bool,
    /// The maximum number of threads whose off-CPU time is sampled.
    pub threads_max: u32,
    /// Which tasks are sampled.
    pub scope: TaskFilter,
    /// The cgroup of our pod: tasks outside of it are never sampled.
    pub pod: Option<PodCgroup>,
    /// Whether a process that a listed one forks is listed too.
    pub lists_children: bool,
    /// The maximum number of listed processes.
    pub listed_max: u32,
    /// Whether programs can be listed, whose processes are listed at their exec. Only with [`TaskFilter::Listed`].
    pub lists_programs: bool,
    /// How stacks are walked; by default the best mode that the kernel supports.
    pub walk: Option<WalkMode>,
    /// Stacks with more frames are truncated, and marked as such. Limited by [`WalkMode::frames_max`].
    pub frame_limit: u32,
    /// Whether samples in the kernel have kernel frames.
    pub kernel_frames: bool,
    /// Whether to sample kernel threads.
    pub kernel_threads: bool,
    /// Processes younger than this are not sampled.
    pub min_process_age: Duration,
    /// Whether samples include the attributes that threads publish, in addition to the span.
    pub context_attributes: bool,
    /// Whether stacks have the frames of runtimes.
    pub vm_frames: bool,
    /// The CPUs that are sampled, as far as they are online; empty: all.
    pub sampled_cpus: CpuIds,
    /// What is logged of the verifier's log.
    pub verifier_log: VerifierLog,
    /// Whether to load the test programs, too.
    #[cfg(feature = "test-programs")]
    pub test_programs: bool,
    /// The budget for tables and mappings together.
    pub arena_bytes: u64,
    /// The maximum number of processes with known mappings.
    pub processes_max: u32,
    /// The maximum number of table segments with an id.
    pub segments_max: u32,
    /// The number of stacks that are remembered as sent.
    pub known_stacks: u32,
    /// The size of each CPU's ring: a power of two; at least a page.
    pub ring_bytes: u32,
    /// The size of the ring of snapshots, likewise.
    pub snapshots_bytes: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            kinds: KindSet::new(Kind::Cpu { samples_per_second: 97 }),
            tracepoints: 0,
            off_cpu_threshold: 1.0,
            lock_threshold: 1.0,
            samples_runnable: false,
            threads_max: 16 << 10,
            scope: TaskFilter::All,
            pod: None,
            lists_children: true,
            listed_max: 8192,
            lists_programs: false,
            walk: None,
            frame_limit: 8192,
            kernel_frames: true,
            kernel_threads: false,
            min_process_age: Duration::ZERO,
            context_attributes: false,
            vm_frames: true,
            sampled_cpus: CpuIds::default(),
            verifier_log: VerifierLog::Nothing,
            #[cfg(feature = "test-programs")]
            test_programs: false,
            arena_bytes: 12 << 20,
            processes_max: 4096,
            segments_max: 16 << 10,
            known_stacks: 8192,
            ring_bytes: 32 << 10,
            snapshots_bytes: 1 << 20,
        }
    }
}

/// Why the programs could not be loaded or attached.
#[derive(Debug, Error)]
pub enum LoadError {
    /// The kernel has no type information, so programs can't be relocated.
    #[error(
        "the kernel offers no type information: /sys/kernel/btf/vmlinux is missing (CONFIG_DEBUG_INFO_BTF)"
    )]
    NoBtf,
    /// The kernel has no way to repeat the steps of a walk on this architecture.
    #[error("walking stacks on this architecture needs Linux 5.17 or later")]
    NoLoops,
    /// The kernel refused a map or a program.
    #[error("the kernel refused the programs or their maps while {doing}")]
    Refused {
        /// The operation that failed.
        doing: &'static str,
        /// The cause.
        source: libbpf_rs::Error,
    },
    /// A map could not be mapped into memory.
    #[error("can't map {map} into memory")]
    Map {
        /// The map.
        map: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// The PID namespace is unknown.
    #[error("can't read our PID namespace from /proc/self/ns/pid: is /proc mounted?")]
    Namespace(#[source] io::Error),
    /// Events could not be opened.
    #[error(transparent)]
    Events(#[from] EventError),
}

impl LoadError {
    /// Whether a privilege is missing, or a kernel setting denies what needs it. The verifier refuses programs with the
    /// same error code, which counts as this only if a privilege is missing.
    #[must_use]
    pub fn is_permission_denied(&self) -> bool {
        let may_be_the_verifiers = matches!(self, Self::Refused { .. });
        self.is_denied() && !(may_be_the_verifiers && denial::is_privileged())
    }

    /// What the user can do about it.
    #[must_use]
    pub fn next_step(&self) -> &'static str {
        if let Self::Events(EventError::NoCounter { .. }) = self {
            return "`sidewinder check` lists the counters of this machine";
        }
        if let Self::NoLoops = self {
            return LOOPS_REMEDY;
        }
        let reason = match self {
            Self::Events(_) => denial::denial_reason_of_events,
            _ => denial::denial_reason,
        };
        let obstacle = self.is_denied().then(reason).flatten();
        obstacle.unwrap_or(match self.is_permission_denied() {
            true => "run as root, or with CAP_BPF and CAP_PERFMON; `sidewinder check` says what is missing",
            false => "`sidewinder check` says what this kernel lacks",
        })
    }

    fn is_denied(&self) -> bool {
        match self {
            Self::Refused { source, .. } | Self::Events(EventError::Attach { source, .. }) => {
                source.kind() == libbpf_rs::ErrorKind::PermissionDenied
            }
            Self::Events(EventError::Open { source, .. } | EventError::Map { source, .. })
            | Self::Map { source, .. } => source.kind() == io::ErrorKind::PermissionDenied,
            _ => false,
        }
    }
}

/// The sites in programs, and behind them those of tracepoints.
const PROBE_SITES: u32 = intf::SW_PROBE_SITES_MAX + intf::SW_TRACEPOINTS_MAX;

/// How many reported containers the programs remember; the least recently used ones are reported again.
const CONTAINERS_MAX: u32 = 1024;

/// How many listed programs, and programs of young processes, are remembered.
const PROGRAMS_MAX: u32 = 1024;

/// The skeleton's memory for objects that must not move.
pub type Storage = MaybeUninit<OpenObject>;

/// Loads the programs of a walk mode, after `look` has inspected the open object. Sizes and options are fixed from then on.
/// The programs are relocated to the kernel of `btf`, or by default to the running kernel.
pub(crate) fn load_object<'obj>(
    storage: &'obj mut Storage,
    options: &Options,
    walk: WalkMode,
    btf: Option<&Path>,
    look: impl FnOnce(&mut OpenSampleSkel<'obj>),
) -> Result<SampleSkel<'obj>, LoadError> {
    if !fs::exists("/sys/kernel/btf/vmlinux").unwrap_or(false) {
        return Err(LoadError::NoBtf);
    }
    let refused = |doing| move |source| LoadError::Refused { doing, source };
    let possible = libbpf_rs::num_possible_cpus().map_err(refused("counting CPUs"))? as u32;
    let slots_count = possible * intf::SW_SLOTS_PER_CPU;
    let processes_places = (options.processes_max * 2).next_power_of_two();
    let known_sets = (options.known_stacks / intf::SW_KNOWN_WAYS).next_power_of_two();

    let ring_bytes = whole_pages(options.ring_bytes);
    let own_namespace = pid_namespace_inode()?;

    let mut builder = SampleSkelBuilder::default();
    if let Some(btf) = btf {
        builder.obj_builder.btf_custom_path(btf).map_err(refused("setting the path of type information"))?;
    }
    let mut open = builder.open(storage).map_err(refused("opening the object"))?;
    let preempt_count_from_rq = (options.tracepoints > 0).then(tracepoint::preempt_count_from_rq).flatten();
    let lists_processes = options.scope != TaskFilter::All;
    let lists_programs = options.lists_programs && options.scope == TaskFilter::Listed;
    let programs_max = if lists_programs { PROGRAMS_MAX } else { 1 };
    let keeps_numbers = lists_processes && own_namespace != 0;
    let selection = ProgramSelection {
        kinds: &options.kinds,
        tracepoints: options.tracepoints,
        walk,
        traces_switches: options.pod.is_none(),
        uses_process_list: lists_processes,
        lists_children: lists_processes && options.lists_children,
        keeps_namespaced_tids: keeps_numbers,
        #[cfg(feature = "test-programs")]
        test_programs: options.test_programs,
    };
    programs::select(&mut open.progs, selection);
    let has_waits = SampleKind::OffCpu.profile_kind(&options.kinds).is_some();
    let has_probes = options.kinds.probes().next().is_some();
    let inner_ring = create_ring(ring_bytes).map_err(refused("creating a ring buffer"))?;
    let maps = &mut open.maps;
    let resized = [
        maps.slots.set_max_entries(slots_count),
        maps.vm_scratches.set_max_entries(if options.vm_frames { possible } else { 1 }),
        maps.cpus.set_max_entries(possible),
        maps.rings.set_max_entries(possible),
        maps.rings.set_inner_map_fd(inner_ring.as_fd()),
        maps.snapshots.set_max_entries(whole_pages(options.snapshots_bytes)),
        maps.segments.set_max_entries(options.segments_max),
        maps.processes.set_max_entries(processes_places),
        maps.known_stacks.set_max_entries(known_sets),
        maps.listed.set_max_entries(if lists_processes { options.listed_max } else { 1 }),
        maps.listed_programs.set_max_entries(programs_max),
        maps.executed_programs.set_max_entries(programs_max),
        maps.exiting.set_max_entries(if keeps_numbers { options.listed_max } else { 1 }),
        maps.waits.set_max_entries(if has_waits { options.threads_max } else { 1 }),
        maps.probe_sites.set_max_entries(if has_probes { PROBE_SITES } else { 1 }),
        maps.containers.set_max_entries(if options.pod.is_some() { CONTAINERS_MAX } else { 1 }),
    ];
    resized.into_iter().collect::<Result<(), _>>().map_err(refused("sizing maps"))?;
    if let Some(fixed) = open.maps.rodata_data.as_deref_mut() {
        fixed.scope_mode = match options.scope {
            TaskFilter::All => intf::SW_SCOPE_ALL,
            TaskFilter::Listed => intf::SW_SCOPE_LISTED,
            TaskFilter::Unlisted => intf::SW_SCOPE_UNLISTED,
        };
        fixed.lists_programs = lists_programs;
        if let Some(PodCgroup { level, id }) = options.pod {
            (fixed.pod_level, fixed.pod_cgroup) = (level, id);
        }
        fixed.pid_namespace_inode = own_namespace;
        fixed.loaded_ns = boot_time_ns();
        fixed.frame_limit = options.frame_limit.clamp(1, walk.frames_max());
        fixed.process_mask = processes_places - 1;
        fixed.known_mask = known_sets - 1;
        fixed.ring_bytes = ring_bytes;
        fixed.hash_key = secret_key().map_err(|source| LoadError::Map { map: "random bytes", source })?;
        fixed.kernel_frames = options.kernel_frames;
        fixed.kernel_threads = options.kernel_threads;
        fixed.min_process_age_ns = options.min_process_age.as_nanos().try_into().unwrap_or(u64::MAX / 2);
        let samples_off_cpu = options.kinds.contains(Kind::OffCpu);
        let off_cpu_threshold = if samples_off_cpu { options.off_cpu_threshold } else { 0.0 };
        fixed.off_cpu_probability = probability(off_cpu_threshold);
        if options.kinds.has_locks() {
            fixed.lock_probability = probability(options.lock_threshold.max(off_cpu_threshold)).max(1);
            fixed.only_locks = !samples_off_cpu;
        }
        fixed.samples_runnable = options.samples_runnable;
        fixed.reads_attributes = options.context_attributes;
        fixed.preempt_count_from_rq = preempt_count_from_rq.unwrap_or(0);
        fixed.has_several_counters = options.kinds.counters().nth(1).is_some();
        arch::set_constants(fixed);
    }
    look(&mut open);
    let skeleton = options.verifier_log.log(open, OpenSkel::load).map_err(refused("loading"))?;
    programs::populate_tail_calls(&skeleton).map_err(refused("connecting programs"))?;
    Ok(skeleton)
}

/// A probability from 0 to 1 as the programs compare it with random numbers.
fn probability(fraction: f64) -> u64 {
    (fraction.clamp(0.0, 1.0) * intf::SW_CERTAIN as f64) as u64
}

/// 0 in the initial namespace, where the programs needn't translate ids.
pub(crate) fn pid_namespace_inode() -> Result<u32, LoadError> {
    let inode = fs::metadata("/proc/self/ns/pid").map_err(LoadError::Namespace)?.ino();
    Ok(if inode == INITIAL_PID_NAMESPACE { 0 } else { inode as u32 })
}

/// Whether our PID namespace is the initial one.
///
/// # Errors
/// If it is unknown.
pub fn is_in_initial_pid_namespace() -> Result<bool, LoadError> {
    Ok(pid_namespace_inode()? == 0)
}

/// Nanoseconds of `CLOCK_BOOTTIME`, the clock of process start times.
#[must_use]
pub fn boot_time_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// Odd numbers that nobody can predict.
fn secret_key() -> io::Result<[u64; 4]> {
    let mut bytes = [0; 32];
    io::Read::read_exact(&mut fs::File::open("/dev/urandom")?, &mut bytes)?;
    let mut key = [0; 4];
    for (word, bytes) in key.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = bytes.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)) | 1;
    }
    Ok(key)
}
