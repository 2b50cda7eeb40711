//! Finds the sources of rows in an ELF file.

use std::borrow::Cow;

use gimli::{BaseAddresses, DebugFrame, EhFrame, LittleEndian};
use object::elf::{PT_GNU_EH_FRAME, PT_GNU_SFRAME, ProgramType};
use object::read::elf::ProgramHeader as _;
use object::{CompressionFormat, File, Object as _, ObjectSection as _, ObjectSegment as _, ReadRef};
use sidewinder_unwind_table::{Architecture, EntryInterner, RowBuffer, RowSource, Summary};

use crate::arch;
use crate::cfi::{Cfi, FdeWindow, LocatedFde, LocatedFdes, MAX_SMALL_BYTES, SectionBytes};
use crate::known_functions::{CfiTraits, KnownFunctions};
use crate::memory::{Memory, Reservation};
use crate::read::ReadFile;
use crate::segments::CodeRanges;
use crate::sframe::SFrame;

/// `.eh_frame`, and the locations of its functions, which takes a pass over all of them.
pub(crate) struct EhFrameSection<'data> {
    architecture: Architecture,
    data: SectionData<'data>,
    ends_at_terminator: bool,
    located: LocatedFdes<'data>,
    memory: Memory<'data>,
}

impl<'data> EhFrameSection<'data> {
    pub(crate) fn from_file<R: ReadFile<'data>>(
        file: &File<'data, R>,
        source: RowSource,
        code: &CodeRanges,
        summary: &mut Summary,
    ) -> Option<Self> {
        let (data, ends_at_terminator) = eh_frame_data(file, source, summary)?;
        let (architecture, memory) = (code.architecture(), memory_of(file));
        let place = (data.address, ends_at_terminator);
        let section = eh_frame(architecture, bases(file), source, &data.bytes, place, memory);
        let located = section.locate(code, summary);
        Some(Self { architecture, data, ends_at_terminator, located, memory })
    }

    /// The traits of a small section. Larger sections are not examined: all files with such frames have small ones.
    pub(crate) fn traits<R: ReadRef<'data>>(&self, file: &File<'data, R>, source: RowSource) -> CfiTraits {
        if self.data.bytes.len() as u64 > MAX_SMALL_BYTES {
            return CfiTraits::default();
        }
        self.section(file, source).traits(&self.located.fdes)
    }

    fn section<'file, R: ReadRef<'file>>(
        &self,
        file: &File<'file, R>,
        source: RowSource,
    ) -> Cfi<'_, 'data, EhFrame<SectionBytes<'_>>> {
        let place = (self.data.address, self.ends_at_terminator);
        eh_frame(self.architecture, bases(file), source, &self.data.bytes, place, self.memory)
    }

    pub(crate) fn rows<R: ReadRef<'data>>(
        &self,
        file: &File<'data, R>,
        source: RowSource,
        code: &CodeRanges,
        known: &mut KnownFunctions,
        entries: &mut EntryInterner,
        summary: &mut Summary,
    ) -> RowBuffer {
        self.section(file, source).rows(&self.located.fdes, code, known, entries, summary)
    }
}

/// The rows of a part of `.eh_frame` for the code that is wanted.
pub(crate) fn rows_of_window(
    window: FdeWindow<'_>,
    bases: &BaseAddresses,
    code: &CodeRanges,
    known: &mut KnownFunctions,
    entries: &mut EntryInterner,
    summary: &mut Summary,
) -> RowBuffer {
    (0..window.malformed).for_each(|_| Summary::count(&mut summary.malformed, RowSource::EhFrame));
    let section = section_of_window(&window, bases, code);
    let located = located(&window, &section, code, summary);
    section.rows(&located.fdes, code, known, entries, summary)
}

/// The ranges of the functions in a part of `.eh_frame`, sorted by their starts.
pub(crate) fn located_in_window(
    window: &FdeWindow<'_>,
    bases: &BaseAddresses,
    code: &CodeRanges,
) -> Vec<(u32, u32)> {
    let section = section_of_window(window, bases, code);
    located(window, &section, code, &mut Summary::default()).fdes.iter().map(LocatedFde::range).collect()
}

pub(crate) fn traits_of_window(
    window: &FdeWindow<'_>,
    bases: &BaseAddresses,
    code: &CodeRanges,
) -> CfiTraits {
    let section = section_of_window(window, bases, code);
    section.traits(&located(window, &section, code, &mut Summary::default()).fdes)
}

