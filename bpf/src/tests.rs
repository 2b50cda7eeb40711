//! Tests of the programs with type information of other kernels, with other compilers, and with a full list of processes.

use std::collections::HashSet;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use object::{Object as _, ObjectSection as _, SectionKind};

use crate::arch::THREAD_POINTER;
use crate::fields::KernelField;
use crate::foreign_memory;
use crate::load::load_object;
use crate::probe::{Requirement, Support, probe_fields};
use crate::{
    EventScope, ExecutedProgram, ListedFrom, LoadError, Opener, Options, Profiler, Record, Storage,
    TaskFilter, WalkMode,
};

/// The output of `build.rs` for `c/`, from whichever compiler.
const OBJECTS: [(&str, &[u8]); 4] = [
    ("sample", include_bytes!(concat!(env!("OUT_DIR"), "/sample.bpf.o"))),
    ("cgroup", include_bytes!(concat!(env!("OUT_DIR"), "/cgroup.bpf.o"))),
    ("fields", include_bytes!(concat!(env!("OUT_DIR"), "/fields.bpf.o"))),
    ("foreign_memory", include_bytes!(concat!(env!("OUT_DIR"), "/foreign_memory.bpf.o"))),
];

/// Whether something can be tested here; prints why not, and fails in CI.
pub(crate) fn is_allowed<T>(tried: Result<T, LoadError>) -> Option<T> {
    match tried {
        Ok(value) => Some(value),
        Err(error) if error.is_permission_denied() && std::env::var_os("CI").is_none() => {
            eprintln!("SKIPPED: eBPF is not allowed here: {error}");
            None
        }
        Err(error) => panic!("{error}: {:?}", std::error::Error::source(&error)),
    }
}

/// The number of atomic instructions in a program, and of those that return the old value (`BPF_FETCH`).
fn atomics(code: &[u8]) -> (usize, usize) {
    const STX_ATOMIC_WORD: u8 = 0xc3;
    const STX_ATOMIC_DOUBLE: u8 = 0xdb;
    const LOAD_OF_64_BITS: u8 = 0x18;
    const FETCH: u8 = 1;
    let (mut all, mut fetching) = (0, 0);
    let mut instructions = code.chunks_exact(8);
    while let Some(instruction) = instructions.next() {
        match instruction[0] {
            // The second half of a wide instruction isn't an instruction.
            LOAD_OF_64_BITS => drop(instructions.next()),
            STX_ATOMIC_WORD | STX_ATOMIC_DOUBLE => {
                all += 1;
                fetching += usize::from(instruction[4] & FETCH != 0);
            }
            _ => {}
        }
    }
    (all, fetching)
}

/// Before Linux 5.12, the only atomic instruction is a plain addition.
#[test]
fn no_program_has_an_atomic_instruction_that_old_kernels_lack() {
    for (name, bytes) in OBJECTS {
        let file = object::File::parse(bytes).unwrap();
        let code = file.sections().filter(|section| section.kind() == SectionKind::Text);
        let counted: Vec<_> = code.map(|section| atomics(section.data().unwrap())).collect();
        let (all, fetching) = counted.iter().fold((0, 0), |sum, next| (sum.0 + next.0, sum.1 + next.1));
        assert_eq!(fetching, 0, "{name}: of {all} atomic instructions");
        assert_eq!(
            all > 10,
            name == "sample",
            "{name}: {all} atomic instructions: not all code was looked at"
        );
    }
}

/// The running kernel's type information, with members of one name renamed.
fn type_information_without(member: &str) -> tempfile::NamedTempFile {
    let mut bytes = std::fs::read("/sys/kernel/btf/vmlinux").unwrap();
    let name: Vec<u8> = [b"\0", member.as_bytes(), b"\0"].concat();
    let at: Vec<usize> =
        bytes.windows(name.len()).enumerate().filter(|(_, w)| **w == *name).map(|(at, _)| at).collect();
    assert!(!at.is_empty(), "the kernel has no {member}");
    at.into_iter().for_each(|at| bytes[at + 1] = b'_');
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    file
}

fn loads(btf: &Path) -> Option<()> {
    for &walk in WalkMode::supported() {
        let options = Options { scope: TaskFilter::Unlisted, context_attributes: true, ..Options::default() };
        let mut storage = Storage::uninit();
        is_allowed(load_object(&mut storage, &options, walk, Some(btf), |_| {}))?;
    }
    Some(())
}

