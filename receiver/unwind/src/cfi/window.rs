//! Reads `.eh_frame` in windows: only the entries that describe given parts of the code.

use std::collections::BTreeMap;
use std::ops::Range;

use object::elf::PT_GNU_EH_FRAME;
use object::read::elf::ProgramHeader as _;
use object::{File, Object as _, ObjectSection as _, ObjectSegment as _};
use sidewinder_address::Svma;

use super::entry::{EntryLength, FdeLocation, MAX_CIE_BYTES};
use crate::memory::{Memory, Reservation};
use crate::read::ReadFile;

/// The header's version and encodings as every linker writes them: `pcrel|sdata4`, `udata4`, and `datarel|sdata4` for
/// the table. Source: Linux Standard Base, "The .eh_frame_hdr section".
const HEADER: [u8; 4] = [1, 0x1b, 0x03, 0x3b];
const HEADER_BYTES: usize = 12;
const ENTRY_BYTES: usize = 8;

/// The most entries of a table that are used. The largest libraries have a million.
const MAX_ENTRIES: u64 = 4 << 20;
/// Binary search narrows the table down to this many entries, which are then read at once.
const SEARCHED_AT_ONCE: u64 = 128;
/// The most functions in all parts together.
const MAX_FUNCTIONS: usize = 1 << 16;

/// FDEs whose gap is at most this long are read together.
const MAX_GAP_BYTES: u64 = 1024;
/// The most bytes read together.
const MAX_READ_BYTES: u64 = 256 << 10;
/// Bytes read from the start of an FDE before its length is known.
const MOST_FDE_BYTES: u64 = 256;
/// The largest `.eh_frame` that is small: some five times the size in glibc's dynamic linker, and in the C part of a Haskell
/// program.
pub(crate) const MAX_SMALL_BYTES: u64 = 64 << 10;
/// The longest FDE that is read. Real ones have some 20 to 1000 bytes.
const MAX_FDE_BYTES: u64 = 64 << 10;

/// The sorted table in `.eh_frame_hdr`: the start of each function, and the location of its FDE.
#[derive(Clone, Debug)]
pub(crate) struct EhFrameHdrIndex {
    /// The stated address of `.eh_frame_hdr`, to which its entries are relative.
    header_address: u64,
    /// The table's offset in the file.
    table_offset: u64,
    entries: u64,
    /// `.eh_frame`.
    address: u64,
    file_offset: u64,
    bytes: u64,
}

/// Some FDEs and their CIEs, as a separate section.
pub(crate) struct FdeWindow<'memory> {
    pub(crate) data: Vec<u8>,
    /// For what is made of it.
    pub(crate) memory: Memory<'memory>,
    /// For `data` and `places`.
    reserved: Reservation<'memory>,
    /// The stated address of the section that they come from.
    pub(crate) address: u64,
    /// The location of each FDE, in the order of the section.
    pub(crate) places: Vec<FdeLocation>,
    /// FDEs that can't be read, or whose CIE can't.
    pub(crate) malformed: u64,
}

impl FdeWindow<'_> {
    /// Appends an entry, and returns its offset; `None` if it doesn't fit the memory.
    fn append(&mut self, entry: &[u8]) -> Option<usize> {
        let at = self.data.len();
        self.reserved.extend(&mut self.data, entry).then_some(at)
    }
}

impl EhFrameHdrIndex {
    /// The table of a file; `None` if the file has none, or one in another format.
    pub(crate) fn from_file<'data, R: ReadFile<'data>>(file: &File<'data, R>) -> Option<Self> {
        let File::Elf64(elf) = file else { return None };
        let endian = elf.endian();
        let header =
            elf.elf_program_headers().iter().find(|header| header.p_type(endian) == PT_GNU_EH_FRAME)?;
        let (header_address, offset) = (header.p_vaddr(endian), header.p_offset(endian));
        let mut head = [0; HEADER_BYTES];
        elf.data().read_into(offset, &mut head)?;
        let pointer = i32::from_le_bytes(*head.get(4..)?.first_chunk()?);
        let entries = u32::from_le_bytes(*head.get(8..)?.first_chunk()?);
        if !head.starts_with(&HEADER) {
            return None;
        }
        let table_bytes = header.p_filesz(endian).checked_sub(HEADER_BYTES as u64)?;
        let address = header_address.checked_add(4)?.checked_add_signed(pointer.into())?;
        let (file_offset, bytes) = place_of(file, address)?;
        Some(Self {
            header_address,
            table_offset: offset.checked_add(HEADER_BYTES as u64)?,
            entries: u64::from(entries).min(table_bytes / ENTRY_BYTES as u64).min(MAX_ENTRIES),
            address,
            file_offset,
            bytes,
        })
    }

