//! Where a process's runtime tells of the code that it makes.

use std::collections::HashMap;
use std::sync::Arc;

use sidewinder_process::tls::Variable;
use sidewinder_process::{
    ExecutableMapping, JIT_DESCRIPTOR, MappedFile, Pid, ProcRoot, Process, ProcessDir, ProcessMemory, Root,
};
use sidewinder_symbolize::{JitForm, JitMap};

use super::interface::Interface;

/// What is read of `/proc/PID/status`.
const STATUS_BYTES: u64 = 16 << 10;
/// Files of one process that are remembered. Java's, with all that it may load, are below a hundred.
const MAPPED_MAX: usize = 512;

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
    pub(super) files: Vec<(Vec<u8>, JitForm)>,
    pub(super) runtime: Runtime,
    memory: ProcessMemory,
    /// The files that the process has mapped, each with one of its mappings.
    mapped: HashMap<Arc<MappedFile>, ExecutableMapping>,
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
        let mut mapped = HashMap::new();
        for mapping in process.mappings() {
            if let Some(file) = mapping.backing.file()
                && mapped.len() < MAPPED_MAX
            {
                mapped.insert(Arc::clone(file), mapping.clone());
            }
        }
        Some(Self {
            root: Root::of(&proc_root, pid).ok()?,
            files,
            runtime: Runtime::of_program(program),
            memory: ProcessMemory::of(ProcessDir::open(&proc_root, pid).ok()?),
            mapped,
        })
    }

    /// Whether the process has mapped no other file since.
    pub(crate) fn is_still_of(&self, process: &Process) -> bool {
        let mut mapped = process.mappings().filter_map(|mapping| mapping.backing.file());
        let has_room = self.mapped.len() < MAPPED_MAX;
        dumps(process).all(|dump| self.files.iter().any(|(path, _)| path == dump))
            && (!has_room || mapped.all(|file| self.mapped.contains_key(file)))
    }

    /// Opens the files that are not open yet and are there: as many entries as there are files.
    pub(super) fn open(&self, maps: &mut Vec<Option<JitMap>>, room_bytes: usize) {
        maps.resize_with(self.files.len(), || None);
        let missing: Vec<_> = maps.iter_mut().zip(&self.files).filter(|(map, _)| map.is_none()).collect();
        let paths: Vec<_> = missing.iter().map(|(_, (path, _))| path.clone()).collect();
        for (file, (map, (_, form))) in self.root.open(paths.into_iter()).zip(missing) {
            *map = file.ok().map(|file| JitMap::new(file, *form, room_bytes));
        }
    }

    /// What the process has in its memory for debuggers, if a file that it has mapped defines the variable for that.
    pub(super) fn interface(&self, room_bytes: usize) -> Option<Interface> {
        let (paths, mappings): (Vec<_>, Vec<_>) = self
            .mapped
            .iter()
            .map(|(file, mapping)| (file.path().strip_prefix(b"/").unwrap_or(file.path()).to_vec(), mapping))
            .unzip();
        let defined = self.root.open(paths.into_iter()).zip(mappings).filter_map(|(file, mapping)| {
            Variable::read(&file.ok()?, JIT_DESCRIPTOR).ok()??.in_memory(mapping)
        });
        Interface::of(defined.collect(), room_bytes)
    }

    pub(super) fn memory(&self) -> &ProcessMemory {
        &self.memory
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