#[test]
fn a_kernel_without_a_field_loads_the_programs_and_its_degradation_is_named() {
    let thread_pointer = (THREAD_POINTER.field.rsplit('.').next().unwrap(), THREAD_POINTER.id);
    for (member, id) in [
        ("in_execve", "field_in_execve"),
        ("start_stack", "field_start_stack"),
        ("start_code", "field_start_code"),
        ("exe_file", "field_exe_file"),
        thread_pointer,
    ] {
        let btf = type_information_without(member);
        if loads(btf.path()).is_none() {
            return;
        }
        let missing = KernelField::missing(Some(btf.path())).unwrap();
        assert_eq!(missing.iter().map(|field| field.names.id).collect::<Vec<_>>(), [id]);
        for probe in probe_fields(Some(btf.path())) {
            match probe.support {
                Support::No { why, lacks } => {
                    assert!(probe.id == id && lacks == Requirement::Kernel, "{}: {why}", probe.id);
                    assert!(!probe.required && !probe.cost.is_empty(), "{}", probe.id);
                }
                Support::Yes => assert_ne!(probe.id, id),
            }
        }
    }
}

#[test]
fn a_kernel_without_user_workers_loads_the_programs() {
    let btf = type_information_without("user_worker");
    if loads(btf.path()).is_some() {
        assert_eq!(KernelField::missing(Some(btf.path())).unwrap(), []);
    }
}

/// A process that computes, or that on request starts children which do. Dropping it ends all of them.
struct Burner(Child);

impl Burner {
    const COMPUTES: &str = "while :; do :; done";

    fn start(script: &str) -> Self {
        let mut shell = Command::new("sh");
        Self(shell.args(["-c", script]).stdin(Stdio::piped()).process_group(0).spawn().unwrap())
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }

    fn start_ns(&self) -> u64 {
        foreign_memory::start_ns(self.pid()).unwrap()
    }

    /// Its children, according to its own thread.
    fn children(&self) -> HashSet<u32> {
        let path = format!("/proc/{0}/task/{0}/children", self.pid());
        let children = std::fs::read_to_string(path).unwrap();
        children.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
    }
}

impl Drop for Burner {
    fn drop(&mut self) {
        let group = rustix::process::Pid::from_child(&self.0);
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        let _ = self.0.wait();
    }
}

fn profiler<'obj>(storage: &'obj mut Storage, listed_max: u32) -> Option<Profiler<'obj>> {
    let options = Options { scope: TaskFilter::Unlisted, listed_max, ..Options::default() };
    profiler_with(storage, &options)
}

fn profiler_with<'obj>(storage: &'obj mut Storage, options: &Options) -> Option<Profiler<'obj>> {
    let mut profiler = is_allowed(Profiler::load(storage, options, Opener::start().unwrap()))?;
    is_allowed(profiler.open_side_band(EventScope::EveryTask).map_err(LoadError::from))?;
    is_allowed(profiler.start().map_err(LoadError::from))?;
    Some(profiler)
}

/// The processes whose samples arrive within a time. Earlier samples are discarded.
fn sampled(profiler: &mut Profiler<'_>, time: Duration) -> HashSet<u32> {
    profiler.rings().drain(&mut Vec::new());
    let (mut records, end) = (Vec::new(), Instant::now() + time);
    while Instant::now() < end {
        let _ = profiler.wait(Duration::from_millis(20));
        profiler.rings().drain(&mut records);
    }
    let pids = records.iter().filter_map(|record| match record {
        Record::Sample(sample) => Some(sample.pid),
        _ => None,
    });
    pids.collect()
}

/// Long enough for each of the computing processes to be scheduled many times.
const A_WHILE: Duration = Duration::from_secs(3);

#[test]
fn children_for_which_the_list_of_excluded_processes_has_no_room_are_excluded() {
    let old = Burner::start(Burner::COMPUTES);
    let forks = format!("read line; for i in $(seq 24); do ({}) & done; wait", Burner::COMPUTES);
    let mut storage = Storage::uninit();
    let Some(mut profiler) = profiler(&mut storage, 8) else { return };
    let mut excluded = Burner::start(&forks);
    profiler.list(excluded.pid(), excluded.start_ns(), ListedFrom::Now).unwrap();
    let young = Burner::start(Burner::COMPUTES);
    let before = sampled(&mut profiler, A_WHILE);
    assert!(before.contains(&old.pid()) && before.contains(&young.pid()), "{before:?}");
    assert_eq!(profiler.scope_list_full(), 0);

    drop(excluded.0.stdin.take());
    while excluded.children().len() < 24 {
        std::thread::sleep(Duration::from_millis(10));
    }
    let after = sampled(&mut profiler, A_WHILE);
    assert!(profiler.scope_list_full() >= 24 - 7, "{} children found no room", profiler.scope_list_full());
    let leaked: Vec<_> = excluded.children().intersection(&after).copied().collect();
    assert!(leaked.is_empty(), "{} of 24 children of an excluded process are sampled", leaked.len());
    assert!(after.contains(&old.pid()), "what is older than the programs is no such child");
    assert!(!after.contains(&young.pid()), "what is younger may be one");
}

