//! The search for the debug files of a binary: first in the operator's directories, then in the root of the process that
//! maps it.
//!
//! Runs on the threads that build tables. Input: a binary and its references to debug files. Output: open files that are
//! verified to belong to it.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use object::{Object as _, ObjectSection as _, ReadCache, ReadRef};
use sidewinder_base::refusals::Refusals;
use sidewinder_process::{Credentials, OpenError, PathTrust, Pid, ProcRoot, ProcessRoot};
use sidewinder_symbolize::Image;
use sidewinder_unwind::debug_file::{AlternateReference, DebugFileMatch, DebugFileReference};

use crate::SeekableContent;
use crate::debuginfod::{BuildIdText, Debuginfod, Fetched};

/// The largest debug file that is read to verify its checksum. Verifying a build ID needs no read of the file.
const CHECKSUM_BYTES_MAX: u64 = 256 << 20;
/// How many search results are cached. When the cache is full, it is cleared.
const CACHED_MAX: usize = 4096;
/// Where distributions install debug files.
const DEFAULT_DIRECTORY: &[u8] = b"usr/lib/debug";

/// A debug file, and its alternate file (`.gnu_debugaltlink`), with the debug information that it shares with others.
#[derive(Clone, Debug)]
pub struct DebugFiles {
    /// Open for reading, and verified to belong to the binary.
    pub file: Arc<File>,
    pub(crate) alternate: Option<Arc<File>>,
    /// See [`has_split_units`].
    has_split_units: bool,
}

/// The separate files with a binary's debug information.
#[derive(Clone, Default, Debug)]
pub struct Companions {
    /// The debug file, if one was found.
    pub debug: Option<Arc<DebugFiles>>,
    /// The binary's location in the root of a process, if debug information may be split off into files there.
    split: Option<Arc<BinaryLocation>>,
}

impl Companions {
    /// These, or the debug file of a server if neither the binary nor its debug file has debug information. Waits for servers.
    pub fn or_downloaded<'data, R: ReadRef<'data>>(
        self,
        file: &object::File<'data, R>,
        roots: &DebugRoots,
    ) -> Self {
        let downloaded = roots.debuginfod.as_ref().and_then(|servers| {
            if has_debug_info(file) || self.has_debug_info() {
                return None;
            }
            let id = BuildIdText::new(&hex::encode(file.build_id().ok()??))?;
            servers.wait(&id)
        });
        match downloaded {
            Some(downloaded) => self.with_downloaded(&downloaded),
            None => self,
        }
    }

    /// These, with the debug file of a server instead of any other.
    fn with_downloaded(self, downloaded: &Fetched) -> Self {
        let Fetched { file, alternate } = downloaded.clone();
        Self { debug: Some(Arc::new(DebugFiles { file, alternate, has_split_units: false })), ..self }
    }

    /// Whether the debug file has debug information. It may only have symbols.
    pub fn has_debug_info(&self) -> bool {
        self.debug.as_ref().is_some_and(|debug| {
            let cache = ReadCache::new(SeekableContent::new(&*debug.file));
            object::File::parse(&cache).is_ok_and(|file| has_debug_info(&file))
        })
    }

    /// The debug file.
    pub fn debug_image(&self) -> Option<Image> {
        Some(Image::from(Arc::clone(&self.debug.as_ref()?.file)))
    }

    /// The alternate file of the debug file.
    pub fn alternate_image(&self) -> Option<Image> {
        Some(Image::from(Arc::clone(self.debug.as_ref()?.alternate.as_ref()?)))
    }

    /// Opens a file with split-off debug information, in our own root or in that of the process. The binary states the path,
    /// so in either root only files are opened that the process itself could read.
    pub fn open_split(&self, path: &[u8], roots: &DebugRoots) -> Option<File> {
        let location = self.split.as_ref()?;
        let process_root = location.root.as_ref()?;
        let credentials = process_root.credentials().ok()?;
        let path = path.strip_prefix(b"/").unwrap_or(path);
        [roots.own.as_ref(), Some(process_root)]
            .into_iter()
            .flatten()
            .find_map(|root| {
                let trust = location.trust(&credentials);
                RootSearch { root, trust, refusals: &roots.refusals }.open(vec![path.to_vec()]).next()
            })
            .map(|(_, file)| file)
    }
}

