//! Names for a `perf.data` from this machine: from its files that are those of the recording, by build ID or inode, and from its
//! kernel, if that is the recorded one.

use std::collections::{BTreeSet, HashMap};
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use object::{Object as _, ReadCache};
use rustix::fs::{Mode, OFlags};
use sidewinder_address::{Avma, FileOffset, LoadSegment};
use sidewinder_process::{BuildIds, vdso_image};
use sidewinder_render::{FrameType, PerfBinary, PerfCode, PerfFunction, PerfInode, PerfKernel, PerfNames};
use sidewinder_symbolize::{
    BinaryFiles, BinaryId, CodeFrame, Image, KernelName, KernelSymbols, Language, Lookup, Symbolizer,
    SymbolizerOptions,
};
use sidewinder_unwind::load_segments;

use sidewinder_debug_files::{Companions, DebugFile, DebugRoots};

/// The memory for symbols: as much as `record` has for them.
const BUDGET_BYTES: usize = 256 << 20;
/// The notes of the running kernel.
const KERNEL_NOTES: &str = "/sys/kernel/notes";
const KERNEL_NOTES_ALIGNMENT: u64 = 4;
const KALLSYMS: &str = "/proc/kallsyms";

/// Names from this machine.
#[derive(Debug)]
pub(super) struct LocalNames {
    symbols: Symbolizer,
    /// Where debug information is that files have split off.
    roots: Arc<DebugRoots>,
    /// `None`: it is not here.
    files: HashMap<PerfBinary, Option<LocalFile>>,
    /// When the recording was written: a file that changed later isn't the recorded one.
    recorded: SystemTime,
    /// Of the kernels that were asked for: by how much this one is above it, if it is the same.
    kernel_shifts: Vec<(PerfKernel, Option<u64>)>,
    kallsyms: Option<KernelSymbols>,
}

/// A file of this machine that is the recorded one.
#[derive(Debug)]
struct LocalFile {
    id: BinaryId,
    image: Image,
    companions: Companions,
    loads: Vec<LoadSegment>,
}

impl LocalNames {
    pub(super) fn new(recorded: SystemTime, roots: Arc<DebugRoots>) -> Self {
        let options = SymbolizerOptions {
            budget_bytes: BUDGET_BYTES,
            lines: true,
            inlines: true,
            has_no_time_limit: true,
        };
        Self {
            symbols: Symbolizer::new(options),
            roots,
            files: HashMap::new(),
            recorded,
            kernel_shifts: Vec::new(),
            kallsyms: None,
        }
    }
}

impl LocalNames {
    /// The files that were asked for and are not here as they were recorded, by path.
    pub(super) fn missing_files(&self) -> BTreeSet<&str> {
        let missing = self.files.iter().filter(|(_, found)| found.is_none()).map(|(binary, _)| &*binary.path);
        // Memory that is no file has no such path.
        missing.filter(|path| path.starts_with('/') && !path.starts_with("//")).collect()
    }
}

impl PerfNames for LocalNames {
    fn code(&mut self, binary: &PerfBinary, file_offset: u64) -> Option<PerfCode> {
        if !self.files.contains_key(binary) {
            let id = BinaryId(u32::try_from(self.files.len()).ok()?);
            self.files.insert(binary.clone(), find_file(binary, id, self.recorded, &self.roots));
        }
        let file = self.files.get(binary)?.as_ref()?;
        let svma = file.loads.iter().find_map(|load| load.svma_of(FileOffset(file_offset)))?;
        let Lookup::Named(functions) =
            self.symbols.name(file.id, LocalSources { file, roots: &self.roots }, svma)
        else {
            return None;
        };
        let language = functions.last().map_or(Language::Unknown, |function| function.name.language);
        let frame_type = match language {
            Language::Rust => FrameType::Rust,
            Language::Go => FrameType::Go,
            Language::Cpp | Language::Unknown => FrameType::Native,
        };
        Some(PerfCode {
            address: svma.0,
            frame_type,
            functions: functions.iter().map(perf_function).collect(),
        })
    }

    fn kernel(&mut self, kernel: &PerfKernel, address: u64) -> Option<String> {
        let known = self.kernel_shifts.iter().find(|(known, _)| known == kernel).map(|(_, shift)| *shift);
        let shift = known.unwrap_or_else(|| {
            let shift = kernel_shift(kernel);
            self.kernel_shifts.push((kernel.clone(), shift));
            shift
        })?;
        let here = Avma(address.wrapping_add(shift));
        match self.kallsyms.get_or_insert_with(KernelSymbols::read).lookup(here) {
            KernelName::Function { name, .. } => Some(name.to_owned()),
            KernelName::Unknown | KernelName::Hidden => None,
        }
    }
}

