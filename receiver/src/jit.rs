//! Names of code that processes made while they ran.
//!
//! Runtimes write them where perf(1) looks for them: in `/tmp/perf-PID.map` of the process's own root and by its number in its
//! own PID namespace, or in a `jit-PID.dump` that they map. [`JitPlace`] is where, and is made while the process is there;
//! [`JitNames`] reads it when names are asked for, which may be later.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sidewinder_process::{Pid, ProcRoot, Process, ProcessDir, Root};
use sidewinder_symbolize::{JitForm, JitMap};

use crate::sampling::feed::ProcessKey;

/// What is read of `/proc/PID/status`.
const STATUS_BYTES: u64 = 16 << 10;
/// How long what was read counts as new. Code may have taken the place of other code meanwhile.
const REFRESH: Duration = Duration::from_secs(1);
/// After how long an address that nothing names is looked for again.
const RETRY: Duration = Duration::from_millis(200);
/// Of the room for all processes, the part that one may take.
const SHARE_OF_ONE: usize = 2;
/// Of all time, one part in so many may go into reading what processes write, beyond what may go at once: a file without
/// end would take all of it. Each process has an equal share of that.
const READING_SHARE: u32 = 8;
const READING_AT_ONCE: Duration = Duration::from_secs(2);

/// Whose code it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Runtime {
    CPython,
    Dotnet,
    Jvm,
    V8,
    Unknown,
}

impl Runtime {
    fn of_program(name: &[u8]) -> Self {
        match name {
            b"java" => Self::Jvm,
            b"node" | b"nodejs" => Self::V8,
            b"dotnet" => Self::Dotnet,
            name if name.starts_with(b"python") => Self::CPython,
            _ => Self::Unknown,
        }
    }
}

/// Where a process's runtime writes the names of its code.
#[derive(Debug)]
pub(crate) struct JitPlace {
    root: Root,
    /// Paths from the root, and in which form these files are.
    files: Vec<(Vec<u8>, JitForm)>,
    runtime: Runtime,
}

impl JitPlace {
    /// That of a process which is there.
    pub(crate) fn of(process: &Process, program: &[u8]) -> Option<Self> {
        let pid = process.pid();
        let proc_root = ProcRoot::default();
        let status = ProcessDir::open(&proc_root, pid).ok()?.read_at_most("status", STATUS_BYTES).ok()?;
        let map = format!("tmp/perf-{}.map", inner_pid(&status).unwrap_or(pid).0).into_bytes();
        let mut files: Vec<_> = dumps(process).map(|path| (path.to_vec(), JitForm::JitDump)).collect();
        files.push((map, JitForm::PerfMap));
        Some(Self { root: Root::of(&proc_root, pid).ok()?, files, runtime: Runtime::of_program(program) })
    }

    /// Whether the process has mapped no other jitdump since.
    pub(crate) fn is_still_of(&self, process: &Process) -> bool {
        dumps(process).all(|dump| self.files.iter().any(|(path, _)| path == dump))
    }

    fn open(&self, room_bytes: usize) -> Vec<JitMap> {
        let paths = self.files.iter().map(|(path, _)| path.clone());
        let opened = self.root.open(paths).zip(&self.files);
        opened.filter_map(|(file, (_, form))| Some(JitMap::new(file.ok()?, *form, room_bytes))).collect()
    }
}

/// The number of a process in its innermost PID namespace, from `/proc/PID/status`.
fn inner_pid(status: &[u8]) -> Option<Pid> {
    let line = status.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"NSpid:"))?;
    str::from_utf8(line).ok()?.split_ascii_whitespace().last()?.parse().ok().map(Pid)
}

/// The jitdumps that a process has mapped, which it does so that they are found: paths from the root.
fn dumps(process: &Process) -> impl Iterator<Item = &[u8]> {
    let paths = process.mappings().filter_map(|mapping| Some(mapping.backing.file()?.path()));
    paths.filter(|path| is_dump(path)).map(|path| path.strip_prefix(b"/").unwrap_or(path))
}

