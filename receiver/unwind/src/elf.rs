//! Finds the sources of rows in an ELF file.

use std::borrow::Cow;

use gimli::{BaseAddresses, DebugFrame, EhFrame, LittleEndian};
use object::elf::{PT_GNU_EH_FRAME, PT_GNU_SFRAME, ProgramType};
use object::read::elf::ProgramHeader as _;
use object::{CompressionFormat, File, Object as _, ObjectSection as _, ObjectSegment as _, ReadRef};
use sidewinder_unwind_table::{Architecture, EntryInterner, RowBuffer, RowSource, Summary};

use crate::arch;
use crate::cfi::{Cfi, FdeWindow, LocatedFde, MAX_SMALL_BYTES, SectionBytes};
use crate::known_functions::{CfiTraits, KnownFunctions};
use crate::segments::CodeRanges;
use crate::sframe::SFrame;

/// The largest size that a compressed section may decompress to: a few bytes can claim any size.
const MAX_UNCOMPRESSED_BYTES: u64 = 64 << 20;

/// `.eh_frame`, and the locations of its functions, which takes a pass over all of them.
pub(crate) struct EhFrameSection<'data> {
    architecture: Architecture,
    data: Cow<'data, [u8]>,
    address: u64,
    ends_at_terminator: bool,
    located: Vec<LocatedFde>,
}

impl<'data> EhFrameSection<'data> {
    pub(crate) fn from_file<R: ReadRef<'data>>(
        file: &File<'data, R>,
        source: RowSource,
        code: &CodeRanges,
        summary: &mut Summary,
    ) -> Option<Self> {
        let (data, address, ends_at_terminator) = eh_frame_data(file, source, summary)?;
        let architecture = code.architecture();
        let section = eh_frame(architecture, bases(file), source, &data, (address, ends_at_terminator));
        let located = section.locate(code, summary);
        Some(Self { architecture, data, address, ends_at_terminator, located })
    }

    /// The traits of a small section. Larger sections are not examined: all files with such frames have small ones.
    pub(crate) fn traits<R: ReadRef<'data>>(&self, file: &File<'data, R>, source: RowSource) -> CfiTraits {
        if self.data.len() as u64 > MAX_SMALL_BYTES {
            return CfiTraits::default();
        }
        self.section(file, source).traits(&self.located)
    }

    fn section<'file, R: ReadRef<'file>>(
        &self,
        file: &File<'file, R>,
        source: RowSource,
    ) -> Cfi<'_, EhFrame<SectionBytes<'_>>> {
        let place = (self.address, self.ends_at_terminator);
        eh_frame(self.architecture, bases(file), source, &self.data, place)
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
        self.section(file, source).rows(&self.located, code, known, entries, summary)
    }
}

/// The rows of a part of `.eh_frame` for the code that is wanted.
pub(crate) fn rows_of_window(
    window: FdeWindow,
    bases: &BaseAddresses,
    code: &CodeRanges,
    known: &mut KnownFunctions,
    entries: &mut EntryInterner,
    summary: &mut Summary,
) -> RowBuffer {
    (0..window.malformed).for_each(|_| Summary::count(&mut summary.malformed, RowSource::EhFrame));
    let section = section_of_window(&window, bases, code);
    let located = located(&window, &section, code, summary);
    section.rows(&located, code, known, entries, summary)
}

/// The ranges of the functions in a part of `.eh_frame`, sorted by their starts.
pub(crate) fn located_in_window(
    window: &FdeWindow,
    bases: &BaseAddresses,
    code: &CodeRanges,
) -> Vec<(u32, u32)> {
    let section = section_of_window(window, bases, code);
    located(window, &section, code, &mut Summary::default()).iter().map(LocatedFde::range).collect()
}

pub(crate) fn traits_of_window(window: &FdeWindow, bases: &BaseAddresses, code: &CodeRanges) -> CfiTraits {
    let section = section_of_window(window, bases, code);
    section.traits(&located(window, &section, code, &mut Summary::default()))
}

fn section_of_window<'window>(
    window: &'window FdeWindow,
    bases: &BaseAddresses,
    code: &CodeRanges,
) -> Cfi<'window, EhFrame<SectionBytes<'window>>> {
    let place = (window.address, false);
    eh_frame(code.architecture(), bases.clone(), RowSource::EhFrame, &window.data, place)
}

fn located<'window>(
    window: &FdeWindow,
    section: &Cfi<'window, EhFrame<SectionBytes<'window>>>,
    code: &CodeRanges,
    summary: &mut Summary,
) -> Vec<LocatedFde> {
    let mut located = Vec::with_capacity(window.places.len());
    section.locate_at(window.places.iter().copied().map(Some), code, summary, &mut located);
    located
}