fn perf_function(frame: &CodeFrame) -> PerfFunction {
    let CodeFrame { name, path, line, .. } = frame;
    let is_same = name.demangled == name.system_name;
    PerfFunction {
        name: name.demangled.to_string(),
        system_name: if is_same { String::new() } else { name.system_name.to_string() },
        path: path.as_deref().unwrap_or_default().to_owned(),
        line: *line,
    }
}

struct LocalSources<'a> {
    file: &'a LocalFile,
    roots: &'a DebugRoots,
}

impl BinaryFiles for LocalSources<'_> {
    fn content(&self) -> io::Result<Image> {
        Ok(self.file.image.clone())
    }

    fn debug_file(&self) -> Option<Image> {
        self.file.companions.debug_image()
    }

    fn alternate(&self) -> Option<Image> {
        self.file.companions.alternate_image()
    }

    fn split_unit(&self, path: &[u8]) -> Option<Image> {
        self.file.companions.open_split(path, self.roots).map(Image::from)
    }
}

/// The file of a recording on this machine, at its path or in perf's own cache; `None` if there is none with its build ID, or, if
/// that is unknown, none that has had its inode since before the recording.
fn find_file(
    binary: &PerfBinary,
    id: BinaryId,
    recorded: SystemTime,
    roots: &DebugRoots,
) -> Option<LocalFile> {
    let PerfBinary { path, build_id, inode } = binary;
    let Some(build_id) = build_id.as_deref() else {
        return open_file(Path::new(path), Identity::Inode((*inode)?, recorded), id, roots);
    };
    if path == "[vdso]" {
        let image = vdso_image().ok()?;
        let loads = loads(&object::File::parse(&*image).ok()?, Identity::BuildId(build_id))?;
        return Some(LocalFile { id, image: Image::from(image), companions: Companions::default(), loads });
    }
    let cached = perf_cache(build_id);
    let mut paths = [Some(PathBuf::from(path)), cached].into_iter().flatten();
    paths.find_map(|path| open_file(&path, Identity::BuildId(build_id), id, roots))
}

/// perf's copy of a file: `~/.debug/.build-id/AB/CDEF.../elf`.
fn perf_cache(build_id: &str) -> Option<PathBuf> {
    let (folder, name) = build_id.split_at_checked(2)?;
    let home = PathBuf::from(std::env::var_os("HOME")?);
    Some(home.join(".debug/.build-id").join(folder).join(name).join("elf"))
}

/// What proves that a file is the recorded one.
#[derive(Clone, Copy, Debug)]
enum Identity<'a> {
    BuildId(&'a str),
    /// With the time since when nothing of the inode may have changed.
    Inode(PerfInode, SystemTime),
}

impl Identity<'_> {
    /// Whether a file with this status can be the recorded one.
    fn admits(self, status: &Metadata) -> bool {
        let Self::Inode(PerfInode { major, minor, inode }, recorded) = self else { return true };
        let device = rustix::fs::makedev(major, minor);
        let changed = u64::try_from(status.ctime())
            .map(|seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        (status.dev(), status.ino()) == (device, inode) && changed.is_ok_and(|changed| changed < recorded)
    }
}

