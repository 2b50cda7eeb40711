//! Reads of the memory of children: copies of this test's own program that run [`be_read`].

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use memmap2::MmapOptions;
use rustix::param::page_size;
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};
use tempfile::TempDir;

use super::fuse::WatchedFile;
use super::*;
use crate::tests::is_allowed;

/// The directory in which a child finds its file, and where it writes its addresses.
const DIRECTORY: &str = "SIDEWINDER_TEST_READ_DIRECTORY";
/// The size of the memory that is read: more than one batch of reads.
const BYTES: usize = 40 * READ_BYTES_MAX;

fn pattern(byte: usize) -> u8 {
    (byte * 31 + byte / READ_BYTES_MAX) as u8
}

/// The child: shows the addresses of its heap, of a file that it has mapped but never touched, and of a mapping with the name of
/// a context. Then it runs the program that its input names, or exits.
#[test]
fn be_read() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let directory = Path::new(&directory);
    let heap: Vec<u8> = (0..BYTES).map(pattern).collect();
    let file = fs::File::open(directory.join("file")).unwrap();
    let untouched = MmapOptions::new().len(BYTES).map_raw_read_only(&file).unwrap();
    let named = |name| {
        let file = rustix::fs::memfd_create(name, rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, page_size() as u64).unwrap();
        MmapOptions::new().len(page_size()).map_raw(&file).unwrap()
    };
    let (context, _others) = (named("OTEL_CTX"), [named("OTEL_CTX2"), named("OTEL_CT"), named("XOTEL_CTX")]);
    let addresses = [heap.as_ptr() as usize, untouched.as_ptr() as usize, context.as_ptr() as usize];
    fs::write(directory.join("new"), addresses.map(|address| address.to_string()).join(" ")).unwrap();
    fs::rename(directory.join("new"), directory.join("addresses")).unwrap();
    let mut program = String::new();
    io::stdin().read_to_string(&mut program).unwrap();
    if !program.is_empty() {
        let error = Command::new(program.trim()).arg("60").exec();
        panic!("can't run {program}: {error}");
    }
    drop(heap);
}

struct ReadChild {
    child: Child,
    heap: u64,
    untouched: u64,
    context: u64,
    _directory: TempDir,
}

impl ReadChild {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let content: Vec<u8> = (0..BYTES).map(pattern).collect();
        fs::write(directory.path().join("file"), content).unwrap();
        Self::start_in(directory)
    }

    fn start_in(directory: TempDir) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "foreign_memory::tests::be_read", "--test-threads=1"]);
        command.env(DIRECTORY, directory.path()).stdin(Stdio::piped()).stdout(Stdio::null());
        let child = command.spawn().unwrap();
        let since = Instant::now();
        let addresses = loop {
            if let Ok(addresses) = fs::read_to_string(directory.path().join("addresses")) {
                break addresses;
            }
            assert!(since.elapsed() < Duration::from_secs(60), "the child does not start");
            std::thread::sleep(Duration::from_millis(5));
        };
        let mut addresses = addresses.split(' ').map(|address| address.parse().unwrap());
        let mut next = || addresses.next().unwrap();
        Self { child, heap: next(), untouched: next(), context: next(), _directory: directory }
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    fn start_ns(&self) -> u64 {
        start_ns(self.pid()).unwrap()
    }

    fn link(&self, programs: &Arc<ForeignMemoryPrograms>) -> ReadableProcess {
        ReadableProcess::link(programs, self.pid(), self.start_ns()).unwrap()
    }
}