#[test]
fn a_process_can_be_listed_from_its_next_exec_on() {
    let executes = format!("trap \"exec sh -c '{0}'\" USR1; {0}", Burner::COMPUTES);
    let process = Burner::start(&executes);
    let mut storage = Storage::uninit();
    let Some(mut profiler) = profiler(&mut storage, 8) else { return };
    profiler.list(process.pid(), process.start_ns(), ListedFrom::NextExec).unwrap();
    let before = sampled(&mut profiler, A_WHILE);
    assert!(before.contains(&process.pid()), "it is not excluded yet: {before:?}");

    let pid = rustix::process::Pid::from_child(&process.0);
    rustix::process::kill_process(pid, rustix::process::Signal::USR1).unwrap();
    std::thread::sleep(Duration::from_millis(500));
    let after = sampled(&mut profiler, A_WHILE);
    assert!(!after.contains(&process.pid()), "it has executed another program: {after:?}");
}

/// The program that a process executes, once it is known. A process is started a moment before its exec is over.
fn executed(
    profiler: &Profiler<'_>,
    process: &Burner,
    is_it: impl Fn(&ExecutedProgram) -> bool,
) -> ExecutedProgram {
    let deadline = Instant::now() + A_WHILE;
    loop {
        if let Some(program) = profiler.executed_program(process.pid()).filter(&is_it) {
            return program;
        }
        assert!(Instant::now() < deadline, "the program of {} is not known", process.pid());
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_process_is_listed_when_it_executes_a_listed_program() {
    let mut storage = Storage::uninit();
    let options = Options { scope: TaskFilter::Listed, lists_programs: true, ..Options::default() };
    let Some(mut profiler) = profiler_with(&mut storage, &options) else { return };
    let first = Burner::start(Burner::COMPUTES);
    let shell = executed(&profiler, &first, |_| true);
    profiler.list_program(&shell);
    let second = Burner::start(Burner::COMPUTES);
    executed(&profiler, &second, |program| *program == shell);
    let sampled = sampled(&mut profiler, A_WHILE);
    assert!(sampled.contains(&second.pid()) && !sampled.contains(&first.pid()), "{sampled:?}");
    assert!(!profiler.is_listed(first.pid()) && profiler.is_listed(second.pid()));

    let other = Burner::start("exec sleep 100");
    executed(&profiler, &other, |program| *program != shell);

    profiler.unlist_program(&shell);
    let third = Burner::start(Burner::COMPUTES);
    executed(&profiler, &third, |program| *program == shell);
    std::thread::sleep(Duration::from_millis(100));
    assert!(!profiler.is_listed(third.pid()), "its program is not listed any more");
    assert!(profiler.is_listed(second.pid()));
}

#[test]
fn nothing_is_sampled_when_an_older_process_can_not_be_excluded() {
    let old = Burner::start(Burner::COMPUTES);
    let mut storage = Storage::uninit();
    let Some(mut profiler) = profiler(&mut storage, 1) else { return };
    assert!(sampled(&mut profiler, A_WHILE).contains(&old.pid()));
    profiler.list(std::process::id(), 1, ListedFrom::Now).unwrap();
    profiler.list(old.pid(), old.start_ns(), ListedFrom::Now).unwrap_err();
    assert_eq!(profiler.scope_list_full(), 1);
    assert_eq!(sampled(&mut profiler, A_WHILE), HashSet::new());
}

#[test]
fn rings_are_whole_pages_of_this_machine() {
    let page = u32::try_from(rustix::param::page_size()).unwrap();
    assert_eq!(crate::ring::whole_pages(1), page);
    assert_eq!(crate::ring::whole_pages(page + 1), 2 * page);
    assert_eq!(crate::ring::whole_pages(4 * page), 4 * page);
    drop(crate::ring::create_ring(0).unwrap_err());
}
