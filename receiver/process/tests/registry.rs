//! The registry with real processes, and with trees of files for states that can't be provoked.
#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

mod common;

use std::process::Command;

use common::{Talker, Tree, compile};
use sidewinder_address::{Avma, FileOffset};
use sidewinder_process::{
    Backing, Change, DeviceId, ExecutableMapping, MappedIdentity, Pid, ProcRoot, Process, ProcessEvent,
    ProcessEventKind, ProcfsError, Registry, RegistryLimits, Tid,
};

const ONE_PAGE: &str = "1000-2000 r-xp 00000000 08:01 1 /a\n";

fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn event(time_ns: u64, pid: u32, kind: ProcessEventKind) -> ProcessEvent {
    ProcessEvent { time_ns, pid: Pid(pid), kind }
}

fn fork(parent: u32) -> ProcessEventKind {
    ProcessEventKind::Fork { parent: Pid(parent), is_thread: false }
}

fn exec(comm: &str) -> ProcessEventKind {
    ProcessEventKind::Exec { comm: comm.as_bytes().into() }
}

fn exit(tid: u32) -> ProcessEventKind {
    ProcessEventKind::Exit { tid: Tid(tid) }
}

fn map(start: u64, inode: u64, path: &str, executable: bool) -> ProcessEventKind {
    ProcessEventKind::Map {
        range: Avma(start)..Avma(start + 0x1000),
        file_offset: FileOffset(0),
        file: Some(MappedIdentity::Inode { device: DeviceId { major: 8, minor: 1 }, inode }),
        path: path.as_bytes().into(),
        executable,
    }
}

fn paths(process: &Process) -> Vec<String> {
    process
        .mappings()
        .map(|mapping| match mapping.backing.file() {
            Some(file) => String::from_utf8_lossy(file.path()).into_owned(),
            None => format!("{:?}", mapping.backing),
        })
        .collect()
}

/// Changes in short form: `+PID` mappings changed, `-PID` exited.
fn changes(registry: &mut Registry) -> Vec<String> {
    let short = |change| match change {
        Change::MappingsChanged(pid) => format!("+{pid}"),
        Change::Exited(process) => format!("-{}", process.pid()),
    };
    registry.take_changes().into_iter().map(short).collect()
}

#[test]
fn a_scan_finds_what_we_ourselves_map() {
    let mut registry = Registry::new(ProcRoot::default(), RegistryLimits::default());
    registry.scan_all().unwrap();
    let own = registry.process(Pid(std::process::id())).unwrap();
    let executable = std::env::current_exe().unwrap();
    assert!(paths(own).contains(&executable.to_str().unwrap().to_owned()), "{:?}", paths(own));
    assert!(own.mappings().any(|mapping| mapping.backing == Backing::Vdso));
    let here = Avma(a_scan_finds_what_we_ourselves_map as fn() as usize as u64);
    let mapping = own.mapping_set().find(here).unwrap();
    assert_eq!(mapping.backing.file().unwrap().path(), executable.to_str().unwrap().as_bytes());
    assert!(changes(&mut registry).contains(&format!("+{}", std::process::id())));
    assert_eq!(changes(&mut registry), Vec::<String>::new());
}

const LOADER: &str = r#"
#include <dlfcn.h>
#include <stdio.h>
int main(int argc, char **argv) {
    char line[16];
    for (;;) {
        void *library = dlopen(argv[1], RTLD_NOW);
        puts(library ? "open" : dlerror()), fflush(stdout);
        if (!fgets(line, sizeof line, stdin)) return 0;
        dlclose(library);
        puts("closed"), fflush(stdout);
        if (!fgets(line, sizeof line, stdin)) return 0;
    }
}
"#;

#[test]
fn a_library_that_comes_and_goes_is_seen_at_each_reading() {
    let directory = tempfile::tempdir().unwrap();
    let library =
        compile(directory.path(), "plugin.so", "int answer(void) { return 42; }", &["-shared", "-fPIC"]);
    let loader = compile(directory.path(), "loader", LOADER, &["-ldl"]);
    let mut talker = Talker::start(Command::new(loader).arg(&library));
    let mut registry = Registry::new(ProcRoot::default(), RegistryLimits::default());
    let library = library.to_str().unwrap().to_owned();
    for _ in 0..3 {
        assert_eq!(talker.hear(), "open");
        registry.scan(talker.pid()).unwrap();
        assert!(paths(registry.process(talker.pid()).unwrap()).contains(&library));
        assert_eq!(changes(&mut registry).len(), 1);
        registry.scan(talker.pid()).unwrap();
        assert_eq!(changes(&mut registry).len(), 0, "nothing has changed");
        talker.say("close");
        assert_eq!(talker.hear(), "closed");
        registry.scan(talker.pid()).unwrap();
        assert!(!paths(registry.process(talker.pid()).unwrap()).contains(&library));
        assert_eq!(changes(&mut registry).len(), 1);
        talker.say("open");
    }
}

