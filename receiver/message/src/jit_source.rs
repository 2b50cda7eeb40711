//! Where a process's runtime publishes the names of the code that it generates.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use sidewinder_base::foreign::{ForeignProcess, ForeignReader};
use sidewinder_base::refusals::Refusals;
use sidewinder_process::tls::GlobalVariable;
use sidewinder_process::{
    ExecutableMapping, JIT_DESCRIPTOR, MappedFile, OpenError, PathTrust, Pid, ProcRoot, Process, ProcessDir,
    ProcessRoot, status_numbers,
};
use sidewinder_symbolize::{Image, JitMap, JitMapFormat};
use sidewinder_vm::{GENERATORS, Runtime, RuntimeSet, detect, find_runtimes};

use crate::gdb_interface::GdbJitInterface;

/// The maximum size that is read from `/proc/PID/status`.
const STATUS_BYTES: u64 = 16 << 10;
/// The maximum number of mapped files of one process that are kept. Java, with everything that it may load, has less than a
/// hundred.
const MAPPED_MAX: usize = 512;
/// The memory for the names of one file that [`JitSource::published`] counts, and how often it reads on in one file.
const PUBLISHED_BYTES_MAX: usize = 64 << 20;
const PUBLISHED_TURNS: usize = 32;

/// Where a process's runtime publishes the names of its code.
#[derive(Debug)]
pub struct JitSource {
    /// The PID of the process in its innermost PID namespace.
    own_pid: Pid,
    root: ProcessRoot,
    /// Jitdumps first, then the perf map.
    files: Vec<JitFile>,
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
    /// The source of a running process with these mappings; `None` if it has exited. If we may not follow its root, only files
    /// that our own root has too are found, and what is in its memory.
    pub fn new<'mapping>(
        pid: Pid,
        mappings: impl Iterator<Item = &'mapping ExecutableMapping>,
        reader: &ForeignReader,
    ) -> Option<Self> {
        let proc_root = ProcRoot::default();
        let status = ProcessDir::open(&proc_root, pid).ok()?.read_at_most("status", STATUS_BYTES).ok()?;
        let own_pid = namespace_pid(&status).unwrap_or(pid);
        let mappings: Vec<_> = mappings.collect();
        let mut files: Vec<_> =
            jitdumps(mappings.iter().copied()).map(|file| JitFile::Jitdump(Arc::clone(file))).collect();
        let root = if let Ok(root) = ProcessRoot::from_pid(&proc_root, pid) {
            files.push(JitFile::PerfMap(format!("tmp/perf-{own_pid}.map").into_bytes()));
            root
        } else {
            // Mapped files are identified by the kernel. A perf map is not, and in our root it may be of another process.
            ProcessRoot::own_in_place_of(&proc_root, pid).ok()?
        };
        let mut mapped = HashMap::new();
        for mapping in mappings {
            if let Some(file) = mapping.backing.file()
                && mapped.len() < MAPPED_MAX
            {
                mapped.insert(Arc::clone(file), mapping.clone());
            }
        }
        Some(Self {
            own_pid,
            root,
            files,
            memory: ForeignProcess::from_pid(pid, reader.clone()).ok()?,
            mapped,
        })
    }

    /// Whether the process has mapped no new file since the source was created.
    pub fn is_current_for(&self, process: &Process) -> bool {
        let mut mapped = process.mappings().filter_map(|mapping| mapping.backing.file());
        let is_complete = self.mapped.len() < MAPPED_MAX;
        jitdumps(process.mappings()).all(|dump| self.files.iter().any(|file| file.path() == dump.path()))
            && (!is_complete || mapped.all(|file| self.mapped.contains_key(file)))
    }

    /// Opens the existing files that are not open yet. `maps` gets one entry for each file. Files that must not be read are
    /// recorded in `refusals`.
    pub fn open(&self, maps: &mut Vec<Option<JitMap>>, budget_bytes: usize, refusals: &Refusals) {
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
    pub fn gdb_interface(&self, budget_bytes: usize) -> Option<GdbJitInterface> {
        let opened = self.root.open_mapped(self.mapped.keys().map(|file| &**file));
        let descriptors = opened.zip(self.mapped.values()).filter_map(|(opened, mapping)| {
            GlobalVariable::read(&opened.ok()?, JIT_DESCRIPTOR).ok()??.in_memory(mapping)
        });
        GdbJitInterface::new(descriptors.collect(), budget_bytes)
    }

    /// The runtime that generates the code of the process, by the symbols of the files that it maps; `None` if no known runtime
    /// does.
    pub fn find_generator(&self) -> Option<Runtime> {
        let opened = self.root.open_mapped(self.mapped.keys().map(|file| &**file));
        let found: HashSet<Runtime> = opened
            .filter_map(|file| find_runtimes(&file.ok()?).ok())
            .flatten()
            .map(|(runtime, _)| runtime)
            .collect();
        GENERATORS.into_iter().find(|generator| found.contains(generator))
    }

    /// Whether walks find the functions of a runtime once the files of the process have been read.
    pub fn is_walked(&self, runtime: Runtime) -> bool {
        let opened = self.root.open_mapped(self.mapped.keys().map(|file| &**file));
        let has_runtime = |file: &_| {
            find_runtimes(file).is_ok_and(|found| found.iter().any(|(found, _)| *found == runtime))
        };
        opened
            .flatten()
            .filter(has_runtime)
            .any(|file| detect(&file, RuntimeSet::ALL).is_ok_and(|found| found.is_some()))
    }

    /// The PID of the process in its innermost PID namespace, by which it names its own files.
    pub const fn own_pid(&self) -> Pid {
        self.own_pid
    }

    /// Reads the names that the process publishes now.
    pub fn published(&self) -> PublishedNames {
        let files = self.files.iter().map(|file| {
            let mut map = JitMap::new(self.open_file(file)?, file.format(), PUBLISHED_BYTES_MAX);
            // What can't be read has no names, and what is endless is read in part.
            let mut is_all_read = false;
            for _ in 0..PUBLISHED_TURNS {
                is_all_read |= map.refresh().map_err(OpenError::Io)?;
                if is_all_read {
                    break;
                }
            }
            Ok(map.functions())
        });
        let paths = self.files.iter().map(|file| match file {
            JitFile::Jitdump(mapped) => mapped.path().to_vec(),
            JitFile::PerfMap(path) => [b"/", &**path].concat(),
        });
        let mut interface = self.gdb_interface(PUBLISHED_BYTES_MAX);
        if let Some(interface) = &mut interface {
            interface.refresh(&self.memory);
        }
        PublishedNames {
            files: paths.zip(files).collect(),
            symbol_files: interface.map_or(0, |interface| interface.files()),
        }
    }

    /// The memory of the process.
    pub fn memory(&self) -> &ForeignProcess {
        &self.memory
    }
}

/// The names of generated code that a process publishes.
#[derive(Debug)]
pub struct PublishedNames {
    /// The paths at which files with names may be, in the process's root, and the functions in each of them.
    pub files: Vec<(Vec<u8>, Result<usize, OpenError>)>,
    /// Symbol files in memory, for debuggers.
    pub symbol_files: usize,
}

impl PublishedNames {
    /// Whether there is any name.
    pub fn any(&self) -> bool {
        self.symbol_files > 0 || self.files.iter().any(|(_, functions)| matches!(functions, Ok(1..)))
    }
}

/// The PID of a process in its innermost PID namespace, from `/proc/PID/status`.
fn namespace_pid(status: &[u8]) -> Option<Pid> {
    status_numbers(status, b"NSpid:").last().map(Pid)
}

/// The jitdumps that a process maps, so that profilers find them.
fn jitdumps<'mapping>(
    mappings: impl Iterator<Item = &'mapping ExecutableMapping>,
) -> impl Iterator<Item = &'mapping Arc<MappedFile>> {
    mappings.filter_map(|mapping| mapping.backing.file()).filter(|file| is_jitdump_path(file.path()))
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
