//! Where a file has code: its segments and its sections with instructions.

use std::ops::Range;

use object::elf::SHF_EXECINSTR;
use object::{
    Architecture, File, Object as _, ObjectSection as _, ObjectSegment as _, ReadRef, SectionFlags,
};
use sidewinder_address::{FileOffset, LoadSegment, Svma};
use sidewinder_unwind_table::Architecture as FileArchitecture;

use crate::arch;
use crate::read::ReadFile;

/// Why a file has no table at all.
#[derive(Debug, thiserror::Error)]
pub enum UnwindTableError {
    /// The code is for an architecture that isn't supported.
    #[error("unsupported architecture {0:?}")]
    Architecture(Architecture),
    /// No segment of the file is executable (a separate debug file, a relocatable object, no ELF file).
    #[error("no executable segment")]
    NoCode,
}

/// The file's `PT_LOAD` segments, in the order of its headers, cut at the end of the file. Code is cut at 4 GiB, too, which is as far
/// as rows reach; and a segment that doesn't follow the ones before it is left out, since nothing would load it (System V ABI,
/// "Program Header": they are in the order of their addresses).
pub fn load_segments<'data, R: ReadRef<'data>>(file: &File<'data, R>) -> Vec<LoadSegment> {
    let file_bytes = file_bytes(file);
    let mut loads = Vec::new();
    let (mut end, mut code_bytes_left) = (0, u64::from(u32::MAX));
    for segment in file.segments() {
        let (file_offset, size) = segment.file_range();
        let size = size.min(file_bytes.saturating_sub(file_offset));
        let executable = segment.permissions().executable();
        let size = if executable { size.min(code_bytes_left) } else { size };
        if segment.address() < end {
            continue;
        }
        end = segment.address().saturating_add(size);
        code_bytes_left -= if executable { size } else { 0 };
        let svma = Svma(segment.address());
        loads.push(LoadSegment { file_offset: FileOffset(file_offset), svma, size, executable });
    }
    loads
}

/// The sorted, disjoint ranges of a file's instructions: its executable sections or, in a file without any, its
/// executable segments, which some linkers also put data in.
///
/// # Errors
///
/// If the file has no code, or code for another processor.
pub fn code_ranges<'data, R: ReadRef<'data>>(
    file: &File<'data, R>,
) -> Result<Vec<Range<Svma>>, UnwindTableError> {
    let code = CodeRanges::from_file(file)?;
    let ranges = code.instructions(file).into_iter();
    Ok(ranges.map(|(start, end)| code.svma(start)..code.svma(end)).collect())
}

/// Checks that a file is for the architecture of this machine, so that walks here can use its rules.
///
/// # Errors
///
/// If it is for another one.
pub fn check_native<'data, R: ReadRef<'data>>(file: &File<'data, R>) -> Result<(), UnwindTableError> {
    match arch::of_machine(file.architecture()) {
        Some(FileArchitecture::HOST) => Ok(()),
        _ => Err(UnwindTableError::Architecture(file.architecture())),
    }
}

/// The length of a file.
fn file_bytes<'data, R: ReadRef<'data>>(file: &File<'data, R>) -> u64 {
    match file {
        File::Elf64(elf) => elf.data().len().unwrap_or(0),
        _ => 0,
    }
}

/// The ranges in which a file has code: its executable segments, sorted, in bytes from the lowest of them.
#[derive(Clone, Debug)]
pub(crate) struct CodeRanges {
    architecture: FileArchitecture,
    base: Svma,
    ranges: Vec<ExecutableRange>,
    /// The parts for which rows are wanted; `None` means all.
    wanted: Option<Vec<Range<u32>>>,
}

#[derive(Clone, Debug)]
struct ExecutableRange {
    start: u32,
    end: u32,
    file_offset: u64,
}

impl CodeRanges {
    pub(crate) fn from_file<'data, R: ReadRef<'data>>(
        file: &File<'data, R>,
    ) -> Result<Self, UnwindTableError> {
        let stated = file.architecture();
        let architecture = arch::of_machine(stated).ok_or(UnwindTableError::Architecture(stated))?;
        Self::from_segments(file, architecture).ok_or(UnwindTableError::NoCode)
    }

    fn from_segments<'data, R: ReadRef<'data>>(
        file: &File<'data, R>,
        architecture: FileArchitecture,
    ) -> Option<Self> {
        // Segments don't wrap around the end of the address space.
        let ends =
            |segment: &object::Segment<'data, '_, R>| segment.address().checked_add(segment.size()).is_some();
        let executable =
            || file.segments().filter(|segment| segment.permissions().executable() && ends(segment));
        let base = executable().map(|segment| segment.address()).min()?;
        let mut ranges: Vec<_> = executable()
            .filter_map(|segment| {
                let start = u32::try_from(segment.address() - base).ok()?;
                let (file_offset, present) = segment.file_range();
                let end =
                    u64::from(start).saturating_add(segment.size().min(present)).min(u64::from(u32::MAX));
                Some(ExecutableRange { start, end: u32::try_from(end).ok()?, file_offset })
            })
            .collect();
        ranges.sort_unstable_by_key(|range| range.start);
        Some(Self { architecture, base: Svma(base), ranges, wanted: None })
    }

