//! Names for a `perf.data` from this machine: from its files that have the build IDs of the recording, and from its kernel, if that
//! is the recorded one.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use object::elf::FileHeader64;
use object::read::elf::NoteIterator;
use object::{LittleEndian, Object as _, ObjectSegment as _, ReadCache, elf};
use rustix::fs::{Mode, OFlags};
use sidewinder_address::{Avma, Svma};
use sidewinder_process::vdso_image;
use sidewinder_render::{FrameCategory, PerfCode, PerfFunction, PerfKernel, PerfNames, ProfileBinary};
use sidewinder_symbolize::{
    BinaryFiles, BinaryId, CodeFrame, Image, KernelName, KernelSymbols, Language, Lookup, Symbolizer,
    SymbolizerOptions,
};

use crate::hex;
use crate::sampling::debug_files::{Companions, DebugFile, DebugRoots};

/// The memory for symbols: as much as `record` has for them.
const BUDGET_BYTES: usize = 256 << 20;
/// The notes of the running kernel.
const KERNEL_NOTES: &str = "/sys/kernel/notes";
const KALLSYMS: &str = "/proc/kallsyms";

/// Names from this machine.
#[derive(Debug)]
pub(super) struct LocalNames {
    symbols: Symbolizer,
    /// Where debug information is that files have split off.
    roots: DebugRoots,
    /// `None`: it is not here.
    files: HashMap<ProfileBinary, Option<LocalFile>>,
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
    /// By ranges of the file: where they are in its address space.
    segments: Vec<(Range<u64>, Svma)>,
}

impl LocalNames {
    pub(super) fn new() -> Self {
        let options = SymbolizerOptions {
            budget_bytes: BUDGET_BYTES,
            lines: true,
            inlines: true,
            has_no_time_limit: true,
        };
        Self {
            symbols: Symbolizer::new(options),
            roots: DebugRoots::open::<&Path>([]),
            files: HashMap::new(),
            kernel_shifts: Vec::new(),
            kallsyms: None,
        }
    }
}

impl PerfNames for LocalNames {
    fn code(&mut self, binary: &ProfileBinary, file_offset: u64) -> Option<PerfCode> {
        if !self.files.contains_key(binary) {
            let id = BinaryId(u32::try_from(self.files.len()).ok()?);
            self.files.insert(binary.clone(), find_file(binary, id));
        }
        let file = self.files.get(binary)?.as_ref()?;
        let svma = file.svma(file_offset)?;
        let Lookup::Named(functions) =
            self.symbols.name(file.id, LocalSources { file, roots: &self.roots }, svma)
        else {
            return None;
        };
        let language = functions.last().map_or(Language::Unknown, |function| function.name.language);
        let kind = match language {
            Language::Rust => FrameCategory::Rust,
            Language::Go => FrameCategory::Go,
            Language::Cpp | Language::Unknown => FrameCategory::Native,
        };
        Some(PerfCode { address: svma.0, kind, functions: functions.iter().map(perf_function).collect() })
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

impl LocalFile {
    fn svma(&self, file_offset: u64) -> Option<Svma> {
        let (range, start) = self.segments.iter().find(|(range, _)| range.contains(&file_offset))?;
        start.checked_add(file_offset - range.start)
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
        Some(Image::from(Arc::clone(&self.file.companions.debug.as_ref()?.file)))
    }

    fn alternate(&self) -> Option<Image> {
        Some(Image::from(Arc::clone(self.file.companions.debug.as_ref()?.alternate.as_ref()?)))
    }

    fn split_unit(&self, path: &[u8]) -> Option<Image> {
        self.file.companions.open_split(path, self.roots).map(Image::from)
    }
}

/// The file of a recording on this machine, at its path or in perf's own cache; `None` if there is none with its build ID.
fn find_file(binary: &ProfileBinary, id: BinaryId) -> Option<LocalFile> {
    let build_id = binary.build_id.as_deref()?;
    if binary.path == "[vdso]" {
        let image = vdso_image().ok()?;
        let segments = segments(&object::File::parse(&*image).ok()?, build_id)?;
        return Some(LocalFile {
            id,
            image: Image::from(image),
            companions: Companions::default(),
            segments,
        });
    }
    let cached = perf_cache(build_id);
    let paths = [Some(PathBuf::from(&binary.path)), cached].into_iter().flatten();
    paths.filter(|path| path.is_absolute()).find_map(|path| open_file(&path, build_id, id))
}

/// perf's copy of a file: `~/.debug/.build-id/AB/CDEF.../elf`.
fn perf_cache(build_id: &str) -> Option<PathBuf> {
    let (folder, name) = build_id.split_at_checked(2)?;
    let home = PathBuf::from(std::env::var_os("HOME")?);
    Some(home.join(".debug/.build-id").join(folder).join(name).join("elf"))
}

fn open_file(path: &Path, build_id: &str, id: BinaryId) -> Option<LocalFile> {
    // The recording names the path: a device or a named pipe is not waited for.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
    let status = file.metadata().ok().filter(std::fs::Metadata::is_file)?;
    let cache = ReadCache::new(&file);
    let parsed = object::File::parse(&cache).ok()?;
    let segments = segments(&parsed, build_id)?;
    let debug_file = DebugFile::from_own_root(path.as_os_str().as_bytes(), Some(status.uid()));
    let companions = debug_file.find(&parsed);
    Some(LocalFile { id, image: Image::from(file), companions, segments })
}

/// The segments of a file, if it has this build ID.
fn segments<'data, R: object::ReadRef<'data>>(
    file: &object::File<'data, R>,
    build_id: &str,
) -> Option<Vec<(Range<u64>, Svma)>> {
    if hex::encode(file.build_id().ok()??) != build_id {
        return None;
    }
    let range = |segment: object::Segment<'data, '_, R>| {
        let (start, length) = segment.file_range();
        (start..start.saturating_add(length), Svma(segment.address()))
    };
    Some(file.segments().map(range).collect())
}

/// By how much the functions of this kernel are above those of the recorded one; `None` if it is another kernel.
fn kernel_shift(kernel: &PerfKernel) -> Option<u64> {
    let notes = std::fs::read(KERNEL_NOTES).ok()?;
    let mut notes = NoteIterator::<FileHeader64<LittleEndian>>::new(LittleEndian, 4, &notes).ok()?;
    let build_id = std::iter::from_fn(|| notes.next().ok().flatten()).find_map(|note| {
        let is_id = note.name() == elf::ELF_NOTE_GNU && note.n_type(LittleEndian) == elf::NT_GNU_BUILD_ID;
        is_id.then(|| hex::encode(note.desc()))
    });
    if build_id.as_deref() != Some(&*kernel.build_id) {
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