fn section_of_window<'window, 'memory>(
    window: &'window FdeWindow<'memory>,
    bases: &BaseAddresses,
    code: &CodeRanges,
) -> Cfi<'window, 'memory, EhFrame<SectionBytes<'window>>> {
    let place = (window.address, false);
    eh_frame(code.architecture(), bases.clone(), RowSource::EhFrame, &window.data, place, window.memory)
}

fn located<'window, 'memory>(
    window: &FdeWindow<'memory>,
    section: &Cfi<'window, 'memory, EhFrame<SectionBytes<'window>>>,
    code: &CodeRanges,
    summary: &mut Summary,
) -> LocatedFdes<'memory> {
    section.locate_at(window.places.iter().copied().map(Some), window.places.len(), code, summary)
}

pub(crate) fn debug_frame_rows<'data, R: ReadFile<'data>>(
    file: &File<'data, R>,
    source: RowSource,
    code: &CodeRanges,
    known: &mut KnownFunctions,
    entries: &mut EntryInterner,
    summary: &mut Summary,
) -> RowBuffer {
    let Some(data) = section_data(file, ".debug_frame", source, summary) else {
        return RowBuffer::default();
    };
    let debug_frame = debug_frame(code.architecture(), file, source, &data.bytes);
    debug_frame.rows(&debug_frame.locate(code, summary).fdes, code, known, entries, summary)
}

/// The ranges of the functions that `.eh_frame` and `.debug_frame` describe, sorted by their starts.
pub(crate) fn described_functions<'data, R: ReadFile<'data>>(
    file: &File<'data, R>,
    code: &CodeRanges,
) -> Vec<(u32, u32)> {
    let mut summary = Summary::default();
    let mut functions = Vec::new();
    if let Some((data, ends_at_terminator)) = eh_frame_data(file, RowSource::EhFrame, &mut summary) {
        let (source, place) = (RowSource::EhFrame, (data.address, ends_at_terminator));
        let eh_frame =
            eh_frame(code.architecture(), bases(file), source, &data.bytes, place, memory_of(file));
        functions.extend(eh_frame.ranges(code));
    }
    if let Some(data) = section_data(file, ".debug_frame", RowSource::DebugFrame, &mut summary) {
        let (architecture, source) = (code.architecture(), RowSource::DebugFrame);
        functions.extend(debug_frame(architecture, file, source, &data.bytes).ranges(code));
    }
    functions.sort_unstable();
    functions.dedup_by_key(|(start, _)| *start);
    functions
}

fn eh_frame<'bytes, 'memory>(
    architecture: Architecture,
    bases: BaseAddresses,
    source: RowSource,
    data: &'bytes [u8],
    (address, ends_at_terminator): (u64, bool),
    memory: Memory<'memory>,
) -> Cfi<'bytes, 'memory, EhFrame<SectionBytes<'bytes>>> {
    let mut section = EhFrame::new(data, LittleEndian);
    section.set_address_size(8);
    section.set_vendor(arch::vendor(architecture));
    let bases = bases.set_eh_frame(address);
    Cfi { architecture, section, data, bases, source, ends_at_terminator, memory }
}

fn debug_frame<'bytes, 'data, R: ReadFile<'data>>(
    architecture: Architecture,
    file: &File<'data, R>,
    source: RowSource,
    data: &'bytes [u8],
) -> Cfi<'bytes, 'data, DebugFrame<SectionBytes<'bytes>>> {
    let mut section = DebugFrame::new(data, LittleEndian);
    section.set_address_size(8);
    section.set_vendor(arch::vendor(architecture));
    let (bases, memory) = (bases(file), memory_of(file));
    Cfi { architecture, section, data, bases, source, ends_at_terminator: false, memory }
}

pub(crate) fn sframe_rows<'data, R: ReadFile<'data>>(
    file: &File<'data, R>,
    code: &CodeRanges,
    known: &mut KnownFunctions,
    entries: &mut EntryInterner,
    summary: &mut Summary,
) -> RowBuffer {
    let section = section_data(file, ".sframe", RowSource::SFrame, summary).or_else(|| {
        let (bytes, address) = segment_data(file, PT_GNU_SFRAME)?;
        Some(SectionData::borrowed(bytes, address))
    });
    let Some(data) = section else { return RowBuffer::default() };
    match SFrame::parse(&data.bytes, data.address, code.architecture()) {
        Some(sframe) => sframe.rows(code, known, entries, summary, memory_of(file)),
        None => {
            Summary::count(&mut summary.malformed, RowSource::SFrame);
            RowBuffer::default()
        }
    }
}