impl Drop for ReadChild {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn load(pod: Option<PodCgroup>) -> Option<Arc<ForeignMemoryPrograms>> {
    is_allowed(ForeignMemoryPrograms::load(pod))
}

fn read(process: &ReadableProcess, at: u64, bytes: usize) -> Result<Vec<u8>, i32> {
    let mut to = vec![0; bytes];
    match process.read_exact(at, &mut to) {
        Ok(()) => Ok(to),
        Err(error) => Err(error.raw_os_error().unwrap()),
    }
}

const ENDED: Result<Vec<u8>, i32> = Err(Errno::SRCH.raw_os_error());
const UNMAPPED: Result<Vec<u8>, i32> = Err(Errno::FAULT.raw_os_error());

#[test]
fn reads_of_any_size_see_the_memory_and_fault_absent_pages_in() {
    let Some(programs) = load(None) else { return };
    let child = ReadChild::start();
    let process = child.link(&programs);
    for (start, bytes) in [
        (0, 8),
        (1, 1),
        (100, READ_BYTES_MAX),
        (READ_BYTES_MAX - 3, 7),
        (5, 17 * READ_BYTES_MAX),
        (0, BYTES),
        (9, 0),
    ] {
        let expected: Vec<u8> = (start..start + bytes).map(pattern).collect();
        for memory in [child.heap, child.untouched] {
            assert!(
                read(&process, memory + start as u64, bytes).as_ref() == Ok(&expected),
                "{bytes} at {start}"
            );
        }
    }
}

#[test]
fn each_read_of_a_batch_ends_by_itself() {
    let Some(programs) = load(None) else { return };
    let child = ReadChild::start();
    let process = child.link(&programs);
    let mut to = [[0; 16]; 5];
    let addresses = [child.heap, 0, child.untouched, u64::MAX - 7, child.heap + 16];
    let mut reads: Vec<_> = addresses.into_iter().zip(to.iter_mut().map(|to| &mut to[..])).collect();
    let results = process.read_batch(&mut reads).unwrap();
    let is_read: Vec<_> = results.iter().map(Result::is_ok).collect();
    assert_eq!(is_read, [true, false, true, false, true]);
    let expected = |start: usize| -> Vec<u8> { (start..start + 16).map(pattern).collect() };
    assert_eq!([&to[0][..], &to[2], &to[4]], [expected(0), expected(0), expected(16)]);
}

#[test]
fn memory_that_is_not_mapped_is_an_error_even_if_part_of_it_is() {
    let Some(programs) = load(None) else { return };
    let child = ReadChild::start();
    let process = child.link(&programs);
    assert_eq!(read(&process, 0, 8), UNMAPPED);
    assert_eq!(read(&process, u64::MAX - 3, 8), UNMAPPED);
    assert_eq!(read(&process, 1 << 63, 8), UNMAPPED);
    // The context is the only page of its file.
    assert_eq!(read(&process, child.context, page_size()), Ok(vec![0; page_size()]));
    let maps = fs::read_to_string(format!("/proc/{}/maps", child.pid())).unwrap();
    let last = maps.lines().rev().find(|line| !line.contains("vsyscall")).unwrap();
    let end = u64::from_str_radix(last.split(['-', ' ']).nth(1).unwrap(), 16).unwrap();
    assert_eq!(read(&process, end - 8, 16), UNMAPPED);
}

#[test]
fn the_mappings_that_a_process_names_as_its_context_are_found() {
    let Some(programs) = load(None) else { return };
    let child = ReadChild::start();
    assert_eq!(child.link(&programs).contexts().unwrap(), [child.context]);
    let own = std::process::id();
    let own = ReadableProcess::link(&programs, own, start_ns(own).unwrap()).unwrap();
    assert_eq!(own.contexts().unwrap(), []);
}

/// As after its PID was reused.
#[test]
fn a_process_with_another_start_time_is_not_read() {
    let Some(programs) = load(None) else { return };
    let child = ReadChild::start();
    let tick_ns = u64::from(intf::SW_START_TIME_TICK_NS);
    for start_ns in [child.start_ns() - tick_ns, child.start_ns() + tick_ns, 0, u64::MAX] {
        let process = ReadableProcess::link(&programs, child.pid(), start_ns).unwrap();
        assert_eq!(read(&process, child.heap, 8), ENDED);
        assert_eq!(process.contexts().unwrap_err().raw_os_error(), Some(Errno::SRCH.raw_os_error()));
    }
}

/// A cgroup of version 2, one level below our own.
struct TestCgroup {
    path: PathBuf,
    cgroup: PodCgroup,
}

impl TestCgroup {
    /// `None` if there is no cgroup in which one can be created.
    fn create(name: &str) -> Option<Self> {
        let own_levels = is_allowed(crate::own_cgroups())?.len();
        let membership = fs::read_to_string("/proc/self/cgroup").unwrap();
        let own = membership.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
        let name = format!("sidewinder-test-{}-{name}", std::process::id());
        let mounts = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(Path::new);
        let path = mounts.into_iter().find_map(|mount| {
            let path = mount.join(own).join(&name);
            fs::create_dir(&path).ok()?;
            if path.join("cgroup.procs").exists() {
                return Some(path);
            }
            fs::remove_dir(&path).unwrap();
            None
        });
        let Some(path) = path else {
            eprintln!("SKIPPED: no cgroup can be created here");
            return None;
        };
        let id = rustix::fs::stat(&path).unwrap().st_ino;
        Some(Self { path, cgroup: PodCgroup { level: u32::try_from(own_levels).unwrap(), id } })
    }