/// The state of the search for a binary's debug file.
#[derive(Clone, Debug)]
pub enum DebugFile {
    /// Not searched yet.
    Unsearched(Arc<DebugRoots>, Option<Arc<BinaryLocation>>),
    /// Searched.
    Searched(Companions),
}

/// The roots that are searched for every binary: our own, that of the machine, and the directories that the user configures.
/// A result is valid for every binary with the same build ID.
#[derive(Debug, Default)]
pub struct DebugRoots {
    own: Option<ProcessRoot>,
    machine: Option<ProcessRoot>,
    directories: Vec<Vec<u8>>,
    cache: Mutex<HashMap<DebugFileReference, Option<Weak<DebugFiles>>>>,
    /// The record of files that were refused: debug files, and other files that processes name.
    refusals: Arc<Refusals>,
    /// Servers to ask for what is nowhere here. Tables are built without them.
    debuginfod: Option<Debuginfod>,
}

impl DebugRoots {
    /// Opens the roots that we have permission for. `directories` are absolute paths in our own root.
    pub fn open<P: AsRef<std::path::Path>>(directories: impl IntoIterator<Item = P>) -> Self {
        let identity = |path: &str| std::fs::metadata(path).ok().map(|root| (root.dev(), root.ino()));
        let is_another = identity("/proc/1/root") != identity("/");
        let machine =
            if is_another { ProcessRoot::from_pid(&ProcRoot::default(), Pid(1)).ok() } else { None };
        let bytes = |path: P| path.as_ref().as_os_str().as_encoded_bytes().to_vec();
        Self {
            own: ProcessRoot::own().ok(),
            machine,
            directories: directories.into_iter().map(bytes).collect(),
            cache: Mutex::default(),
            refusals: Arc::default(),
            debuginfod: None,
        }
    }

    /// These, and servers that have what is in none of them.
    pub fn with_servers(self, debuginfod: Option<Debuginfod>) -> Self {
        Self { debuginfod, ..self }
    }

    /// The servers that are asked for debug files.
    pub fn debuginfod(&self) -> Option<&Debuginfod> {
        self.debuginfod.as_ref()
    }

    /// The record of refused files.
    pub fn refusals(&self) -> &Arc<Refusals> {
        &self.refusals
    }

    fn find(&self, reference: &DebugFileReference, directory: &[u8]) -> Option<Arc<DebugFiles>> {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        match cache.get(reference) {
            Some(None) => return None,
            Some(Some(known)) => {
                if let Some(files) = known.upgrade() {
                    return Some(files);
                }
            }
            None => {}
        }
        let below = |debug_directory: &[u8]| reference.candidates_below(debug_directory, directory);
        let configured = self.directories.iter().flat_map(|debug_directory| below(debug_directory)).flatten();
        let default = || below(DEFAULT_DIRECTORY).into_iter().flatten();
        let in_own = configured.chain(default()).collect();
        let refusals = &*self.refusals;
        let files = self
            .own
            .as_ref()
            .and_then(|root| {
                RootSearch { root, trust: PathTrust::Operator, refusals }.find(in_own, reference)
            })
            .or_else(|| {
                // In a pod the first process may belong to any user.
                let root = self.machine.as_ref()?;
                let reader = root.credentials().ok()?;
                let trust = PathTrust::Proven { reader: &reader, binary_owner: None };
                RootSearch { root, trust, refusals }.find(default().collect(), reference)
            })
            .map(Arc::new);
        if cache.len() >= CACHED_MAX {
            cache.clear();
        }
        cache.insert(reference.clone(), files.as_ref().map(Arc::downgrade));
        files
    }
}

/// The location of a binary: the root and the directory that it is in, and its owner.
#[derive(Debug)]
pub struct BinaryLocation {
    root: Option<ProcessRoot>,
    directory: Box<[u8]>,
    owner: Option<u32>,
}

impl BinaryLocation {
    fn new(root: Option<ProcessRoot>, path: &[u8], owner: Option<u32>) -> Self {
        let directory = path.iter().rposition(|byte| *byte == b'/').map_or(&[][..], |slash| &path[..slash]);
        Self { root, directory: directory.into(), owner }
    }

    /// How far files that the binary names are trusted.
    const fn trust<'a>(&self, reader: &'a Credentials) -> PathTrust<'a> {
        PathTrust::Proven { reader, binary_owner: self.owner }
    }
}