/// Whether a path is one that perf(1) would take for that of a jitdump.
fn is_dump(path: &[u8]) -> bool {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let number = name.strip_prefix(b"jit-").and_then(|rest| rest.strip_suffix(b".dump"));
    number.is_some_and(|number| !number.is_empty() && number.iter().all(u8::is_ascii_digit))
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct JitNames {
    processes: HashMap<ProcessKey, Known>,
    room_bytes: usize,
    /// Functions left out so far, those of forgotten processes too, and look-ups for which nothing could be read in time.
    cut: u64,
    began: Instant,
}

#[derive(Debug)]
struct Known {
    place: Arc<JitPlace>,
    maps: Vec<JitMap>,
    refreshed_at: Option<Instant>,
    /// For reading, so far.
    reading: Duration,
    used_at: Instant,
}

impl JitNames {
    /// Names that take `room_bytes` at most.
    pub(crate) fn new(room_bytes: usize) -> Self {
        Self { processes: HashMap::new(), room_bytes, cut: 0, began: Instant::now() }
    }

    pub(crate) fn learn(&mut self, process: ProcessKey, place: Arc<JitPlace>) {
        let known = Known {
            place,
            maps: Vec::new(),
            refreshed_at: None,
            reading: self.processes.get(&process).map_or(Duration::ZERO, |known| known.reading),
            used_at: Instant::now(),
        };
        self.processes.insert(process, known);
    }

    pub(crate) fn forget(&mut self, process: ProcessKey) {
        self.processes.remove(&process);
    }

    /// Functions left out for want of room or time, and what is in no form that is known.
    pub(crate) fn cut(&self) -> u64 {
        self.cut
    }

    /// The function at an address of a process, and whose code it is.
    pub(crate) fn name(&mut self, process: ProcessKey, address: u64) -> Option<(Arc<str>, Runtime)> {
        let known = self.processes.get_mut(&process)?;
        known.used_at = Instant::now();
        let is_known = known.find(address).is_some();
        if known.is_older(if is_known { REFRESH } else { RETRY }) {
            if self.may_read(process) {
                self.read(process);
            } else {
                self.cut += u64::from(!is_known);
            }
        }
        let known = self.processes.get(&process)?;
        Some((Arc::from(known.find(address)?), known.place.runtime))
    }

    /// Whether a process's share of time is not used up.
    fn may_read(&self, process: ProcessKey) -> bool {
        let time = READING_AT_ONCE + self.began.elapsed() / READING_SHARE;
        let processes = u32::try_from(self.processes.len()).unwrap_or(u32::MAX);
        self.processes.get(&process).is_some_and(|known| known.reading <= time / processes)
    }

    /// Takes up what a process has written since.
    fn read(&mut self, process: ProcessKey) {
        let began = Instant::now();
        self.make_room();
        let room_bytes = self.room_bytes / SHARE_OF_ONE;
        let Some(known) = self.processes.get_mut(&process) else { return };
        self.cut += known.refresh(room_bytes);
        known.reading += began.elapsed();
    }

    /// Forgets the names of the processes that were asked for longest ago, until another one fits.
    fn make_room(&mut self) {
        let held = |known: &Known| known.maps.iter().map(JitMap::heap_bytes).sum::<usize>();
        while self.processes.values().map(held).sum::<usize>()
            > self.room_bytes - self.room_bytes / SHARE_OF_ONE
        {
            let with_maps = self.processes.values_mut().filter(|known| !known.maps.is_empty());
            let Some(oldest) = with_maps.min_by_key(|known| known.used_at) else { break };
            oldest.maps.clear();
            oldest.refreshed_at = None;
        }
    }
}

impl Known {
    /// Whether what was read is at least so old.
    fn is_older(&self, age: Duration) -> bool {
        self.refreshed_at.is_none_or(|at| at.elapsed() >= age)
    }

    fn find(&self, address: u64) -> Option<&str> {
        self.maps.iter().find_map(|map| map.lookup(address))
    }

    /// Takes up what has been written since, and returns how much of it was left out.
    fn refresh(&mut self, room_bytes: usize) -> u64 {
        // A file may come late: some runtimes write it as they end.
        if self.maps.len() < self.place.files.len() {
            self.maps = self.place.open(room_bytes);
        }
        let mut cut = 0;
        for map in &mut self.maps {
            let before = map.cut();
            // What can't be read any more says what it said.
            let _ = map.refresh();
            cut += map.cut().saturating_sub(before);
        }
        self.refreshed_at = Some(Instant::now());
        cut
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_number_of_a_process_is_taken() {
        let status = b"Name:\tnode\nPid:\t4711\nNSpid:\t4711\t12\t1\nNSpgid:\t9\n";
        assert_eq!(inner_pid(status), Some(Pid(1)));
        assert_eq!(inner_pid(b"Name:\tnode\n"), None);
    }

    #[test]
    fn only_a_dump_is_taken_for_one() {
        assert!(is_dump(b"/app/jit-12.dump") && is_dump(b"/jit-1.dump"));
        for other in [&b"/app/jit-.dump"[..], b"/app/jit-x.dump", b"/app/jit-12.dump (deleted)", b"/jit-1"] {
            assert!(!is_dump(other));
        }
    }
}