    fn add(&self, child: &ReadChild) {
        fs::write(self.path.join("cgroup.procs"), child.pid().to_string()).unwrap();
    }
}

impl Drop for TestCgroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.path);
    }
}

#[test]
fn a_process_of_another_pod_is_not_read() {
    let (Some(pod), Some(other)) = (TestCgroup::create("pod"), TestCgroup::create("other")) else { return };
    let (in_pod, in_other, outside) = (ReadChild::start(), ReadChild::start(), ReadChild::start());
    pod.add(&in_pod);
    other.add(&in_other);
    let programs = is_allowed(ForeignMemoryPrograms::load_unchecked(Some(pod.cgroup))).map(Arc::new);
    let Some(programs) = programs else { return };
    let process = in_pod.link(&programs);
    assert_eq!(read(&process, in_pod.heap, 8), Ok((0..8).map(pattern).collect()));
    assert_eq!(process.contexts().unwrap(), [in_pod.context]);
    for child in [&in_other, &outside] {
        let process = child.link(&programs);
        assert_eq!(read(&process, child.heap, 8), ENDED);
        assert_eq!(process.contexts().unwrap_err().raw_os_error(), Some(Errno::SRCH.raw_os_error()));
    }
    // The link existed before.
    other.add(&in_pod);
    assert_eq!(read(&process, in_pod.heap, 8), ENDED);
    // The level of a cgroup that is no ancestor.
    let below = PodCgroup { level: pod.cgroup.level + 1, ..other.cgroup };
    let below = Arc::new(ForeignMemoryPrograms::load_unchecked(Some(below)).unwrap());
    assert_eq!(read(&in_other.link(&below), in_other.heap, 8), ENDED);
    assert!(ForeignMemoryPrograms::load(Some(pod.cgroup)).is_err(), "we are not in it");
    drop((in_pod, in_other));
}

#[test]
fn a_process_that_has_ended_or_ends_is_an_error() {
    let Some(programs) = load(None) else { return };
    let mut child = ReadChild::start();
    let process = child.link(&programs);
    child.child.kill().unwrap();
    let is_zombie = |stat: String| stat.contains(") Z ");
    while !is_zombie(fs::read_to_string(format!("/proc/{}/stat", child.pid())).unwrap()) {
        std::thread::sleep(Duration::from_millis(1));
    }
    // It still has its PID and start time, but no memory.
    assert_eq!(read(&process, child.heap, 8), UNMAPPED);
    child.child.wait().unwrap();
    assert_eq!(read(&process, child.heap, 8), ENDED);
    // Kernel threads have no memory either. The first process starts the second one, kthreadd.
    if let Some(start_ns) =
        fs::read_to_string("/proc/2/comm").is_ok_and(|name| name == "kthreadd\n").then(|| start_ns(2))
    {
        let kernel_thread = ReadableProcess::link(&programs, 2, start_ns.unwrap()).unwrap();
        assert_eq!(read(&kernel_thread, child.heap, 8), UNMAPPED);
    }
}