fn open_file(path: &Path, identity: Identity<'_>, id: BinaryId, roots: &DebugRoots) -> Option<LocalFile> {
    // The recording names the path, and memory that is no file has a name too, as `[heap]`. A device or a named pipe is not waited for.
    if !path.is_absolute() {
        return None;
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
    let status = file.metadata().ok().filter(Metadata::is_file)?;
    if !identity.admits(&status) {
        return None;
    }
    let cache = ReadCache::new(&file);
    let parsed = object::File::parse(&cache).ok()?;
    let loads = loads(&parsed, identity)?;
    let debug_file = DebugFile::from_own_root(path.as_os_str().as_bytes(), Some(status.uid()));
    let companions = debug_file.find(&parsed).or_downloaded(&parsed, roots);
    Some(LocalFile { id, image: Image::from(file), companions, loads })
}

/// The segments of a file, if it is this one.
fn loads<'data, R: object::ReadRef<'data>>(
    file: &object::File<'data, R>,
    identity: Identity<'_>,
) -> Option<Vec<LoadSegment>> {
    if let Identity::BuildId(build_id) = identity
        && hex::encode(file.build_id().ok()??) != build_id
    {
        return None;
    }
    Some(load_segments(file))
}

/// By how much the functions of this kernel are above those of the recorded one; `None` if it is another kernel.
fn kernel_shift(kernel: &PerfKernel) -> Option<u64> {
    let build_id = BuildIds::from_notes(&std::fs::read(KERNEL_NOTES).ok()?, KERNEL_NOTES_ALIGNMENT).gnu?;
    if build_id.to_string() != kernel.build_id {
        return None;
    }
    let kallsyms = std::fs::read_to_string(KALLSYMS).ok()?;
    let address = kallsyms.lines().find_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        let (address, _kind, name) = (fields.next()?, fields.next()?, fields.next()?);
        (name == kernel.symbol).then(|| u64::from_str_radix(address, 16).ok())?
    });
    // Without privilege, all addresses are 0.
    address.filter(|address| *address != 0).map(|address| address.wrapping_sub(kernel.symbol_address))
}

#[cfg(test)]
mod tests {
    use object::{ObjectSegment as _, ObjectSymbol as _};

    use super::*;

    /// This program, and the offset of its function `main`.
    fn own() -> (PerfBinary, u64) {
        let path = std::env::current_exe().unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let file = object::File::parse(&*bytes).unwrap();
        let main = file.symbols().find(|symbol| symbol.name() == Ok("main")).unwrap().address();
        let contains = |segment: &object::Segment<'_, '_>| {
            (segment.address()..segment.address() + segment.file_range().1).contains(&main)
        };
        let segment = file.segments().find(contains).unwrap();
        let offset = main - segment.address() + segment.file_range().0;
        let status = std::fs::metadata(&path).unwrap();
        let inode = PerfInode {
            major: rustix::fs::major(status.dev()),
            minor: rustix::fs::minor(status.dev()),
            inode: status.ino(),
        };
        let build_id = Some(hex::encode(file.build_id().unwrap().unwrap()));
        let path = path.to_str().unwrap().to_owned();
        (PerfBinary { path, build_id, inode: Some(inode) }, offset)
    }

    fn name(binary: &PerfBinary, offset: u64, recorded: SystemTime) -> Option<String> {
        let code = LocalNames::new(recorded, Arc::default()).code(binary, offset)?;
        code.functions.last().map(|function| function.name.clone())
    }

    #[test]
    fn a_file_names_code_if_its_build_id_or_its_unchanged_inode_is_the_recorded_one() {
        let (with_id, offset) = own();
        let now = SystemTime::now();
        assert_eq!(name(&with_id, offset, now).as_deref(), Some("main"));
        assert_eq!(name(&with_id, u64::MAX, now), None);
        let mut other = with_id.clone();
        other.build_id = Some("00".repeat(20));
        let mut names = LocalNames::new(now, Arc::default());
        assert_eq!(names.code(&other, offset), None, "another build");
        assert_eq!(names.missing_files(), BTreeSet::from([&*other.path]));

        let mut by_inode = with_id;
        by_inode.build_id = None;
        assert_eq!(name(&by_inode, offset, now).as_deref(), Some("main"));
        assert_eq!(name(&by_inode, offset, SystemTime::UNIX_EPOCH), None, "changed since the recording");
        by_inode.inode.as_mut().unwrap().inode += 1;
        assert_eq!(name(&by_inode, offset, now), None, "another file");
        by_inode.inode = None;
        assert_eq!(name(&by_inode, offset, now), None, "nothing proves that it is this file");
    }

    #[test]
    fn what_is_no_file_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, Mode::RUSR, 0).unwrap();
        for path in
            [pipe.to_str().unwrap().to_owned(), "/dev/zero".to_owned(), "[heap]".to_owned(), String::new()]
        {
            let binary = PerfBinary { path, build_id: Some("00".to_owned()), inode: None };
            assert_eq!(name(&binary, 0, SystemTime::now()), None);
        }
    }

    #[test]
    fn another_kernel_names_nothing() {
        let kernel = PerfKernel {
            build_id: "00".repeat(20),
            symbol: "_text".to_owned(),
            symbol_address: 0xffff_ffff_8100_0000,
        };
        assert_eq!(
            LocalNames::new(SystemTime::now(), Arc::default()).kernel(&kernel, kernel.symbol_address),
            None
        );
    }
}