    /// The number of functions.
    pub(crate) fn functions(&self) -> u64 {
        self.entries
    }

    /// The locations of the FDEs of some functions, by their indices in the table.
    pub(crate) fn offsets<'data, R: ReadFile<'data>>(
        &self,
        file: R,
        indices: Range<u64>,
    ) -> Option<Vec<u64>> {
        let mut buffer = Vec::new();
        let count = indices.end.min(self.entries).checked_sub(indices.start)?;
        let entries = self.read_entries(file, indices.start, count, &mut buffer)?;
        Some(entries.filter_map(|(_, fde)| self.offset_of(fde)).collect())
    }

    /// All FDEs, if `.eh_frame` is small.
    pub(crate) fn whole_if_small<'data, R: ReadFile<'data>>(&self, file: R) -> Option<FdeWindow<'data>> {
        let is_small = self.bytes <= MAX_SMALL_BYTES;
        is_small.then(|| self.window(file, self.offsets(file, 0..self.entries)?))?
    }

    /// Reads what describes these functions, given by the locations of their FDEs.
    pub(crate) fn window<'data, R: ReadFile<'data>>(
        &self,
        data: R,
        mut offsets: Vec<u64>,
    ) -> Option<FdeWindow<'data>> {
        offsets.sort_unstable();
        offsets.dedup();
        let memory = data.memory();
        let mut window = FdeWindow {
            data: Vec::new(),
            memory,
            reserved: memory.reserve(offsets.len().saturating_mul(size_of::<FdeLocation>()))?,
            address: self.address,
            places: Vec::with_capacity(offsets.len()),
            malformed: 0,
        };
        let mut cies = BTreeMap::new();
        let mut buffer = Vec::new();
        let mut rest = &*offsets;
        while let Some(&first) = rest.first() {
            let is_near =
                |(one, next): (&u64, &u64)| next - one <= MAX_GAP_BYTES && next - first <= MAX_READ_BYTES;
            let pairs = rest.iter().zip(rest.iter().skip(1));
            let together = 1 + pairs.take_while(|pair| is_near(*pair)).count();
            let (here, behind) = rest.split_at(together);
            rest = behind;
            self.read(data, first, here.last()? - first + MOST_FDE_BYTES, &mut buffer)?;
            for &offset in here {
                if self.copy(data, &buffer, (offset, offset - first), &mut cies, &mut window).is_none() {
                    window.malformed += 1;
                }
            }
        }
        Some(window)
    }

    /// Copies one FDE, and its CIE unless that was copied already. `None` also if they don't fit the memory.
    fn copy<'data, R: ReadFile<'data>>(
        &self,
        file: R,
        buffer: &[u8],
        (offset, within): (u64, u64),
        cies: &mut BTreeMap<u64, usize>,
        window: &mut FdeWindow<'data>,
    ) -> Option<()> {
        let within = usize::try_from(within).ok()?;
        let length = EntryLength::stated(buffer, within)?;
        let mut whole = Vec::new();
        let fde = match buffer.get(within..within.checked_add(length.total)?) {
            Some(fde) => fde,
            None if length.total as u64 > MAX_FDE_BYTES => return None,
            None => {
                self.read(file, offset, length.total as u64, &mut whole)?;
                whole.get(..length.total)?
            }
        };
        let field = length.field()?;
        // The pointer is the distance back from itself.
        let pointer = u32::from_le_bytes(*fde.get(field..)?.first_chunk()?);
        let cie_offset = offset.checked_add(field as u64)?.checked_sub(u64::from(pointer))?;
        let cie_at = match cies.get(&cie_offset) {
            Some(at) => *at,
            None => {
                let mut cie = Vec::new();
                self.read(file, cie_offset, MAX_CIE_BYTES as u64, &mut cie)?;
                let at = window.append(cie.get(..EntryLength::stated(&cie, 0)?.total)?)?;
                cies.insert(cie_offset, at);
                at
            }
        };
        let at = window.append(fde)?;
        let pointer = u32::try_from(at + field - cie_at).ok()?;
        window.data.get_mut(at + field..at + field + 4)?.copy_from_slice(&pointer.to_le_bytes());
        window
            .places
            .push(FdeLocation { offset: u32::try_from(at).ok()?, origin: u32::try_from(offset).ok()? });
        Some(())
    }

    /// Reads from an offset within `.eh_frame`, up to `length` bytes or the end.
    fn read<'data, R: ReadFile<'data>>(
        &self,
        file: R,
        offset: u64,
        bytes: u64,
        buffer: &mut Vec<u8>,
    ) -> Option<()> {
        let bytes = self.bytes.checked_sub(offset)?.min(bytes);
        buffer.resize(usize::try_from(bytes).ok()?, 0);
        file.read_into(self.file_offset.checked_add(offset)?, buffer)
    }

    /// Adds the FDE locations of the functions of a part, and of those next to it.
    pub(crate) fn functions_of<'data, R: ReadFile<'data>>(
        &self,
        file: R,
        part: &Range<Svma>,
        offsets: &mut Vec<u64>,
    ) -> Option<()> {
        let mut at = self.first_at(file, part.start.0)?.saturating_sub(1);
        let mut buffer = Vec::new();
        while at < self.entries && offsets.len() < MAX_FUNCTIONS {
            let count = SEARCHED_AT_ONCE.min(self.entries - at);
            for (start, fde) in self.read_entries(file, at, count, &mut buffer)? {
                offsets.extend(self.offset_of(fde));
                if start > part.end.0 {
                    return Some(());
                }
            }
            at += SEARCHED_AT_ONCE;
        }
        Some(())
    }

    /// The function that contains or precedes an address: the range in which no other function starts, and the location
    /// of its FDE.
    pub(crate) fn function_at<'data, R: ReadFile<'data>>(
        &self,
        file: R,
        address: Svma,
    ) -> Option<(Range<Svma>, Option<u64>)> {
        let next = self.first_at(file, address.0.checked_add(1)?)?;
        let mut buffer = Vec::new();
        let first = next.saturating_sub(1);
        let mut entries = self.read_entries(file, first, (self.entries - first).min(2), &mut buffer)?;
        let end = |entry: Option<(u64, u64)>| Svma(entry.map_or(u64::MAX, |(start, _)| start));
        if next == 0 {
            return Some((Svma(0)..end(entries.next()), None));
        }
        let (start, fde) = entries.next()?;
        Some((Svma(start)..end(entries.next()), self.offset_of(fde)))
    }

    /// The first entry of a function that starts at or above an address.
    fn first_at<'data, R: ReadFile<'data>>(&self, file: R, address: u64) -> Option<u64> {
        let (mut low, mut high) = (0, self.entries);
        let mut buffer = Vec::new();
        while high - low > SEARCHED_AT_ONCE {
            let middle = low + (high - low) / 2;
            let (start, _) = self.read_entries(file, middle, 1, &mut buffer)?.next()?;
            if start < address { low = middle + 1 } else { high = middle }
        }
        let before = self.read_entries(file, low, high - low, &mut buffer)?;
        Some(low + before.take_while(|(start, _)| *start < address).count() as u64)
    }

    /// The offset in `.eh_frame` of a stated address.
    fn offset_of(&self, address: u64) -> Option<u64> {
        address.checked_sub(self.address).filter(|offset| *offset < self.bytes)
    }

    /// The stated addresses of functions and of their FDEs.
    fn read_entries<'data, 'buffer, R: ReadFile<'data>>(
        &self,
        file: R,
        from: u64,
        count: u64,
        buffer: &'buffer mut Vec<u8>,
    ) -> Option<impl Iterator<Item = (u64, u64)> + use<'buffer, 'data, R>> {
        let base = self.header_address;
        buffer.resize(usize::try_from(count).ok()?.checked_mul(ENTRY_BYTES)?, 0);
        let offset = self.table_offset.checked_add(from.checked_mul(ENTRY_BYTES as u64)?)?;
        file.read_into(offset, buffer)?;
        let address =
            move |from_base: [u8; 4]| base.wrapping_add_signed(i32::from_le_bytes(from_base).into());
        Some(
            buffer
                .as_chunks::<4>()
                .0
                .as_chunks::<2>()
                .0
                .iter()
                .map(move |[start, fde]| (address(*start), address(*fde))),
        )
    }
}

/// The location in the file of `.eh_frame`, given its stated address: its section or, without section headers, the rest
/// of its segment.
fn place_of<'data, R: ReadFile<'data>>(file: &File<'data, R>, address: u64) -> Option<(u64, u64)> {
    if let Some(section) = file.section_by_name(".eh_frame") {
        return section.file_range().filter(|_| section.address() == address);
    }
    let holds = |(segment_address, (_, bytes)): &(u64, (u64, u64))| {
        address.checked_sub(*segment_address).is_some_and(|within| within < *bytes)
    };
    let segments = file.segments().map(|segment| (segment.address(), segment.file_range()));
    let (segment_address, (offset, bytes)) = segments.into_iter().find(holds)?;
    let within = address - segment_address;
    Some((offset.checked_add(within)?, bytes - within))
}