/// An exec changes neither the PID nor the start time: reads before it are of the old program, and reads after it of the new
/// one, where the old addresses are unmapped or other memory.
#[test]
fn after_an_exec_the_memory_is_that_of_the_new_program() {
    let Some(programs) = load(None) else { return };
    let mut child = ReadChild::start();
    let process = child.link(&programs);
    let old: Vec<u8> = (0..READ_BYTES_MAX).map(pattern).collect();
    assert!(read(&process, child.heap, READ_BYTES_MAX).as_ref() == Ok(&old));
    let mut input = child.child.stdin.take().unwrap();
    input.write_all(b"sleep").unwrap();
    drop(input);
    let since = Instant::now();
    // The first mapping is that of the program, once it has been loaded.
    let start = loop {
        let maps = fs::read_to_string(format!("/proc/{}/maps", child.pid())).unwrap();
        let first = maps.lines().next().unwrap_or_default();
        if first.ends_with("/sleep") {
            break u64::from_str_radix(first.split('-').next().unwrap(), 16).unwrap();
        }
        // The old program, or already the new one.
        if let Err(error) = read(&process, child.heap, READ_BYTES_MAX) {
            assert!([ENDED, UNMAPPED].contains(&Err(error)), "{error}");
        }
        assert!(since.elapsed() < Duration::from_secs(60), "the child does not exec");
    };
    assert!(read(&process, child.heap, READ_BYTES_MAX).as_ref() != Ok(&old), "memory of the old program");
    assert_eq!(read(&process, start, 4), Ok(b"\x7fELF".to_vec()));
}

/// The system call reads it instead, if it may.
#[test]
fn a_file_system_that_may_never_answer_is_not_waited_for() {
    let Some(programs) = load(None) else { return };
    let (mounted_on, directory) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let file = match WatchedFile::mount(mounted_on.path(), BYTES as u64) {
        Ok(file) => file,
        Err(error) => return eprintln!("SKIPPED: no FUSE: {error}"),
    };
    std::os::unix::fs::symlink(mounted_on.path().join("x"), directory.path().join("file")).unwrap();
    let child = ReadChild::start_in(directory);
    let process = child.link(&programs);
    for (start, bytes) in [(0, 8), (READ_BYTES_MAX - 1, 2), (0, BYTES)] {
        let mut to = vec![0; bytes];
        let error = process.read_exact(child.untouched + start as u64, &mut to).unwrap_err();
        assert!(ReadableProcess::is_remote(&error), "{error}");
    }
    assert!(read(&process, child.heap, 8).is_ok());
    assert!(!file.is_read());
}

/// Only loading requires capabilities.
#[test]
fn a_thread_without_capabilities_links_and_reads() {
    let Some(programs) = load(None) else { return };
    let child = ReadChild::start();
    let without = std::thread::spawn(move || {
        let none = CapabilitySet::empty();
        let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
        set_capabilities(None, sets).unwrap();
        assert!(capabilities(None).unwrap().permitted.is_empty());
        assert!(ForeignMemoryPrograms::load(None).is_err());
        let process = child.link(&programs);
        assert_eq!(process.contexts().unwrap(), [child.context]);
        read(&process, child.untouched + 8, 8)
    });
    assert_eq!(without.join().unwrap(), Ok((8..16).map(pattern).collect()));
}

#[test]
fn more_threads_than_batches_are_refused_and_each_reads_its_own() {
    let Some(programs) = load(None) else { return };
    let child = ReadChild::start();
    let process = child.link(&programs);
    {
        let _claims: Vec<_> = (0..BATCHES - 1).map(|_| programs.claim().unwrap()).collect();
        assert!(read(&process, child.heap, 8).is_ok());
        let _last = programs.claim().unwrap();
        assert_eq!(read(&process, child.heap, 8), Err(Errno::BUSY.raw_os_error()));
    }
    std::thread::scope(|threads| {
        for thread in 0..BATCHES {
            let (process, child) = (&process, &child);
            threads.spawn(move || {
                for i in 0..2000 {
                    let start = (thread * 997 + i) % (BYTES - 64);
                    let expected = (start..start + 64).map(pattern).collect();
                    assert_eq!(read(process, child.heap + start as u64, 64), Ok(expected));
                }
            });
        }
    });
}

/// Their own /proc numbers processes as the PID namespace does.
#[test]
fn in_a_pid_namespace_processes_have_the_numbers_of_that_namespace() {
    if load(None).is_none() {
        return;
    }
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--mount-proc"]).arg(std::env::current_exe().unwrap());
    command.args([
        "--exact",
        "foreign_memory::tests::reads_of_any_size_see_the_memory_and_fault_absent_pages_in",
    ]);
    let output = match command.output() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return eprintln!("SKIPPED: no unshare(1)"),
        output => output.unwrap(),
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
