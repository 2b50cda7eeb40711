//! Probes which features this kernel and these privileges allow, by trying them.

use std::error::Error;
use std::fs;
use std::io;
use std::path::Path;

use rustix::thread::{CapabilitySet, capabilities};

use crate::arch;
use crate::container::Container;
use crate::counter::PerfCounter;
use crate::denial;
use crate::events::{EventKind, EventTarget, online_cpus};
use crate::fields::KernelField;
use crate::foreign_memory::ForeignMemoryPrograms;
use crate::load::LoadError;
use crate::ring::{create_ring, whole_pages};
use crate::tracepoint::probe_tracepoints;
use crate::user_probe::probe_user_probes;
use crate::walk::{BPF_FIND_VMA, BPF_LOOP, LOOPS_REMEDY};

/// Whether a feature works here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Support {
    /// It works.
    Yes,
    /// It doesn't work.
    No {
        /// The kernel's reason, for users.
        why: String,
        /// What is missing.
        lacks: Requirement,
    },
}

/// What a feature requires.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Requirement {
    /// A privilege, or a setting that doesn't demand one.
    Privilege,
    /// A kernel that has the feature, with the configuration or the mounts that it needs.
    Kernel,
}

/// A feature that was probed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Probe {
    /// A stable id, for programs.
    pub id: &'static str,
    /// Its name, for users.
    pub name: &'static str,
    /// Whether profiling is impossible without it.
    pub required: bool,
    /// Whether it works.
    pub support: Support,
    /// What is lost without it.
    pub cost: &'static str,
    /// How to get it.
    pub remedy: &'static str,
}

/// What is required to load programs.
const PROGRAMS_REMEDY: &str = "run as root or with CAP_BPF and CAP_PERFMON";
/// What is required to open events of all tasks.
const EVENTS_REMEDY: &str = "run as root or with CAP_PERFMON";

/// Probes everything that the profiler may use. Everything is released again.
#[must_use]
pub fn probe() -> Vec<Probe> {
    let obstacle = denial::denial_reason();
    let obstacle_of_events = denial::denial_reason_of_events();
    let programs = supports_perf_event_programs();
    let clock = open_on_every_cpu(CLOCK);
    let can_load = programs == Support::Yes;
    // Loading a program is the way to ask the kernel.
    let if_loaded =
        |test: &dyn Fn() -> Support| if can_load { test() } else { untested(denial::is_privileged()) };
    let remedy = |tested| remedy_of_tested(can_load, obstacle, tested);
    let of_container = match &clock {
        Support::Yes => "use cgroup v2, mounted on /sys/fs/cgroup",
        Support::No { .. } => obstacle_of_events.unwrap_or(EVENTS_REMEDY),
    };
    let mut probes = vec![
        Probe {
            id: "btf",
            name: "kernel type information (BTF)",
            required: true,
            support: support_from(fs::metadata("/sys/kernel/btf/vmlinux")),
            cost: "the programs can't be relocated to this kernel",
            remedy: "use a kernel built with CONFIG_DEBUG_INFO_BTF=y (all current distributions)",
        },
        Probe {
            id: "bpf_maps",
            name: "BPF maps and ring buffers",
            required: true,
            support: support_from(create_ring(whole_pages(1))),
            cost: "nothing can be loaded",
            remedy: obstacle.unwrap_or(
                "run as root or with CAP_BPF and CAP_PERFMON, on Linux 5.8 or later; before 5.11, also raise RLIMIT_MEMLOCK",
            ),
        },
        Probe {
            id: "perf_event_programs",
            name: "eBPF programs for perf events",
            required: true,
            support: programs,
            cost: "interrupts can't be turned into samples",
            remedy: obstacle.unwrap_or(PROGRAMS_REMEDY),
        },
        Probe {
            id: "cpu_clock_events",
            name: "CPU clock events for all tasks",
            required: true,
            support: clock,
            cost: "nothing can be sampled",
            remedy: obstacle_of_events
                .unwrap_or("run as root or with CAP_PERFMON; a seccomp profile must allow perf_event_open"),
        },
        Probe {
            id: "process_events",
            name: "process events (perf's side band)",
            required: false,
            support: open_on_every_cpu(EventKind::SideBand),
            cost: "new mappings are found only when a sample uses them",
            remedy: obstacle_of_events.unwrap_or(EVENTS_REMEDY),
        },
        Probe {
            id: "container_events",
            name: "CPU clock events for one container",
            required: false,
            support: open_for_own_container(),
            cost: "with a pod as the scope, every interrupt on the node runs a program, which ignores other pods",
            remedy: of_container,
        },
        Probe {
            id: "context_switch_events",
            name: "context switch events for all tasks",
            required: false,
            support: open_on_every_cpu(EventKind::Overflow(PerfCounter::CONTEXT_SWITCHES)),
            cost: "no off-CPU time: off_cpu_threshold and --off-cpu can't be used",
            remedy: obstacle_of_events.unwrap_or(EVENTS_REMEDY),
        },
        Probe {
            id: "user_probes",
            name: "probes in programs (uprobe, uretprobe, usdt)",
            required: false,
            support: if_loaded(&|| support_from(probe_user_probes())),
            cost: "probes and --probe can't be used",
            remedy: remedy(
                "use Linux 6.6 or later with CAP_BPF and CAP_PERFMON; on older kernels, run as root or with CAP_PERFMON and, if perf events for uprobes are denied, CAP_SYS_ADMIN",
            ),
        },
        Probe {
            id: "tracepoint_probes",
            name: "kernel tracepoint probes (tracepoint)",
            required: false,
            support: if_loaded(&|| support_from(probe_tracepoints())),
            cost: "probes and --probe with tracepoint:CATEGORY:NAME can't be used",
            remedy: remedy(
                "run as root or with CAP_BPF and CAP_PERFMON, on a kernel whose type information was generated by pahole 1.22 or later",
            ),
        },
        Probe {
            id: "bpf_loop",
            name: "loops in programs (bpf_loop)",
            required: !arch::ALLOWS_TAIL_CALLS,
            support: if_loaded(&|| program_has_helper(BPF_LOOP)),
            cost: match arch::ALLOWS_TAIL_CALLS {
                true => "stacks are truncated after 1056 frames, and marked as such",
                false => "no stack-walking program can be loaded on this architecture",
            },
            remedy: remedy(LOOPS_REMEDY),
        },
        Probe {
            id: "bpf_find_vma",
            name: "distinguishing absent pages from bad addresses (bpf_find_vma)",
            required: false,
            support: if_loaded(&|| program_has_helper(BPF_FIND_VMA)),
            cost: "both are counted as bad addresses",
            remedy: remedy(LOOPS_REMEDY),
        },
        Probe {
            id: "foreign_memory",
            name: "memory of other users' processes",
            required: false,
            // A thread that may trace needs no program.
            support: if may_trace() { Support::Yes } else { if_loaded(&|| support_from(ForeignMemoryPrograms::load(None))) },
            cost: "process contexts, spans, and names of interpreted and generated code are read only from this user's processes",
            remedy: remedy("use Linux 6.1 or later with CAP_BPF and CAP_PERFMON, or add CAP_SYS_PTRACE"),
        },
        Probe {
            id: "kernel_symbols",
            name: "kernel symbol addresses",
            required: false,
            support: kernel_symbols(),
            cost: "kernel frames have no names",
            remedy: "run as root or with CAP_SYSLOG, or set kernel.kptr_restrict to 0 or 1",
        },
    ];
    if can_load {
        probes.extend(probe_fields(None));
    }
    probes
}