fn wait_until(mut is_so: impl FnMut() -> bool) {
    let started = std::time::Instant::now();
    while !is_so() {
        assert!(started.elapsed().as_secs() < 20, "it never came so");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

const LEAVER: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
static void *stay(void *arg) {
    char line[16];
    puts("alone"), fflush(stdout);
    if (fgets(line, sizeof line, stdin)) exit(0);
    return arg;
}
int main(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, stay, NULL);
    pthread_exit(NULL);
}
"#;

#[test]
fn a_process_lives_on_when_its_leader_has_ended() {
    let directory = tempfile::tempdir().unwrap();
    let program = compile(directory.path(), "leaver", LEAVER, &["-pthread"]);
    let mut talker = Talker::start(&mut Command::new(program));
    let pid = talker.pid();
    let mut registry = Registry::new(ProcRoot::default(), RegistryLimits::default());
    registry.scan(pid).unwrap();
    assert_eq!(talker.hear(), "alone");
    registry.apply(event(now_ns(), pid.0, ProcessEventKind::Fork { parent: pid, is_thread: true }));
    registry.apply(event(now_ns(), pid.0, exit(pid.0)));
    assert_eq!(registry.rescan_stale(), 0);
    wait_until(|| std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap().contains(") Z "));
    assert_eq!(registry.rescan_stale(), 0);
    assert!(registry.process(pid).is_some());
    talker.say("go");
    talker.child.wait().unwrap();
    registry.apply(event(now_ns(), pid.0, exit(pid.0 + 1)));
    wait_until(|| {
        registry.rescan_stale();
        registry.process(pid).is_none()
    });
    assert_eq!(changes(&mut registry), [format!("-{pid}")]);
}

#[test]
fn a_process_that_ends_with_a_wrong_count_of_threads_is_found_out() {
    let mut talker = Talker::start(&mut Command::new("cat"));
    let pid = talker.pid();
    let mut registry = Registry::new(ProcRoot::default(), RegistryLimits::default());
    registry.scan(pid).unwrap();
    registry.apply(event(now_ns(), pid.0, ProcessEventKind::Fork { parent: pid, is_thread: true }));
    registry.apply(event(now_ns(), pid.0, exit(pid.0)));
    registry.rescan_stale();
    assert!(registry.process(pid).is_some(), "it has not ended yet");
    talker.child.kill().unwrap();
    wait_until(|| std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap().contains(") Z "));
    // A zombie runs nothing. It is checked once a second.
    wait_until(|| {
        registry.rescan_stale();
        registry.process(pid).is_none()
    });
}

#[test]
fn a_thread_that_ends_while_its_process_is_read_is_not_counted_twice() {
    let tree = Tree::new();
    tree.add(10, 100, ONE_PAGE);
    let mut registry = tree.registry();
    registry.scan_all().unwrap();
    // The read started before the thread ended, but no longer found it.
    let read_from_ns = registry.process(Pid(10)).unwrap().known_since_ns();
    registry.apply(event(read_from_ns, 10, exit(11)));
    assert!(registry.process(Pid(10)).is_some(), "its other thread runs");
    registry.apply(event(now_ns(), 10, exit(10)));
    assert!(registry.process(Pid(10)).is_none());
}

#[test]
fn a_child_shares_its_parents_mappings_until_it_runs_something_else() {
    let tree = Tree::new();
    tree.add(10, 100, ONE_PAGE);
    let mut registry = tree.registry();
    registry.scan_all().unwrap();
    let start_ns = now_ns();
    registry.apply(event(start_ns, 11, fork(10)));
    assert_eq!(changes(&mut registry), ["+10", "+11"]);
    let shared = |registry: &Registry| {
        let set = |pid| registry.process(Pid(pid)).unwrap().mapping_set().clone();
        std::sync::Arc::ptr_eq(&set(10), &set(11))
    };
    assert!(shared(&registry));
    registry.apply(event(start_ns + 1, 11, map(0x5000, 2, "/b", true)));
    assert!(!shared(&registry));
    assert_eq!(paths(registry.process(Pid(10)).unwrap()), ["/a"]);
    assert_eq!(paths(registry.process(Pid(11)).unwrap()), ["/a", "/b"]);
    registry.apply(event(start_ns + 2, 11, exec("c")));
    registry.apply(event(start_ns + 3, 11, map(0x7000, 3, "/bin/c", true)));
    let child = registry.process(Pid(11)).unwrap();
    assert_eq!(paths(child), ["/bin/c"]);
    let description = child.description().unwrap();
    assert_eq!(description.comm.as_deref(), Some(b"c".as_slice()));
    assert_eq!(description.executable_name(), Some(b"c".as_slice()));
    assert_eq!(child.parent(), Some(Pid(10)));
    registry.apply(event(start_ns + 4, 11, exit(11)));
    assert_eq!(changes(&mut registry), ["-11"]);
    assert_eq!(registry.counters().process_reads, 1, "only the parent was read");
}

#[test]
fn a_mapping_that_cannot_be_executed_ends_what_was_there() {
    let tree = Tree::new();
    tree.add(10, 100, ONE_PAGE);
    let mut registry = tree.registry();
    registry.scan_all().unwrap();
    changes(&mut registry);
    let start_ns = now_ns();
    registry.apply(event(start_ns, 10, map(0x1000, 1, "/a", true)));
    registry.apply(event(start_ns, 10, map(0x9000, 1, "/a", false)));
    assert_eq!(changes(&mut registry), Vec::<String>::new(), "nothing has changed");
    registry.apply(event(start_ns, 10, map(0x1000, 1, "/a", false)));
    assert_eq!(changes(&mut registry), ["+10"]);
    assert_eq!(registry.process(Pid(10)).unwrap().mappings().len(), 0);
}

#[test]
fn events_from_before_a_reading_are_part_of_what_was_read() {
    let before_ns = now_ns();
    let tree = Tree::new();
    tree.add(10, 100, ONE_PAGE);
    let mut registry = tree.registry();
    registry.scan_all().unwrap();
    registry.apply(event(before_ns, 10, exec("x")));
    registry.apply(event(before_ns, 10, exit(10)));
    assert_eq!(paths(registry.process(Pid(10)).unwrap()), ["/a"]);
    assert_eq!(registry.counters().process_events_outdated, 2);
}

#[test]
fn a_number_that_another_process_got_is_another_process() {
    let tree = Tree::new();
    tree.add(10, 100, ONE_PAGE);
    let mut registry = tree.registry();
    registry.scan_all().unwrap();
    let first = registry.process(Pid(10)).unwrap().instance();
    changes(&mut registry);
    tree.add(10, 200, ONE_PAGE);
    registry.scan(Pid(10)).unwrap();
    assert_eq!(changes(&mut registry), ["-10", "+10"], "found by reading");
    let second = registry.process(Pid(10)).unwrap().instance();
    registry.apply(event(now_ns(), 10, fork(1)));
    assert_eq!(changes(&mut registry), ["-10"], "found by a fork whose exit was lost");
    let third = registry.process(Pid(10)).unwrap().instance();
    assert!(first < second && second < third);
}

#[test]
fn an_exec_changes_the_instance_of_a_process() {
    let tree = Tree::new();
    tree.add(10, 100, ONE_PAGE);
    let mut registry = tree.registry();
    registry.scan_all().unwrap();
    let before = registry.process(Pid(10)).unwrap().instance();
    registry.apply(event(now_ns(), 10, exec("other")));
    assert!(registry.process(Pid(10)).unwrap().instance() > before);
}

#[test]
fn replaced_mappings_are_distinguished_from_added_ones() {
    let tree = Tree::new();
    tree.add(10, 100, ONE_PAGE);
    let mut registry = tree.registry();
    registry.scan_all().unwrap();
    let start_ns = now_ns();
    assert!(!registry.apply(event(start_ns, 10, map(0x1000, 1, "/a", true))), "it is there already");
    assert!(!registry.apply(event(start_ns, 10, map(0x9000, 2, "/b", true))), "nothing was there");
    assert!(registry.apply(event(start_ns, 10, map(0x1000, 2, "/b", true))));
    assert!(registry.apply(event(start_ns, 10, map(0x9000, 0, "", false))));
}

#[test]
fn an_ended_process_is_known_until_its_exit_is_returned() {
    let tree = Tree::new();
    tree.add(10, 100, ONE_PAGE);
    let mut registry = tree.registry();
    registry.scan_all().unwrap();
    changes(&mut registry);
    let end_ns = now_ns();
    registry.apply(event(end_ns, 10, exit(10)));
    assert!(registry.process(Pid(10)).is_none());
    let ended = registry.process_or_ended(Pid(10)).unwrap();
    assert!(ended.was_alive_at(end_ns) && !ended.was_alive_at(end_ns + 1), "another one's number");
    assert_eq!(changes(&mut registry), ["-10"]);
    assert!(registry.process_or_ended(Pid(10)).is_none());
}

#[test]
fn lost_events_are_recovered_by_a_rescan() {
    let tree = Tree::new();
    tree.add(10, 100, ONE_PAGE);
    tree.add(11, 100, ONE_PAGE);
    let mut registry = tree.registry();
    registry.scan_all().unwrap();
    changes(&mut registry);
    tree.add(10, 100, "5000-6000 r-xp 00000000 08:01 2 /b\n");
    tree.remove(11);
    tree.add(12, 100, ONE_PAGE);
    registry.apply(event(now_ns(), 0, ProcessEventKind::Lost { count: 7 }));
    assert_eq!(registry.rescan_stale(), 0);
    assert_eq!(changes(&mut registry), ["-11", "+10", "+12"]);
    assert_eq!(paths(registry.process(Pid(10)).unwrap()), ["/b"]);
    assert_eq!(registry.counters().process_events_lost, 7);
}

#[test]
fn rescans_take_turns_within_their_limit() {
    let tree = Tree::new();
    (1..=30).for_each(|pid| tree.add(pid, 100, ONE_PAGE));
    let limits = RegistryLimits { rescans_per_second: 10, ..RegistryLimits::default() };
    let mut registry = Registry::new(tree.proc_root(), limits);
    (1..=30).for_each(|pid| registry.mark_stale(Pid(pid)));
    let waiting = registry.rescan_stale();
    assert!((19..=20).contains(&waiting), "{waiting}");
    (1..=10).for_each(|pid| registry.mark_stale(Pid(pid)));
    std::thread::sleep(std::time::Duration::from_millis(350));
    registry.rescan_stale();
    assert!(registry.process(Pid(11)).is_some(), "those that were read have to wait for the others");
}

#[test]
fn events_of_an_unknown_process_have_it_read() {
    let tree = Tree::new();
    tree.add(10, 100, ONE_PAGE);
    let mut registry = tree.registry();
    registry.apply(event(now_ns(), 10, map(0x9000, 9, "/z", true)));
    registry.apply(event(now_ns(), 20, fork(19)));
    registry.apply(event(now_ns(), 20, exec("y")));
    registry.rescan_stale();
    assert_eq!(paths(registry.process(Pid(10)).unwrap()), ["/a"]);
    assert!(registry.process(Pid(20)).is_some(), "an exec makes a rescan unnecessary");
}

#[test]
fn processes_outside_our_namespace_are_counted_only() {
    let mut registry = Tree::new().registry();
    for pid in [0, u32::MAX] {
        registry.apply(event(now_ns(), pid, exec("x")));
        registry.apply(event(now_ns(), pid, map(0x1000, 1, "/a", true)));
    }
    assert_eq!(registry.rescan_stale(), 0);
    assert_eq!(registry.processes().len(), 0);
    assert_eq!(registry.counters().process_events_outside, 4);
}

#[test]
fn too_many_processes_and_mappings_are_counted() {
    let tree = Tree::new();
    let maps: String = (1..100)
        .map(|page| format!("{:x}-{:x} r-xp 0 08:01 1 /a\n", page * 8192, page * 8192 + 4096))
        .collect();
    (1..=5).for_each(|pid| tree.add(pid, 100, &maps));
    let mapping_bytes = 100 * size_of::<ExecutableMapping>();
    let limits = RegistryLimits { processes: 3, mapping_bytes, ..RegistryLimits::default() };
    let mut registry = Registry::new(tree.proc_root(), limits);
    registry.scan_all().unwrap();
    assert_eq!(registry.processes().len(), 3);
    let kept: Vec<usize> = registry.processes().map(|process| process.mappings().len()).collect();
    let first = *kept.iter().max().unwrap();
    assert!((10..50).contains(&first), "{kept:?}");
    assert!(kept.iter().all(|kept| *kept > 0), "none takes more than half of what there is: {kept:?}");
    assert_eq!(registry.counters().processes_left_out, 2);
    assert!(registry.counters().mappings_left_out > 5 * 99 - 100);
}

#[test]
fn a_real_child_is_described_and_stays_so_after_its_end() {
    let mut command = Command::new("cat");
    command
        .env("OTEL_SERVICE_NAME", "shop")
        .env("OTEL_RESOURCE_ATTRIBUTES", "service.version=7")
        .env("SECRET", "hush");
    let started = std::time::SystemTime::now();
    let mut talker = Talker::start(&mut command);
    talker.say("ready");
    talker.hear();
    let mut registry = Registry::new(ProcRoot::default(), RegistryLimits::default());
    registry.scan(talker.pid()).unwrap();
    let alive = registry.describe(talker.pid()).unwrap();
    assert_eq!(alive.comm.as_deref(), Some(b"cat".as_slice()));
    assert!(alive.executable_path.as_deref().unwrap().ends_with(b"/cat"));
    assert_eq!(alive.owner_uid, Some(rustix::process::geteuid().as_raw()));
    assert_eq!(alive.namespaced_pids.first(), Some(&talker.pid().0));
    assert_eq!(alive.resource.service_name.as_deref(), Some("shop"));
    assert_eq!(alive.resource.attributes, [("service.version".into(), "7".into())]);
    assert!(!format!("{alive:?}").contains("hush"));
    let apart = match alive.started_at.unwrap().duration_since(started) {
        Ok(later) => later,
        Err(earlier) => earlier.duration(),
    };
    assert!(apart.as_millis() < 500, "{apart:?}");
    talker.child.kill().unwrap();
    talker.child.wait().unwrap();
    let pid = talker.pid();
    assert!(matches!(registry.scan(pid), Err(ProcfsError::Gone { .. })));
    let Some(Change::Exited(ended)) = registry.take_changes().pop() else { panic!("no exit") };
    assert_eq!(ended.description(), Some(alive));
}

#[test]
fn a_thousand_processes_are_scanned_quickly() {
    let tree = Tree::new();
    let own = std::fs::read_to_string("/proc/self/maps").unwrap();
    (1..=1000).for_each(|pid| tree.add(pid, 100, &own));
    let mut registry = tree.registry();
    let started = std::time::Instant::now();
    registry.scan_all().unwrap();
    assert_eq!(registry.processes().len(), 1000);
    assert!(started.elapsed().as_secs_f64() < 2.0, "{:?}", started.elapsed());
}

#[test]
fn what_is_known_of_mappings_is_wrong_after_an_exec_and_only_incomplete_after_a_first_one() {
    let mut registry = Tree::new().registry();
    assert!(!registry.apply(event(1, 7, exec("first"))), "nothing was mapped before");
    registry.apply(event(2, 7, map(0x1000, 1, "/first", true)));
    assert!(registry.apply(event(3, 7, exec("second"))));
}

#[test]
fn what_happens_while_a_process_is_read_is_taken_up_after_what_was_read() {
    let mut talker = Talker::start(Command::new("sh").args(["-c", "echo ready; read line"]));
    assert_eq!(talker.hear(), "ready");
    let pid = talker.pid();
    let mut registry = Registry::new(ProcRoot::default(), RegistryLimits::default());
    let scanner = registry.begin_scan(pid);
    registry.apply(event(1, pid.0, map(0x1000, 7, "/before", true)));
    let scanned = scanner.scan(pid);
    registry.apply(event(now_ns(), pid.0, map(0x2000, 8, "/meanwhile", true)));
    registry.end_scan(pid, scanned).unwrap();
    let known = paths(registry.process(pid).unwrap());
    assert!(known.contains(&"/meanwhile".to_owned()) && known.len() > 1, "{known:?}");
    assert!(!known.contains(&"/before".to_owned()), "{known:?}");

    // It executes another program, which its events report completely.
    let scanned = registry.begin_scan(pid).scan(pid);
    registry.apply(event(now_ns(), pid.0, exec("other")));
    registry.end_scan(pid, scanned).unwrap();
    assert_eq!(registry.process(pid).unwrap().mappings().len(), 0);

    // It exits.
    let scanned = registry.begin_scan(pid).scan(pid);
    registry.apply(event(now_ns(), pid.0, exit(pid.0)));
    registry.end_scan(pid, scanned).unwrap();
    assert!(registry.process(pid).is_none());

    // Nothing is known of it when it exits.
    let mut registry = Registry::new(ProcRoot::default(), RegistryLimits::default());
    let scanned = registry.begin_scan(pid).scan(pid);
    registry.apply(event(now_ns(), pid.0, exit(pid.0)));
    registry.end_scan(pid, scanned).unwrap();
    assert!(registry.process(pid).is_none());
    registry.begin_scan(pid);
    registry.abandon_scan(pid);
    assert!(registry.process(pid).is_none());
}
