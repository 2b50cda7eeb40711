//! Where a process's runtime publishes the names of the code that it generates.

use std::collections::HashMap;
use std::sync::Arc;

use sidewinder_process::tls::GlobalVariable;
use sidewinder_process::{
    ExecutableMapping, JIT_DESCRIPTOR, MappedFile, OpenError, PathTrust, Pid, ProcRoot, Process, ProcessDir,
    ProcessRoot,
};
use sidewinder_symbolize::{Image, JitMap, JitMapFormat};

use super::gdb_interface::GdbJitInterface;
use crate::foreign::{ForeignProcess, ForeignReader};
use crate::refusals::Refusals;

/// The maximum size that is read from `/proc/PID/status`.
const STATUS_BYTES: u64 = 16 << 10;
/// The maximum number of mapped files of one process that are kept. Java, with everything that it may load, has less than a
/// hundred.
const MAPPED_MAX: usize = 512;

/// The runtime that generated code.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Runtime {
    CPython,
    Dotnet,
    Jvm,
    V8,
    Unknown,
}

impl Runtime {
    fn from_program_name(name: &[u8]) -> Self {
        match name {
            b"java" => Self::Jvm,
            b"node" | b"nodejs" => Self::V8,
            b"dotnet" => Self::Dotnet,
            name if name.starts_with(b"python") => Self::CPython,
            _ => Self::Unknown,
        }
    }
}

/// Where a process's runtime publishes the names of its code.
#[derive(Debug)]
pub(crate) struct JitSource {
    root: ProcessRoot,
    /// Jitdumps first, then the perf map.
    files: Vec<JitFile>,
    pub(super) runtime: Runtime,
    memory: ForeignProcess,
    /// The files that the process has mapped, each with one of its mappings.
    mapped: HashMap<Arc<MappedFile>, ExecutableMapping>,
}

/// A file with the names of a runtime's code.
#[derive(Debug)]
enum JitFile {
    /// A file that the process maps, so that profilers find it. The kernel identifies the file.
    Jitdump(Arc<MappedFile>),
    /// A path relative to the root. It doesn't say who wrote the file.
    PerfMap(Vec<u8>),
}

impl JitFile {
    fn path(&self) -> &[u8] {
        match self {
            Self::Jitdump(file) => file.path(),
            Self::PerfMap(path) => path,
        }
    }

    const fn format(&self) -> JitMapFormat {
        match self {
            Self::Jitdump(_) => JitMapFormat::JitDump,
            Self::PerfMap(_) => JitMapFormat::PerfMap,
        }
    }
}

impl JitSource {
    /// The source of a running process; `None` if it has exited. If we may not follow its root, only files that our own root
    /// has too are found, and what is in its memory.
    pub(crate) fn from_process(process: &Process, program: &[u8], reader: &ForeignReader) -> Option<Self> {
        let pid = process.pid();
        let proc_root = ProcRoot::default();
        let status = ProcessDir::open(&proc_root, pid).ok()?.read_at_most("status", STATUS_BYTES).ok()?;
        let mut files: Vec<_> = jitdumps(process).map(|file| JitFile::Jitdump(Arc::clone(file))).collect();
        let root = if let Ok(root) = ProcessRoot::from_pid(&proc_root, pid) {
            let perf_map = format!("tmp/perf-{}.map", namespace_pid(&status).unwrap_or(pid).0);
            files.push(JitFile::PerfMap(perf_map.into_bytes()));
            root
        } else {
            // Mapped files are identified by the kernel. A perf map is not, and in our root it may be of another process.
            ProcessRoot::own_in_place_of(&proc_root, pid).ok()?
        };
        let mut mapped = HashMap::new();
        for mapping in process.mappings() {
            if let Some(file) = mapping.backing.file()
                && mapped.len() < MAPPED_MAX
            {
                mapped.insert(Arc::clone(file), mapping.clone());
            }
        }
        Some(Self {
            root,
            files,
            runtime: Runtime::from_program_name(program),
            memory: ForeignProcess::from_pid(pid, reader.clone()).ok()?,
            mapped,
        })
    }