    /// Restricts the wanted rows to these parts; `None` means all.
    pub(crate) fn restrict_to(&mut self, parts: Option<&[Range<Svma>]>) {
        let base = self.base;
        let from_base = |at: Svma| u32::try_from(at.0.saturating_sub(base.0)).unwrap_or(u32::MAX);
        let of_parts = |parts: &[Range<Svma>]| {
            parts.iter().map(|part| from_base(part.start)..from_base(part.end)).collect()
        };
        self.wanted = parts.map(of_parts);
    }

    /// The parts for which rows are wanted; `None` means all.
    pub(crate) fn wanted(&self) -> Option<&[Range<u32>]> {
        self.wanted.as_deref()
    }

    /// The architecture of the code.
    pub(crate) fn architecture(&self) -> FileArchitecture {
        self.architecture
    }

    /// The lowest stated address of code.
    pub(crate) fn base(&self) -> Svma {
        self.base
    }

    /// Whether rows are wanted for any address of a range, or for the last one before it, because the end of a row is
    /// part of it.
    pub(crate) fn wants(&self, (start, end): (u32, u32)) -> bool {
        let Some(wanted) = &self.wanted else { return true };
        wanted.iter().any(|part| start <= part.end && part.start < end)
    }

    /// The stated address of an offset from the base.
    pub(crate) fn svma(&self, at: u32) -> Svma {
        Svma(self.base.0.saturating_add(u64::from(at)))
    }

    /// The ranges of instructions: executable sections or, in a file without any, executable segments.
    pub(crate) fn instructions<'data, R: ReadRef<'data>>(&self, file: &File<'data, R>) -> Vec<(u32, u32)> {
        let mut sections: Vec<_> = file
            .sections()
            .filter(|section| {
                matches!(section.flags(), SectionFlags::Elf { sh_flags, .. } if sh_flags.contains(SHF_EXECINSTR))
            })
            .filter_map(|section| {
                self.clip(section.address(), section.address().saturating_add(section.size()))
            })
            .collect();
        if sections.is_empty() {
            sections.extend(self.ranges());
        }
        sections.sort_unstable();
        let mut last_end = 0;
        sections.retain_mut(|(start, end)| {
            *start = (*start).max(last_end);
            last_end = last_end.max(*end);
            start < end
        });
        sections
    }

    /// The ranges of code, sorted.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.ranges.iter().map(|range| (range.start, range.end))
    }

    /// The distance from the base, if it fits.
    pub(crate) fn offset(&self, at: u64) -> Option<u32> {
        u32::try_from(Svma(at).checked_offset_from(self.base)?).ok()
    }

    /// The part of a stated range that lies in the segment that contains its start.
    pub(crate) fn clip(&self, start: u64, end: u64) -> Option<(u32, u32)> {
        let start = self.offset(start)?;
        let end = self.offset(end).unwrap_or(u32::MAX).min(self.range_at(start)?.end);
        (start < end).then_some((start, end))
    }

    /// The code from `start`, at most `length` bytes of it.
    pub(crate) fn bytes<'data, R: ReadRef<'data>>(
        &self,
        file: &File<'data, R>,
        start: u32,
        length: u64,
    ) -> Option<&'data [u8]> {
        let File::Elf64(elf) = file else { return None };
        let (offset, length) = self.place(start, length)?;
        elf.data().read_bytes_at(offset, length).ok()
    }

    /// The same, copied from the file, so that its reader doesn't keep it.
    pub(crate) fn read<'data, R: ReadFile<'data>>(
        &self,
        data: R,
        start: u32,
        length: u64,
    ) -> Option<Vec<u8>> {
        let (offset, length) = self.place(start, length)?;
        let mut bytes = vec![0; usize::try_from(length).ok()?];
        data.read_into(offset, &mut bytes)?;
        Some(bytes)
    }

    /// Where the file has the code from `start`, and how much of it, at most `length` bytes.
    fn place(&self, start: u32, length: u64) -> Option<(u64, u64)> {
        let range = self.range_at(start)?;
        let offset = range.file_offset.checked_add(u64::from(start - range.start))?;
        Some((offset, length.min(u64::from(range.end.checked_sub(start)?))))
    }

    fn range_at(&self, at: u32) -> Option<&ExecutableRange> {
        let after = self.ranges.partition_point(|range| range.start <= at);
        self.ranges.get(after.checked_sub(1)?).filter(|range| at < range.end)
    }
}
