use std::fs::File;
use std::process::{Child, Command, Stdio};

use sidewinder_address::Avma;
use sidewinder_base::foreign::{ForeignProcess, ForeignReader, ReadTarget};
use sidewinder_bpf::{Opener, VmForm, WalkedRuntime};
use sidewinder_process::{FileId, Pid};
use sidewinder_vm::RuntimeSet;

use super::process_runtimes::BACKOFF_FIRST;
use super::*;

const PYTHON: &str = "/usr/bin/python3";

struct Target(Child);

impl Target {
    /// A process that waits, whatever it runs.
    fn start() -> Self {
        Self(Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap())
    }

    fn key(&self) -> ProcessKey {
        ProcessKey { pid: self.0.id(), instance: 1 }
    }

    fn end(&mut self) {
        drop(self.0.stdin.take());
        self.0.wait().unwrap();
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.end();
    }
}

fn function(number: u64) -> VmFunction {
    let (runtime, form) = (WalkedRuntime::CPython, VmForm::Interpreted);
    VmFunction { runtime, object: Avma(number << 12), cookie: 1, place: 0, form }
}

fn stack(functions: std::ops::Range<u64>) -> Vec<RawFrame> {
    functions.map(|number| RawFrame::new(RawFrameKind::Vm(function(number)), 0, false, false)).collect()
}

/// Names with a process, and the reader that reads its memory; `None` if there is no CPython here.
fn names_of(target: &Target, budget_bytes: usize) -> Option<(VmNames, ForeignReader)> {
    let file = File::open(PYTHON).ok()?;
    let Some(runtime) = sidewinder_vm::detect(&file, RuntimeSet::ALL).unwrap() else {
        eprintln!("SKIPPED: {PYTHON} does not contain its interpreter");
        return None;
    };
    let reader = ForeignReader::start(&Opener::start().unwrap(), None).unwrap();
    let memory = ForeignProcess::from_pid(Pid(target.0.id()), reader.clone()).unwrap();
    let functions = runtime.unlocated(FileId(1), None).functions.unwrap();
    let source = RuntimeSource::new(functions, memory);
    let mut names = VmNames::new(budget_bytes, false, None);
    names.add_process(target.key(), Arc::new(source));
    Some((names, reader))
}

#[test]
fn functions_of_a_process_that_has_ended_are_counted_once() {
    let mut target = Target::start();
    let Some((mut names, _)) = names_of(&target, 1 << 20) else { return };
    target.end();
    // Stacks that share functions.
    for (stack_id, frames) in [stack(1..11), stack(5..21)].into_iter().enumerate() {
        for _ in 0..3 {
            names.read_stack(target.key(), stack_id as u64, &frames);
        }
    }
    assert_eq!(names.counts(), VmNameCounts { unreadable: 20, ..VmNameCounts::default() });
    assert_eq!(names.obstacle(target.key()), Some(VmObstacle::Ended));
    assert!(names.lookup(target.key(), function(1)).is_none());
    names.remove_process(target.key());
    assert!(names.functions.is_empty() && names.functions.bytes() == 0);
}

#[test]
fn functions_that_cant_be_read_are_counted_once_and_forgotten_in_order() {
    let target = Target::start();
    let entry_bytes = FunctionCache::<FunctionKey, Code>::entry_bytes(None);
    let Some((mut names, _)) = names_of(&target, 16 * entry_bytes) else { return };
    for number in 0..20 {
        names.read_stack(target.key(), number, &stack(number + 1..number + 2));
    }
    // Room for 16: for the 17th and the 20th, an eighth of the budget was freed, and room for it.
    let counts = VmNameCounts { unreadable: 20, forgotten: 6, ..VmNameCounts::default() };
    assert_eq!((names.counts(), names.obstacle(target.key())), (counts, None));
    assert!(names.functions.get(&FunctionKey::new(target.key(), function(20))).is_some());
    assert!(names.functions.get(&FunctionKey::new(target.key(), function(1))).is_none());
}

/// While another process is read, which takes as long as the sender exists, nothing else is.
fn keep_busy(reader: &ForeignReader) -> std::sync::mpsc::Sender<()> {
    let (release, released) = std::sync::mpsc::channel::<()>();
    let read = move || {
        let _ = released.recv();
    };
    reader.submit(ReadTarget::from_pid(Pid(std::process::id())).unwrap(), read).unwrap();
    release
}

#[test]
fn functions_that_take_longer_to_read_are_used_when_they_arrive() {
    let target = Target::start();
    let Some((mut names, reader)) = names_of(&target, 1 << 20) else { return };
    let release = keep_busy(&reader);
    let start = Instant::now();
    // The first read is waited for. The others are done at once, when it has ended.
    for number in 0..100 {
        names.read_stack(target.key(), number, &stack(number + 1..number + 3));
    }
    assert!(start.elapsed() < 50 * READ_TIMEOUT, "{:?}", start.elapsed());
    assert_eq!(names.counts(), VmNameCounts::default());
    assert!(names.is_pending(target.key(), function(1)) && names.is_pending(target.key(), function(101)));
    drop(release);
    while names.is_pending(target.key(), function(1)) {
        assert!(names.lookup(target.key(), function(1)).is_none(), "it is no function");
    }
    names.read_stack(target.key(), 100, &stack(1..102));
    assert_eq!(names.counts(), VmNameCounts { unreadable: 101, ..VmNameCounts::default() });
    assert!(!names.is_pending(target.key(), function(101)));
}

#[test]
fn a_process_that_cant_be_read_is_tried_again_soon_and_then_less_often() {
    let target = Target::start();
    let Some((mut names, _reader)) = names_of(&target, 1 << 20) else { return };
    let process = target.key();
    let wanted: Vec<_> = (1..=2 * BATCH_MAX as u64).map(function).collect();
    let mut backoffs = Vec::new();
    for _ in 0..9 {
        assert!(!names.add_read(process, Err(ReadFailure::TimedOut), &wanted));
        let state = &names.processes[&process];
        backoffs.push(state.backoff_until.unwrap().duration_since(Instant::now()).as_millis().div_ceil(100));
        assert_eq!(state.postponed.len(), BATCH_MAX, "they are bounded");
    }
    assert_eq!(backoffs, [1, 2, 4, 8, 16, 32, 64, 100, 100], "tenths of a second");
    names.read_stack(process, 1, &stack(1..2));
    assert_eq!(names.counts(), VmNameCounts::default(), "it is not read yet");
    names.processes.get_mut(&process).unwrap().backoff_until = None;
    names.read_stack(process, 1, &stack(1..2));
    assert_eq!(names.counts().unreadable, BATCH_MAX as u64, "with those that were postponed");
    assert_eq!(names.processes[&process].next_backoff, BACKOFF_FIRST);
}