pub(crate) fn debug_frame_rows<'data, R: ReadRef<'data>>(
    file: &File<'data, R>,
    source: RowSource,
    code: &CodeRanges,
    known: &mut KnownFunctions,
    entries: &mut EntryInterner,
    summary: &mut Summary,
) -> RowBuffer {
    let Some((data, _)) = section_data(file, ".debug_frame", source, summary) else {
        return RowBuffer::default();
    };
    let debug_frame = debug_frame(code.architecture(), file, source, &data);
    debug_frame.rows(&debug_frame.locate(code, summary), code, known, entries, summary)
}

/// The ranges of the functions that `.eh_frame` and `.debug_frame` describe, sorted by their starts.
pub(crate) fn described_functions<'data, R: ReadRef<'data>>(
    file: &File<'data, R>,
    code: &CodeRanges,
) -> Vec<(u32, u32)> {
    let mut summary = Summary::default();
    let mut functions = Vec::new();
    if let Some((data, address, ends_at_terminator)) = eh_frame_data(file, RowSource::EhFrame, &mut summary) {
        let place = (address, ends_at_terminator);
        let eh_frame = eh_frame(code.architecture(), bases(file), RowSource::EhFrame, &data, place);
        functions.extend(eh_frame.ranges(code));
    }
    if let Some((data, _)) = section_data(file, ".debug_frame", RowSource::DebugFrame, &mut summary) {
        functions.extend(debug_frame(code.architecture(), file, RowSource::DebugFrame, &data).ranges(code));
    }
    functions.sort_unstable();
    functions.dedup_by_key(|(start, _)| *start);
    functions
}

fn eh_frame(
    architecture: Architecture,
    bases: BaseAddresses,
    source: RowSource,
    data: &[u8],
    (address, ends_at_terminator): (u64, bool),
) -> Cfi<'_, EhFrame<SectionBytes<'_>>> {
    let mut section = EhFrame::new(data, LittleEndian);
    section.set_address_size(8);
    section.set_vendor(arch::vendor(architecture));
    let bases = bases.set_eh_frame(address);
    Cfi { architecture, section, data, bases, source, ends_at_terminator }
}

fn debug_frame<'bytes, 'data, R: ReadRef<'data>>(
    architecture: Architecture,
    file: &File<'data, R>,
    source: RowSource,
    data: &'bytes [u8],
) -> Cfi<'bytes, DebugFrame<SectionBytes<'bytes>>> {
    let mut section = DebugFrame::new(data, LittleEndian);
    section.set_address_size(8);
    section.set_vendor(arch::vendor(architecture));
    Cfi { architecture, section, data, bases: bases(file), source, ends_at_terminator: false }
}

pub(crate) fn sframe_rows<'data, R: ReadRef<'data>>(
    file: &File<'data, R>,
    code: &CodeRanges,
    known: &mut KnownFunctions,
    entries: &mut EntryInterner,
    summary: &mut Summary,
) -> RowBuffer {
    let section = section_data(file, ".sframe", RowSource::SFrame, summary).or_else(|| {
        let (data, address) = segment_data(file, PT_GNU_SFRAME)?;
        Some((Cow::Borrowed(data), address))
    });
    let Some((data, address)) = section else { return RowBuffer::default() };
    match SFrame::parse(&data, address, code.architecture()) {
        Some(sframe) => sframe.rows(code, known, entries, summary),
        None => {
            Summary::count(&mut summary.malformed, RowSource::SFrame);
            RowBuffer::default()
        }
    }
}

/// The bytes of `.eh_frame`, their stated address, and whether other data may follow the terminator.
fn eh_frame_data<'data, R: ReadRef<'data>>(
    file: &File<'data, R>,
    source: RowSource,
    summary: &mut Summary,
) -> Option<(Cow<'data, [u8]>, u64, bool)> {
    if let Some((data, address)) = section_data(file, ".eh_frame", source, summary) {
        return Some((data, address, false));
    }
    let (data, address) = eh_frame_by_header(file)?;
    Some((Cow::Borrowed(data), address, true))
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

/// A section's bytes, decompressed, with its stated address. One that can't be read counts as malformed.
pub(crate) fn section_data<'data, R: ReadRef<'data>>(
    file: &File<'data, R>,
    name: &str,
    source: RowSource,
    summary: &mut Summary,
) -> Option<(Cow<'data, [u8]>, u64)> {
    let section = file.section_by_name(name)?;
    let data = section.compressed_data().ok().and_then(|data| match data.format {
        CompressionFormat::None => Some(Cow::Borrowed(data.data)),
        _ if data.uncompressed_size > MAX_UNCOMPRESSED_BYTES => None,
        _ => data.decompress().ok(),
    });
    match data {
        Some(data) if data.is_empty() => None,
        Some(data) => Some((data, section.address())),
        None => {
            Summary::count(&mut summary.malformed, source);
            None
        }
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