/// Probes for fields that not all kernels have, in the type information of `btf`, or by default of the running kernel.
pub(crate) fn probe_fields(btf: Option<&Path>) -> Vec<Probe> {
    let missing = KernelField::missing(btf);
    let support = |field: KernelField| match &missing {
        Ok(missing) if missing.contains(&field) => Support::No {
            why: format!("the kernel's type information has no {}", field.names.field),
            lacks: Requirement::Kernel,
        },
        Ok(_) => Support::Yes,
        Err(error) => {
            Support::No { why: format!("unknown: {}", error_chain(error)), lacks: missing_requirement(error) }
        }
    };
    let probes = KernelField::ALL.map(|field| Probe {
        id: field.names.id,
        name: field.names.name,
        required: false,
        support: support(field),
        cost: field.cost,
        remedy: "use a kernel that has this field; a kernel newer than this profiler may have moved it",
    });
    probes.into()
}

/// What to do about a feature that is tested by loading programs, with this remedy if the kernel lacks it. Where no program can be
/// loaded, the kernel was not asked: a newer one may not be needed.
fn remedy_of_tested(can_load: bool, obstacle: Option<&'static str>, tested: &'static str) -> &'static str {
    obstacle.unwrap_or(if can_load { tested } else { PROGRAMS_REMEDY })
}

/// A feature that could not be tested because no program can be loaded.
fn untested(is_privileged: bool) -> Support {
    let (why, lacks) = match is_privileged {
        true => ("not tested: no program can be loaded", Requirement::Kernel),
        false => ("not tested: needs root", Requirement::Privilege),
    };
    Support::No { why: why.to_owned(), lacks }
}

fn support_from<T, E: Error + 'static>(tried: Result<T, E>) -> Support {
    match tried {
        Ok(_) => Support::Yes,
        Err(error) => Support::No { why: error_chain(&error), lacks: missing_requirement(&error) },
    }
}

