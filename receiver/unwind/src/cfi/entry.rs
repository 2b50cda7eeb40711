//! The entries of a section of call frame information, CIEs and FDEs: their locations and lengths.

use gimli::{CommonInformationEntry, EndianSlice, FrameDescriptionEntry, LittleEndian};

pub(crate) type SectionBytes<'data> = EndianSlice<'data, LittleEndian>;
pub(crate) type Cie<'data> = CommonInformationEntry<SectionBytes<'data>>;
pub(crate) type Fde<'data> = FrameDescriptionEntry<SectionBytes<'data>>;

/// The longest CIE that is read. Real ones have some 20 to 50 bytes. A CIE's instructions run again for each FDE, so
/// without a bound a small file could take hours.
pub(crate) const MAX_CIE_BYTES: usize = 256;

/// The location of an FDE.
#[derive(Clone, Copy)]
pub(crate) struct FdeLocation {
    /// Its offset in the data that was read.
    pub(crate) offset: u32,
    /// Its offset in the section of the file, to which its pointers are relative.
    pub(crate) origin: u32,
}

impl FdeLocation {
    /// For a section that was read as a whole.
    pub(crate) fn in_section(offset: usize) -> Option<Self> {
        let offset = u32::try_from(offset).ok()?;
        Some(Self { offset, origin: offset })
    }
}

/// The length field of an entry (DWARF 5, section 7.4: 32 bits, or 64 after an escape).
pub(crate) struct EntryLength {
    /// Bytes after the field.
    pub(crate) content: usize,
    /// Bytes of field and content.
    pub(crate) total: usize,
}

impl EntryLength {
    /// Returns `None` for an entry that runs over the end of the data.
    pub(crate) fn read(data: &[u8], at: usize) -> Option<Self> {
        Self::stated(data, at).filter(|length| length.total <= data.len() - at)
    }

    /// Reads the length of an entry of which only the beginning may be present.
    pub(crate) fn stated(data: &[u8], at: usize) -> Option<Self> {
        let rest = data.get(at..)?;
        let (short, after) = rest.split_first_chunk::<4>()?;
        let (content, field) = match u32::from_le_bytes(*short) {
            u32::MAX => (u64::from_le_bytes(*after.first_chunk::<8>()?), 12),
            short => (u64::from(short), 4),
        };
        let content = usize::try_from(content).ok()?;
        Some(Self { content, total: content.checked_add(field)? })
    }

    /// Bytes of the field; `None` for the 64-bit form, which no linker writes.
    pub(crate) fn field(&self) -> Option<usize> {
        Some(self.total - self.content).filter(|field| *field == 4)
    }
}

/// The offsets of the entries of a section, from their lengths alone: nothing inside an entry can hide the next. `None`
/// stands for a last entry that runs over the section's end.
pub(crate) struct EntryOffsets<'data> {
    data: &'data [u8],
    at: usize,
    ends_at_terminator: bool,
}

impl<'data> EntryOffsets<'data> {
    pub(crate) fn new(data: &'data [u8], ends_at_terminator: bool) -> Self {
        Self { data, at: 0, ends_at_terminator }
    }
}

impl Iterator for EntryOffsets<'_> {
    type Item = Option<usize>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if self.at >= self.data.len() {
                return None;
            }
            let at = self.at;
            let Some(length) = EntryLength::read(self.data, at) else {
                self.at = self.data.len();
                return Some(None);
            };
            if length.content == 0 && self.ends_at_terminator {
                self.at = self.data.len();
                return None;
            }
            self.at = at + length.total;
            if length.content != 0 {
                return Some(Some(at));
            }
        }
    }
}