/// `.eh_frame`, and whether other data may follow the terminator.
fn eh_frame_data<'data, R: ReadFile<'data>>(
    file: &File<'data, R>,
    source: RowSource,
    summary: &mut Summary,
) -> Option<(SectionData<'data>, bool)> {
    if let Some(data) = section_data(file, ".eh_frame", source, summary) {
        return Some((data, false));
    }
    let (bytes, address) = eh_frame_by_header(file)?;
    Some((SectionData::borrowed(bytes, address), true))
}

/// `.eh_frame` in a file without section headers: `PT_GNU_EH_FRAME` holds a pointer to it.
fn eh_frame_by_header<'data, R: ReadRef<'data>>(file: &File<'data, R>) -> Option<(&'data [u8], u64)> {
    let (data, address) = segment_data(file, PT_GNU_EH_FRAME)?;
    let bases = BaseAddresses::default().set_eh_frame_hdr(address);
    let parsed = gimli::EhFrameHdr::new(data, LittleEndian).parse(&bases, 8).ok()?;
    let address = parsed.eh_frame_ptr().direct().ok()?;
    let segment = file.segments().find(|segment| {
        address.checked_sub(segment.address()).is_some_and(|within| within < segment.file_range().1)
    })?;
    let within = usize::try_from(address - segment.address()).ok()?;
    Some((segment.data().ok()?.get(within..)?, address))
}

/// The bytes of the first segment of a kind, with their stated address.
fn segment_data<'data, R: ReadRef<'data>>(
    file: &File<'data, R>,
    kind: ProgramType,
) -> Option<(&'data [u8], u64)> {
    let File::Elf64(elf) = file else { return None };
    let endian = elf.endian();
    let header = elf.elf_program_headers().iter().find(|header| header.p_type(endian) == kind)?;
    Some((header.data(endian, elf.data()).ok()?, header.p_vaddr(endian)))
}

/// A section's bytes, decompressed, and its stated address.
pub(crate) struct SectionData<'data> {
    pub(crate) bytes: Cow<'data, [u8]>,
    pub(crate) address: u64,
    /// For what was decompressed.
    _memory: Option<Reservation<'data>>,
}

impl<'data> SectionData<'data> {
    fn borrowed(bytes: &'data [u8], address: u64) -> Self {
        Self { bytes: Cow::Borrowed(bytes), address, _memory: None }
    }
}

/// The bytes of a section. One that can't be read counts as malformed, and so does one that would take more memory than is left
/// once it is decompressed.
pub(crate) fn section_data<'data, R: ReadFile<'data>>(
    file: &File<'data, R>,
    name: &str,
    source: RowSource,
    summary: &mut Summary,
) -> Option<SectionData<'data>> {
    let section = file.section_by_name(name)?;
    let address = section.address();
    let data = section.compressed_data().ok().and_then(|data| {
        if data.format == CompressionFormat::None {
            return Some(SectionData::borrowed(data.data, address));
        }
        // A few bytes can claim any size.
        let memory = memory_of(file).reserve(usize::try_from(data.uncompressed_size).ok()?)?;
        Some(SectionData { bytes: data.decompress().ok()?, address, _memory: Some(memory) })
    });
    if data.is_none() {
        Summary::count(&mut summary.malformed, source);
    }
    data.filter(|data| !data.bytes.is_empty())
}

/// The memory for what is made of a file's content.
pub(crate) fn memory_of<'data, R: ReadFile<'data>>(file: &File<'data, R>) -> Memory<'data> {
    match file {
        File::Elf64(elf) => elf.data().memory(),
        _ => Memory::UNSHARED,
    }
}

/// The addresses that pointers in unwind information may be relative to.
pub(crate) fn bases<'data, R: ReadRef<'data>>(file: &File<'data, R>) -> BaseAddresses {
    let address = |name| file.section_by_name(name).map(|section| section.address());
    let mut bases = BaseAddresses::default();
    if let Some(text) = address(".text") {
        bases = bases.set_text(text);
    }
    if let Some(got) = address(".got") {
        bases = bases.set_got(got);
    }
    bases
}
