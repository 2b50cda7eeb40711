use std::sync::atomic::{AtomicU64, Ordering};
use std::{ptr, thread};

use sidewinder_address::Avma;
use sidewinder_bpf::{CPythonLayout, Opener, PublishedCPython, PublishedTlsLocation, TlsVector, VmFunction};
use sidewinder_process::{ExecutableMapping, FileTableLimits, ForeignMemory, Pid, ProcRoot};
use sidewinder_vm::{Code, Finding, Function, FunctionError, Inspection};

use super::*;

/// A runtime in this program.
#[derive(Debug)]
struct Toy;

/// Where its threads have their state; 0 until it is initialized.
static STATE_OFFSET: AtomicU64 = AtomicU64::new(0);

fn published(file: FileId, offset: i32) -> PublishedRuntime {
    PublishedRuntime::CPython(PublishedCPython {
        file: file.0,
        loop_ranges: Vec::new(),
        unlinked_ranges: Vec::new(),
        state: [None, Some(PublishedTlsLocation::Static { offset })],
        cpython: CPythonLayout::default(),
    })
}

impl LanguageRuntime for Toy {
    fn runtime(&self) -> WalkedRuntime {
        WalkedRuntime::CPython
    }

    fn bias_of(&self, _: &ExecutableMapping) -> Option<u64> {
        Some(0)
    }

    fn loop_code_at(&self, at: FileOffset) -> Option<LoopCode> {
        (at.0 < 8).then_some(LoopCode::OneFunction)
    }

    fn unlocated(&self, _: FileId, usual: Option<&PublishedRuntime>) -> LocatedRuntime {
        LocatedRuntime { published: usual.cloned(), functions: None }
    }

    fn locate(
        &self,
        file: FileId,
        process: &TargetProcess<'_>,
        _: TlsVector,
    ) -> Result<LocatedRuntime, LocateError> {
        let at = Avma(ptr::from_ref(&STATE_OFFSET).addr() as u64);
        match process.memory.word(at).map_err(LocateError::Unreadable)? {
            0 => Err(LocateError::NotFound("it is not initialized".into())),
            offset => Ok(LocatedRuntime {
                published: Some(published(file, i32::try_from(offset).unwrap())),
                functions: Some(Arc::new(ToyFunctions)),
            }),
        }
    }

    fn inspect(&self, _: &TargetProcess<'_>) -> io::Result<Inspection> {
        let (frames, names) = (Finding::ok("found"), Finding::ok("read"));
        Ok(Inspection { version: None, frames, names, next: None })
    }
}

#[derive(Debug)]
struct ToyFunctions;

impl RuntimeFunctions for ToyFunctions {
    fn runtime(&self) -> WalkedRuntime {
        WalkedRuntime::CPython
    }

    fn read(&self, _: &dyn ForeignMemory, _: VmFunction) -> Result<Code, FunctionError> {
        Ok(Code::Function(Function::method("Toy.", "main", "toy", &[(0, 1)])))
    }
}

/// A runtime is added by what it implements: the tracker knows no more of it.
#[test]
fn a_toy_is_located_once_it_is_initialized_and_known_at_once_in_the_next_process() {
    let reader = ForeignReader::start(&Opener::start().unwrap(), None).unwrap();
    let mut processes = ProcessTracker::new(reader.clone(), Arc::default(), 1 << 20);
    let pid = Pid(std::process::id());
    processes.scan(pid, Duration::from_secs(60)).unwrap();
    let process = processes.registry.process(pid).unwrap();
    let key = ProcessKey::from(process);
    let mut files = FileTable::new(ProcRoot::default(), FileTableLimits::default());
    let mut mappings = process.mappings();
    let file = mappings.find_map(|mapping| Some(files.identify(process, mapping)?.id)).unwrap();

    let mut tracker = RuntimeTracker::default();
    assert!(tracker.add_file(file, Arc::new(Toy)));
    let in_loop = VmCode { runtime: WalkedRuntime::CPython, code: LoopCode::OneFunction };
    assert_eq!([7, 8].map(|at| tracker.code_at(file, FileOffset(at))), [Some(in_loop), None]);
    assert!(tracker.published(process, &mut files, &reader).is_empty());
    assert!(tracker.take_unannounced(key).is_empty());

    STATE_OFFSET.store(24, Ordering::Relaxed);
    let deadline = Instant::now() + Duration::from_secs(60);
    let changed = loop {
        let changed = tracker.update(&processes);
        if !changed.is_empty() || Instant::now() > deadline {
            break changed;
        }
        thread::sleep(RETRY_INTERVAL);
    };
    assert_eq!(changed, [key]);
    assert_eq!(tracker.published(process, &mut files, &reader), [&published(file, 24)]);
    assert_eq!(tracker.take_unannounced(key).len(), 1);
    assert!(tracker.take_unannounced(key).is_empty(), "it was announced");

    // Until it has been located there, it is taken to be where it was in the last one.
    tracker.processes.clear();
    STATE_OFFSET.store(0, Ordering::Relaxed);
    assert_eq!(tracker.published(process, &mut files, &reader), [&published(file, 24)]);
    assert!(tracker.take_unannounced(key).is_empty());
}