    /// Whether the process has mapped no new file since the source was created.
    pub(crate) fn is_current_for(&self, process: &Process) -> bool {
        let mut mapped = process.mappings().filter_map(|mapping| mapping.backing.file());
        let is_complete = self.mapped.len() < MAPPED_MAX;
        jitdumps(process).all(|dump| self.files.iter().any(|file| file.path() == dump.path()))
            && (!is_complete || mapped.all(|file| self.mapped.contains_key(file)))
    }

    /// Opens the existing files that are not open yet. `maps` gets one entry for each file. Files that must not be read are
    /// recorded in `refusals`.
    pub(super) fn open(&self, maps: &mut Vec<Option<JitMap>>, budget_bytes: usize, refusals: &Refusals) {
        maps.resize_with(self.files.len(), || None);
        for (map, file) in maps.iter_mut().zip(&self.files).filter(|(map, _)| map.is_none()) {
            match self.open_file(file) {
                Ok(image) => *map = Some(JitMap::new(image, file.format(), budget_bytes)),
                Err(error) => refusals.record(self.root.pid(), file.path(), &error),
            }
        }
    }

    fn open_file(&self, file: &JitFile) -> Result<Image, OpenError> {
        match file {
            JitFile::Jitdump(file) => {
                let opened = self.root.open_mapped([&**file].into_iter()).next();
                let opened = opened.unwrap_or(Err(OpenError::NotFound))?;
                opened.file().map(|file| Image::from(Arc::clone(file))).ok_or(OpenError::NotFound)
            }
            JitFile::PerfMap(path) => {
                let reader = self.root.credentials()?;
                let trust = PathTrust::Named { reader: &reader };
                let mut opened = self.root.open([path.clone()].into_iter(), trust);
                opened.next().unwrap_or(Err(OpenError::NotFound)).map(Image::from)
            }
        }
    }

    /// The debugger interface of the process, if a file that it maps defines the descriptor variable.
    pub(super) fn gdb_interface(&self, budget_bytes: usize) -> Option<GdbJitInterface> {
        let opened = self.root.open_mapped(self.mapped.keys().map(|file| &**file));
        let descriptors = opened.zip(self.mapped.values()).filter_map(|(opened, mapping)| {
            GlobalVariable::read(&opened.ok()?, JIT_DESCRIPTOR).ok()??.in_memory(mapping)
        });
        GdbJitInterface::new(descriptors.collect(), budget_bytes)
    }

    pub(super) fn memory(&self) -> &ForeignProcess {
        &self.memory
    }
}

/// The PID of a process in its innermost PID namespace, from `/proc/PID/status`.
fn namespace_pid(status: &[u8]) -> Option<Pid> {
    let line = status.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"NSpid:"))?;
    str::from_utf8(line).ok()?.split_ascii_whitespace().last()?.parse().ok().map(Pid)
}

/// The jitdumps that a process maps, so that profilers find them.
fn jitdumps(process: &Process) -> impl Iterator<Item = &Arc<MappedFile>> {
    process
        .mappings()
        .filter_map(|mapping| mapping.backing.file())
        .filter(|file| is_jitdump_path(file.path()))
}

/// Whether perf(1) would treat a path as that of a jitdump.
fn is_jitdump_path(path: &[u8]) -> bool {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let pid = name.strip_prefix(b"jit-").and_then(|rest| rest.strip_suffix(b".dump"));
    pid.is_some_and(|pid| !pid.is_empty() && pid.iter().all(u8::is_ascii_digit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_pid_of_a_process_is_used() {
        let status = b"Name:\tnode\nPid:\t4711\nNSpid:\t4711\t12\t1\nNSpgid:\t9\n";
        assert_eq!(namespace_pid(status), Some(Pid(1)));
        assert_eq!(namespace_pid(b"Name:\tnode\n"), None);
    }

    #[test]
    fn only_jitdump_paths_are_recognized() {
        assert!(is_jitdump_path(b"/app/jit-12.dump") && is_jitdump_path(b"/jit-1.dump"));
        for other in [&b"/app/jit-.dump"[..], b"/app/jit-x.dump", b"/app/jit-12.dump (deleted)", b"/jit-1"] {
            assert!(!is_jitdump_path(other));
        }
    }
}