impl DebugFile {
    /// Whether a separate file was found, which may contribute to the file's table.
    pub fn has_debug(&self) -> bool {
        matches!(self, Self::Searched(companions) if companions.debug.is_some())
    }

    /// The debug file of a binary with this path in the root of a process, and this owner.
    pub fn from_process(pid: Pid, path: &[u8], owner: Option<u32>, roots: &Arc<DebugRoots>) -> Self {
        let root = ProcessRoot::from_pid(&ProcRoot::default(), pid).ok();
        Self::Unsearched(Arc::clone(roots), Some(Arc::new(BinaryLocation::new(root, path, owner))))
    }

    /// The debug file of a binary with this absolute path in our own root, and this owner.
    pub fn from_own_root(path: &[u8], owner: Option<u32>) -> Self {
        let location = BinaryLocation::new(ProcessRoot::own().ok(), path, owner);
        Self::Unsearched(Arc::default(), Some(Arc::new(location)))
    }

    /// The companions of a binary with this content. Callers keep the first result, since it decides how the table is split.
    ///
    /// A file that others could have put into the root of the process is used only if the operator's directories have none.
    pub fn find<'data, R: ReadRef<'data>>(&self, file: &object::File<'data, R>) -> Companions {
        match self {
            Self::Searched(companions) => companions.clone(),
            Self::Unsearched(roots, location) => {
                let debug = location.as_ref().and_then(|location| {
                    let reference = DebugFileReference::from_file(file)?;
                    roots.find(&reference, &location.directory).or_else(|| {
                        let paths = reference.candidates(&location.directory).collect();
                        let root = location.root.as_ref()?;
                        let credentials = root.credentials().ok()?;
                        let search = RootSearch {
                            root,
                            trust: location.trust(&credentials),
                            refusals: &roots.refusals,
                        };
                        search.find(paths, &reference).map(Arc::new)
                    })
                });
                let is_split =
                    has_split_units(file) || debug.as_ref().is_some_and(|debug| debug.has_split_units);
                Companions { debug, split: location.clone().filter(|_| is_split) }
            }
        }
    }
}

/// Whether a file has lines and inlined calls.
pub fn has_debug_info<'data, R: ReadRef<'data>>(file: &object::File<'data, R>) -> bool {
    file.section_by_name(".debug_info").is_some_and(|section| section.size() > 0)
}

/// Whether units of a file's debug information may be split off into other files, with their addresses in this one.
fn has_split_units<'data, R: ReadRef<'data>>(file: &object::File<'data, R>) -> bool {
    file.section_by_name(".debug_addr").is_some()
}

/// A search in one root, with the trust in its files.
struct RootSearch<'a> {
    root: &'a ProcessRoot,
    trust: PathTrust<'a>,
    refusals: &'a Refusals,
}

impl<'a> RootSearch<'a> {
    /// Opens the files at these paths that exist and that we are allowed to read.
    fn open(&self, paths: Vec<Vec<u8>>) -> impl Iterator<Item = (Vec<u8>, File)> + use<'a> {
        let (pid, refusals) = (self.root.pid(), self.refusals);
        let opened = self.root.open(paths.clone().into_iter(), self.trust);
        paths.into_iter().zip(opened).filter_map(move |(path, opened): (_, Result<_, OpenError>)| {
            let file = opened.inspect_err(|error| refusals.record(pid, &path, error)).ok()?;
            Some((path, file))
        })
    }

    /// The first of the files at these paths that is verified to match the reference.
    fn find(&self, paths: Vec<Vec<u8>>, reference: &DebugFileReference) -> Option<DebugFiles> {
        let mut opened = self.open(paths);
        let (path, file) = opened.find(|(_, file)| matches_reference(reference, file).unwrap_or(false))?;
        let directory = path.iter().rposition(|byte| *byte == b'/').and_then(|slash| path.get(..slash));
        let alternate = self.alternate_of(&file, directory.unwrap_or_default()).map(Arc::new);
        let has_split_units = object::File::parse(&ReadCache::new(SeekableContent::new(&file)))
            .is_ok_and(|file| has_split_units(&file));
        Some(DebugFiles { file: Arc::new(file), alternate, has_split_units })
    }

    /// The alternate file of a debug file that is in `directory`.
    fn alternate_of(&self, file: &File, directory: &[u8]) -> Option<File> {
        let cache = ReadCache::new(SeekableContent::new(file));
        let reference = AlternateReference::from_file(&object::File::parse(&cache).ok()?)?;
        let mut opened = self.open(reference.candidates(None, directory).collect());
        let found = opened.find(|(_, file)| {
            let cache = ReadCache::new(SeekableContent::new(file));
            object::File::parse(&cache).is_ok_and(|candidate| reference.matches(&candidate))
        });
        found.map(|(_, file)| file)
    }
}