/// What was missing when the kernel refused something.
fn missing_requirement(error: &(dyn Error + 'static)) -> Requirement {
    if is_permission_denied(error) { Requirement::Privilege } else { Requirement::Kernel }
}

fn is_permission_denied(error: &(dyn Error + 'static)) -> bool {
    // The verifier refuses programs with the same error code.
    if let Some(error) = error.downcast_ref::<LoadError>() {
        return error.is_permission_denied();
    }
    let by_system =
        error.downcast_ref::<io::Error>().map(io::Error::kind) == Some(io::ErrorKind::PermissionDenied);
    let by_libbpf = error.downcast_ref::<libbpf_rs::Error>().map(libbpf_rs::Error::kind)
        == Some(libbpf_rs::ErrorKind::PermissionDenied);
    by_system || by_libbpf || error.source().is_some_and(is_permission_denied)
}

fn supports_perf_event_programs() -> Support {
    match libbpf_rs::ProgramType::PerfEvent.is_supported() {
        Ok(true) => Support::Yes,
        Ok(false) => Support::No {
            why: "the kernel refused a one-instruction program".to_owned(),
            lacks: if denial::is_privileged() { Requirement::Kernel } else { Requirement::Privilege },
        },
        Err(error) => support_from(Err::<(), _>(error)),
    }
}

/// `id` as in `enum bpf_func_id`.
fn program_has_helper(id: u32) -> Support {
    match libbpf_rs::ProgramType::PerfEvent.is_helper_supported(id) {
        Ok(true) => Support::Yes,
        Ok(false) => {
            Support::No { why: "the kernel doesn't know this helper".to_owned(), lacks: Requirement::Kernel }
        }
        Err(error) => support_from(Err::<(), _>(error)),
    }
}

/// Whether this thread may read the memory of other users' processes by system call.
fn may_trace() -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_PTRACE))
}

const CLOCK: EventKind = EventKind::Overflow(PerfCounter::cpu_clock(1_000_000_000));

fn open_on_every_cpu(kind: EventKind) -> Support {
    open(kind, &EventTarget::EveryTask)
}

fn open_for_own_container() -> Support {
    match Container::from_pid(std::process::id()) {
        Ok(container) => open(CLOCK, &EventTarget::Cgroup(container.directory())),
        Err(error) => support_from(Err::<(), _>(error)),
    }
}

fn open(kind: EventKind, target: &EventTarget<'_>) -> Support {
    support_from(online_cpus().and_then(|cpus| kind.open(&cpus, target)))
}

fn error_chain(error: &impl Error) -> String {
    match error.source() {
        Some(why) => format!("{error}: {why}"),
        None => error.to_string(),
    }
}

/// Without permission, all addresses are shown as zeros. Some symbols really are at zero: those of per-CPU variables,
/// which some kernels list first.
fn kernel_symbols() -> Support {
    let any_shown = fs::File::open("/proc/kallsyms").and_then(|file| {
        for line in io::BufRead::lines(io::BufReader::new(file)) {
            if !line?.starts_with("0000000000000000") {
                return Ok(true);
            }
        }
        Ok(false)
    });
    match any_shown {
        Ok(true) => Support::Yes,
        Ok(false) => {
            Support::No { why: "/proc/kallsyms shows no addresses".to_owned(), lacks: Requirement::Privilege }
        }
        Err(error) => Support::No {
            why: format!("can't read /proc/kallsyms: {error}"),
            lacks: missing_requirement(&error),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::EventError;

    #[test]
    fn where_the_kernel_was_not_asked_the_advice_is_privileges_and_no_newer_kernel() {
        let needs_root = untested(false);
        assert_eq!(
            needs_root,
            Support::No { why: "not tested: needs root".to_owned(), lacks: Requirement::Privilege }
        );
        assert_eq!(remedy_of_tested(false, None, LOOPS_REMEDY), PROGRAMS_REMEDY);
        assert_eq!(remedy_of_tested(true, None, LOOPS_REMEDY), LOOPS_REMEDY);
        assert_eq!(remedy_of_tested(false, Some("a filter"), LOOPS_REMEDY), "a filter");
    }

    #[test]
    fn ids_are_identifiers_each_once() {
        let probes = probe();
        let mut ids: Vec<_> = probes.iter().map(|probe| probe.id).collect();
        assert!(
            ids.iter().all(|id| id.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')),
            "{ids:?}"
        );
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), probes.len());
    }

    #[test]
    fn a_denied_operation_lacks_a_privilege_however_deep_its_cause_is() {
        let lacks = |code| {
            let source = io::Error::from_raw_os_error(code);
            missing_requirement(&EventError::Open { what: "clock", cpu: 0, source })
        };
        for denied in [rustix::io::Errno::PERM, rustix::io::Errno::ACCESS] {
            assert_eq!(lacks(denied.raw_os_error()), Requirement::Privilege);
        }
        assert_eq!(lacks(rustix::io::Errno::OPNOTSUPP.raw_os_error()), Requirement::Kernel);
        let of_libbpf = libbpf_rs::Error::from_raw_os_error(rustix::io::Errno::PERM.raw_os_error());
        assert_eq!(missing_requirement(&of_libbpf), Requirement::Privilege);
    }
}
