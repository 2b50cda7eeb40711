//! The sections of one file that hold DWARF.

use std::sync::atomic::{AtomicU64, Ordering};

use gimli::{Dwarf, DwarfPackage, RunTimeEndian, SectionId};
use object::elf::{ELFCOMPRESS_ZLIB, ELFCOMPRESS_ZSTD};
use object::read::{CompressedData, CompressionFormat};

use super::pages::{ImageId, Pages, Place, Reader, Section};
use crate::elf::{Layout, NamedSection};
use crate::image::Image;

/// Those that look-ups need. Others would be unpacked for nothing.
const NEEDED: [SectionId; 10] = [
    SectionId::DebugAbbrev,
    SectionId::DebugAddr,
    SectionId::DebugCuIndex,
    SectionId::DebugInfo,
    SectionId::DebugLine,
    SectionId::DebugLineStr,
    SectionId::DebugRanges,
    SectionId::DebugRngLists,
    SectionId::DebugStr,
    SectionId::DebugStrOffsets,
];
/// Those of which a package of split files states what part belongs to which unit, beside [`NEEDED`].
const PACKAGED: [SectionId; 5] = [
    SectionId::DebugLoc,
    SectionId::DebugLocLists,
    SectionId::DebugMacinfo,
    SectionId::DebugMacro,
    SectionId::DebugTypes,
];
/// `Elf64_Chdr`.
const COMPRESSION_HEADER_BYTES: u64 = 24;

/// A file's DWARF, of which nothing but what is compressed is in memory.
#[derive(Debug)]
pub(super) struct Sections {
    image: Image,
    id: ImageId,
    endian: RunTimeEndian,
    places: Vec<(SectionId, Place)>,
    unpacked_bytes: usize,
}

/// Why the DWARF of a file isn't used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unusable {
    /// There is none.
    Absent,
    /// It is compressed, and there is no room for what it holds.
    NoRoom,
    /// It can't be read.
    Broken,
}

impl Sections {
    /// Finds the sections of a file, or of a split one (`.dwo`, `.dwp`). Unpacking them takes `room_bytes` at most.
    pub(super) fn find(
        image: &Image,
        layout: &Layout,
        is_split: bool,
        room_bytes: usize,
    ) -> Result<Self, Unusable> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(0);
        let name = |id: SectionId| if is_split { id.dwo_name() } else { Some(id.name()) };
        let mut places = Vec::new();
        let mut unpacked_bytes = 0;
        let packaged = PACKAGED.into_iter().filter(|_| is_split);
        for id in NEEDED.into_iter().chain(packaged) {
            let Some(section) = name(id).and_then(|name| layout.section(name)) else { continue };
            if !section.is_compressed {
                let bytes = section.bytes.end - section.bytes.start;
                places.push((id, Place::File { offset: section.bytes.start, bytes }));
                continue;
            }
            let unpacked = unpacked(image, layout, section, room_bytes - unpacked_bytes)?;
            unpacked_bytes += unpacked.len();
            places.push((id, Place::Memory(unpacked.into())));
        }
        let has_units = places.iter().any(|(id, _)| *id == SectionId::DebugInfo);
        if !has_units {
            return Err(Unusable::Absent);
        }
        let endian = match layout.endian() {
            object::Endianness::Little => RunTimeEndian::Little,
            object::Endianness::Big => RunTimeEndian::Big,
        };
        let id = ImageId(NEXT_ID.fetch_add(1, Ordering::Relaxed));
        Ok(Self { image: image.clone(), id, endian, places, unpacked_bytes })
    }

    /// Bytes held in memory.
    pub(super) fn heap_bytes(&self) -> usize {
        self.unpacked_bytes + size_of_val(&*self.places)
    }

    /// Opens the sections for a look-up.
    pub(super) fn open<'a>(&'a self, pages: &'a Pages) -> OpenSections<'a> {
        let section = |place| Section::new(pages, &self.image, self.id, place);
        OpenSections {
            sections: self.places.iter().map(|(id, place)| (*id, section(place))).collect(),
            none: section(&Place::EMPTY),
            endian: self.endian,
        }
    }
}

/// Sections that are being read.
#[derive(Debug)]
pub(super) struct OpenSections<'a> {
    sections: Vec<(SectionId, Section<'a>)>,
    none: Section<'a>,
    endian: RunTimeEndian,
}

impl<'a> OpenSections<'a> {
    pub(super) fn dwarf(&'a self) -> Dwarf<Reader<'a>> {
        let Ok(dwarf) = Dwarf::load(|id| Ok::<_, std::convert::Infallible>(self.reader(id)));
        dwarf
    }

    /// The sections of a package of split files.
    pub(super) fn package(&'a self) -> gimli::Result<DwarfPackage<Reader<'a>>> {
        DwarfPackage::load(|id| Ok(self.reader(id)), self.none.reader(self.endian))
    }

    /// A section; an empty one, where there is none of the kind.
    fn reader(&'a self, wanted: SectionId) -> Reader<'a> {
        let found = self.sections.iter().find(|(id, _)| *id == wanted);
        found.map_or(&self.none, |(_, section)| section).reader(self.endian)
    }
}

/// What a section holds that begins with a compression header. Source: System V ABI, "Section Compression".
fn unpacked(
    image: &Image,
    layout: &Layout,
    section: &NamedSection,
    room_bytes: usize,
) -> Result<Vec<u8>, Unusable> {
    if !layout.is_little_endian_64() {
        return Err(Unusable::Broken);
    }
    let mut header = [0; COMPRESSION_HEADER_BYTES as usize];
    image.read_exact_at(section.bytes.start, &mut header).map_err(|_| Unusable::Broken)?;
    let [a, b, c, d, _, _, _, _, size @ ..] = header;
    let size = size.first_chunk().copied().map_or(u64::MAX, u64::from_le_bytes);
    let format = match u32::from_le_bytes([a, b, c, d]) {
        kind if kind == ELFCOMPRESS_ZLIB.0 => CompressionFormat::Zlib,
        kind if kind == ELFCOMPRESS_ZSTD.0 => CompressionFormat::Zstandard,
        _ => return Err(Unusable::Broken),
    };
    let packed_bytes = section
        .bytes
        .end
        .checked_sub(section.bytes.start + COMPRESSION_HEADER_BYTES)
        .ok_or(Unusable::Broken)?;
    // Both are in memory for a moment.
    if size.saturating_add(packed_bytes) > room_bytes as u64 {
        return Err(Unusable::NoRoom);
    }
    let mut data = vec![0; packed_bytes as usize];
    image
        .read_exact_at(section.bytes.start + COMPRESSION_HEADER_BYTES, &mut data)
        .map_err(|_| Unusable::Broken)?;
    let compressed = CompressedData { format, data: &data, uncompressed_size: size };
    compressed.decompress().map(std::borrow::Cow::into_owned).map_err(|_| Unusable::Broken)
}