/// Whether a file matches a reference; `None`: it can't be read.
fn matches_reference(reference: &DebugFileReference, file: &File) -> Option<bool> {
    let cache = ReadCache::new(SeekableContent::new(file));
    match reference.verify(&object::File::parse(&cache).ok()?) {
        DebugFileMatch::BuildId => Some(true),
        DebugFileMatch::Mismatch => Some(false),
        DebugFileMatch::Crc(_) if file.metadata().ok()?.len() > CHECKSUM_BYTES_MAX => Some(false),
        DebugFileMatch::Crc(stated) => Some(crc32(file)? == stated),
    }
}

fn crc32(file: &File) -> Option<u32> {
    use std::io::{Seek as _, SeekFrom};

    let mut file = file;
    file.seek(SeekFrom::Start(0)).ok()?;
    let mut file = file.take(CHECKSUM_BYTES_MAX);
    let mut hasher = crc32fast::Hasher::new();
    let mut bytes = vec![0; 64 << 10];
    loop {
        match file.read(&mut bytes).ok()? {
            0 => return Some(hasher.finalize()),
            read => hasher.update(bytes.get(..read)?),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use super::*;

    /// Builds a program without unwind information and its debug file, in a directory.
    fn split_program(options: &[&str]) -> Option<tempfile::TempDir> {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
        fs::write(path("p.c"), "int main(void) { return 0; }").unwrap();
        let run = |command: &str, arguments: &[&str]| {
            Command::new(command).args(arguments).status().is_ok_and(|status| status.success())
        };
        let link = format!("--add-gnu-debuglink={}", path("p.debug"));
        let common = ["-g", "-fno-asynchronous-unwind-tables", "-o"];
        let is_built = run("gcc", &[&common[..], &[&*path("p")], options, &[&*path("p.c")]].concat())
            && run("objcopy", &["--only-keep-debug", &path("p"), &path("p.debug")])
            && run("objcopy", &["--strip-all", &link, &path("p")]);
        if !is_built {
            eprintln!("SKIPPED: gcc and objcopy don't make a program and its debug file here");
        }
        is_built.then_some(directory)
    }

    fn finds_debug_file(directory: &tempfile::TempDir) -> bool {
        let program = directory.path().join("p");
        let bytes = fs::read(&program).unwrap();
        let debug_file = DebugFile::from_own_root(program.to_str().unwrap().as_bytes(), None);
        debug_file.find(&object::File::parse(&*bytes).unwrap()).debug.is_some()
    }

    #[test]
    fn a_debug_file_beside_its_program_is_found_by_build_id_and_by_checksum() {
        for options in [["-Wl,--build-id"], ["-Wl,--build-id=none"]] {
            let Some(directory) = split_program(&options) else { return };
            assert!(finds_debug_file(&directory), "{options:?}");
        }
    }

    #[test]
    fn a_debug_file_whose_content_has_changed_is_not_used() {
        let Some(directory) = split_program(&["-Wl,--build-id=none"]) else { return };
        let debug = directory.path().join("p.debug");
        let mut bytes = fs::read(&debug).unwrap();
        bytes.push(0);
        fs::write(&debug, bytes).unwrap();
        assert!(!finds_debug_file(&directory));
    }

    /// The build ID of a file in hexadecimal, as in paths.
    fn build_id_of(program: &std::path::Path) -> String {
        let bytes = fs::read(program).unwrap();
        let file = object::File::parse(&*bytes).unwrap();
        let id = object::Object::build_id(&file).unwrap().unwrap();
        hex::encode(id)
    }

    #[test]
    fn a_debug_file_in_a_configured_directory_is_searched_once() {
        let Some(directory) = split_program(&["-Wl,--build-id"]) else { return };
        let program = directory.path().join("p");
        let id = build_id_of(&program);
        let configured = tempfile::tempdir().unwrap();
        let below = configured.path().join(".build-id").join(&id[..2]);
        fs::create_dir_all(&below).unwrap();
        let debug_path = below.join(format!("{}.debug", &id[2..]));
        fs::rename(directory.path().join("p.debug"), &debug_path).unwrap();

        let pid = Pid(std::process::id());
        let path = program.to_str().unwrap().as_bytes();
        let bytes = fs::read(&program).unwrap();
        let file = object::File::parse(&*bytes).unwrap();
        let find =
            |roots: &Arc<DebugRoots>| DebugFile::from_process(pid, path, None, roots).find(&file).debug;
        assert!(find(&Arc::new(DebugRoots::open::<&str>([]))).is_none(), "the directory is not configured");
        let roots = Arc::new(DebugRoots::open([configured.path()]));
        let found = find(&roots).unwrap();
        assert!(Arc::ptr_eq(&found, &find(&roots).unwrap()), "the result is cached");
        // A failed search is cached too.
        let roots_before_install = Arc::new(DebugRoots::open([configured.path()]));
        let hidden = debug_path.with_extension("hidden");
        fs::rename(&debug_path, &hidden).unwrap();
        assert!(find(&roots_before_install).is_none());
        fs::rename(&hidden, &debug_path).unwrap();
        assert!(find(&roots_before_install).is_none());
        assert!(find(&Arc::new(DebugRoots::open([configured.path()]))).is_some());
    }

    #[test]
    fn an_alternate_file_is_found_by_its_path_and_only_with_its_build_id() {
        let Some(directory) = split_program(&["-Wl,--build-id"]) else { return };
        let at = |name: &str| directory.path().join(name);
        let run = |command: &str, arguments: &[&str]| {
            let status = Command::new(command).args(arguments).current_dir(directory.path()).status();
            assert!(status.unwrap().success());
        };
        run("gcc", &["-Wl,--build-id=0x0123456789", "-o", "shared", "p.c"]);
        for (id, is_found) in [(&b"\x01\x23\x45\x67\x89"[..], true), (&b"\x01\x23\x45\x67\x88"[..], false)] {
            fs::write(at("link"), [&b"./shared\0"[..], id].concat()).unwrap();
            run("objcopy", &["--add-section", ".gnu_debugaltlink=link", "p.debug", "linked.debug"]);
            fs::copy(at("linked.debug"), at("p.debug")).unwrap();
            run("objcopy", &["--remove-section", ".gnu_debugaltlink", "p.debug", "plain.debug"]);
            let bytes = fs::read(at("p")).unwrap();
            let file = object::File::parse(&*bytes).unwrap();
            let found = DebugFile::from_own_root(at("p").to_str().unwrap().as_bytes(), None)
                .find(&file)
                .debug
                .unwrap();
            assert_eq!(found.alternate.is_some(), is_found);
            fs::copy(at("plain.debug"), at("p.debug")).unwrap();
        }
    }

    #[test]
    fn split_units_are_opened_only_for_programs_with_split_debug_information() {
        let Some(directory) = split_program(&["-Wl,--build-id"]) else { return };
        let path = |name: &str| directory.path().join(name).to_str().unwrap().as_bytes().to_vec();
        let run = |command: &str, arguments: &[&str]| {
            let status = Command::new(command).args(arguments).current_dir(directory.path()).status();
            assert!(status.unwrap().success());
        };
        let companions = |name: &str| {
            let bytes = fs::read(directory.path().join(name)).unwrap();
            let debug_file =
                DebugFile::from_process(Pid(std::process::id()), &path(name), None, &Arc::default());
            debug_file.find(&object::File::parse(&*bytes).unwrap())
        };
        let opens_units = |companions: &Companions| {
            let open = |path: &[u8]| companions.open_split(path, &DebugRoots::default());
            assert!(open(&path("")).is_none(), "a directory");
            assert!(open(b"/dev/zero").is_none());
            assert!(open(b"no\0path").is_none());
            open(&path("unit.dwo")).is_some()
        };
        assert!(companions("p").split.is_none(), "its root need not be kept open");
        run("gcc", &["-g", "-gsplit-dwarf", "-c", "-o", "unit.o", "p.c"]);
        run("gcc", &["-o", "s", "unit.o"]);
        assert!(opens_units(&companions("s")));
        run("objcopy", &["--only-keep-debug", "s", "s.debug"]);
        run("objcopy", &["--strip-debug", "--add-gnu-debuglink=s.debug", "s"]);
        assert!(opens_units(&companions("s")), "its debug file has the skeleton units");
    }
}
