//! Finds the DWARF sections of a file.

use gimli::{Dwarf, DwarfPackage, RunTimeEndian, SectionId};

use super::compressed::CompressedSection;
use super::pages::{ImageId, PageCache};
use super::section::{PagedSection, SectionLocation, SectionReader};
use crate::elf::ElfLayout;
use crate::image::Image;

/// The sections that look-ups need. Others would be decompressed without use.
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
/// The sections that a package of split files divides among its units, in addition to [`NEEDED`].
const PACKAGED: [SectionId; 5] = [
    SectionId::DebugLoc,
    SectionId::DebugLocLists,
    SectionId::DebugMacinfo,
    SectionId::DebugMacro,
    SectionId::DebugTypes,
];
/// The work budget for decompressing a section as a whole, as a multiple of its size (plus a small constant).
const UNPACKING_WORK: u64 = 4;
const UNPACKING_WORK_BYTES: u64 = 64 << 10;

/// A file's DWARF sections, almost none of which is in memory.
#[derive(Debug)]
pub(super) struct DwarfSections {
    image: Image,
    id: ImageId,
    endian: RunTimeEndian,
    places: Vec<(SectionId, SectionLocation)>,
    /// Memory for compressed sections and for reading them.
    unpacking_bytes: usize,
}

/// Why the DWARF of a file isn't used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SectionsError {
    /// There is no DWARF.
    Absent,
    /// It is compressed, and there is not enough memory to decompress it piece by piece.
    NoRoom,
    /// It can't be read.
    Broken,
}

impl DwarfSections {
    /// Finds the sections of a file, or of a split one (`.dwo`, `.dwp`). Compressed ones take at most `room_bytes`.
    pub(super) fn find(
        image: &Image,
        layout: &ElfLayout,
        is_split: bool,
        pages: &PageCache,
        room_bytes: usize,
    ) -> Result<Self, SectionsError> {
        let name = |id: SectionId| if is_split { id.dwo_name() } else { Some(id.name()) };
        let packaged = PACKAGED.into_iter().filter(|_| is_split);
        let mut places = Vec::new();
        for id in NEEDED.into_iter().chain(packaged) {
            let Some(section) = name(id).and_then(|name| layout.section(name)) else { continue };
            let place = if section.is_compressed {
                let packed = layout
                    .is_little_endian_64()
                    .then(|| CompressedSection::read(image, section.bytes.clone()))
                    .flatten()
                    .ok_or(SectionsError::Broken)?;
                SectionLocation::Compressed(ImageId::new(), packed)
            } else {
                SectionLocation::File {
                    offset: section.bytes.start,
                    bytes: section.bytes.end - section.bytes.start,
                }
            };
            places.push((id, place));
        }
        if !places.iter().any(|(id, _)| *id == SectionId::DebugInfo) {
            return Err(SectionsError::Absent);
        }
        let endian = match layout.endian() {
            object::Endianness::Little => RunTimeEndian::Little,
            object::Endianness::Big => RunTimeEndian::Big,
        };
        let unpacking_bytes = unpack(&mut places, image, pages, room_bytes as u64)? as usize;
        Ok(Self { image: image.clone(), id: ImageId::new(), endian, places, unpacking_bytes })
    }

    /// Bytes held in memory.
    pub(super) fn heap_bytes(&self) -> usize {
        self.unpacking_bytes + size_of_val(&*self.places)
    }

    /// Opens the sections for a look-up.
    pub(super) fn open<'a>(&'a self, pages: &'a PageCache) -> OpenSections<'a> {
        let section = |place| PagedSection::new(pages, &self.image, self.id, place);
        OpenSections {
            sections: self.places.iter().map(|(id, place)| (*id, section(place))).collect(),
            none: section(&SectionLocation::EMPTY),
            endian: self.endian,
        }
    }
}

/// Open sections.
#[derive(Debug)]
pub(super) struct OpenSections<'a> {
    sections: Vec<(SectionId, PagedSection<'a>)>,
    none: PagedSection<'a>,
    endian: RunTimeEndian,
}

impl<'a> OpenSections<'a> {
    pub(super) fn dwarf(&'a self) -> Dwarf<SectionReader<'a>> {
        let Ok(dwarf) = Dwarf::load(|id| Ok::<_, std::convert::Infallible>(self.reader(id)));
        dwarf
    }

    /// The sections of a package of split files.
    pub(super) fn package(&'a self) -> gimli::Result<DwarfPackage<SectionReader<'a>>> {
        DwarfPackage::load(|id| Ok(self.reader(id)), self.none.reader(self.endian))
    }

    /// A section; an empty one if the file doesn't have it.
    fn reader(&'a self, wanted: SectionId) -> SectionReader<'a> {
        let found = self.sections.iter().find(|(id, _)| *id == wanted);
        found.map_or(&self.none, |(_, section)| section).reader(self.endian)
    }
}

/// Decompresses small sections as a whole, and prepares the others for reading. Returns the memory that this takes,
/// which is at most the room.
fn unpack(
    places: &mut [(SectionId, SectionLocation)],
    image: &Image,
    pages: &PageCache,
    room_bytes: u64,
) -> Result<u64, SectionsError> {
    let mut taken_bytes = 0_u64;
    let mut total_bytes = 0_u64;
    for (_, place) in &mut *places {
        let SectionLocation::Compressed(_, packed) = place else { continue };
        let working_bytes = packed.working_bytes();
        taken_bytes = taken_bytes.saturating_add(packed.bytes.min(working_bytes));
        if taken_bytes > room_bytes {
            return Err(SectionsError::NoRoom);
        }
        // Reading it in pieces would take as much memory.
        if packed.bytes <= working_bytes {
            pages.set_work_budget(UNPACKING_WORK * packed.bytes + UNPACKING_WORK_BYTES);
            *place = SectionLocation::Memory(
                packed.whole(image, pages).map_err(|_| SectionsError::Broken)?.into(),
            );
        } else {
            total_bytes = total_bytes.saturating_add(packed.bytes);
        }
    }
    // The other half is for the tables of units.
    let stride_bytes = CompressedSection::stride_bytes(total_bytes, (room_bytes - taken_bytes) / 2);
    let packed = places.iter_mut().filter_map(|(_, place)| match place {
        SectionLocation::Compressed(_, packed) => Some(packed),
        SectionLocation::File { .. } | SectionLocation::Memory(_) => None,
    });
    Ok(taken_bytes + packed.map(|packed| packed.set_checkpoint_stride(stride_bytes)).sum::<u64>())
}
