//! Writes ELF files whose headers and sections claim whatever they like, to see what reading them costs.

use std::fs::File;
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::path::Path;

use object::elf::{
    ELFCOMPRESS_ZLIB, EM_X86_64, ET_DYN, PF_R, PF_X, PT_GNU_EH_FRAME, PT_LOAD, ProgramFlags, ProgramType,
    SHF_ALLOC, SHF_COMPRESSED, SHF_EXECINSTR, SHT_PROGBITS, SHT_STRTAB, SectionFlags, SectionType,
};

/// The code's offset in the file, which is also its stated address.
pub const CODE_OFFSET: u64 = 4096;

/// `pause`, and a jump back to it.
const ENDLESS_LOOP: [u8; 4] = [0xf3, 0x90, 0xeb, 0xfc];

const FILE_HEADER_BYTES: u64 = 64;
const PROGRAM_HEADER_BYTES: usize = 56;
const SECTION_HEADER_BYTES: usize = 64;

/// A shared library for x86-64, whose code begins with an endless loop. Everything is at the stated address that equals its
/// offset in the file.
#[derive(Clone, Debug, Default)]
pub struct ElfWriter {
    /// The code after the loop.
    pub code: Vec<u8>,
    /// The minimum size of the executable segment. Behind the code, the file has a hole.
    pub segment_bytes: u64,
    /// How many more program headers state the same executable segment.
    pub more_segments: u16,
    /// The sections after `.text`, which is number 1.
    pub sections: Vec<Section>,
}

/// A section of a file to be written.
#[derive(Clone, Debug)]
pub struct Section {
    /// Its name. A program header refers to `.eh_frame_hdr`, too.
    pub name: &'static str,
    /// `SHT_PROGBITS` or another type.
    pub kind: SectionType,
    /// None, or `SHF_COMPRESSED` and others.
    pub flags: SectionFlags,
    /// The number of another section.
    pub link: u32,
    /// Its bytes.
    pub content: Vec<u8>,
    /// The size of a hole in the file, after the bytes.
    pub hole_bytes: u64,
}

impl Section {
    /// A section with these bytes.
    #[must_use]
    pub fn new(name: &'static str, content: Vec<u8>) -> Self {
        Self { name, kind: SHT_PROGBITS, flags: SectionFlags(0), link: 0, content, hole_bytes: 0 }
    }

    /// A section with bytes that zlib has compressed.
    #[must_use]
    pub fn compressed(name: &'static str, compressed: &[u8], uncompressed_bytes: u64) -> Self {
        let header = [u64::from(ELFCOMPRESS_ZLIB.0), uncompressed_bytes, 1].map(u64::to_le_bytes).concat();
        Self { flags: SHF_COMPRESSED, ..Self::new(name, [&header, compressed].concat()) }
    }

    fn bytes(&self) -> u64 {
        self.content.len() as u64 + self.hole_bytes
    }
}

impl ElfWriter {
    /// Writes the file.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let mut file = File::create(path)?;
        let mut write_at = |at: u64, bytes: &[u8]| {
            file.seek(SeekFrom::Start(at))?;
            file.write_all(bytes)
        };
        let code = [&ENDLESS_LOOP[..], &self.code].concat();
        let code_bytes = self.segment_bytes.max(code.len() as u64);
        write_at(CODE_OFFSET, &code)?;

        let is_code = SectionFlags(SHF_ALLOC.0 | SHF_EXECINSTR.0);
        let mut sections = SectionHeaders::new();
        sections.add(".text", SHT_PROGBITS, is_code, CODE_OFFSET..CODE_OFFSET + code_bytes, 0);
        let mut programs = program_header(PT_LOAD, PF_R, 0, CODE_OFFSET);
        for _ in 0..=self.more_segments {
            programs.extend(program_header(PT_LOAD, ProgramFlags(PF_R.0 | PF_X.0), CODE_OFFSET, code_bytes));
        }
        let mut at = (CODE_OFFSET + code_bytes).next_multiple_of(CODE_OFFSET);
        for section in &self.sections {
            let end = at + section.bytes();
            write_at(at, &section.content)?;
            sections.add(section.name, section.kind, section.flags, at..end, section.link);
            if section.name == ".eh_frame_hdr" {
                programs.extend(program_header(PT_GNU_EH_FRAME, PF_R, at, section.bytes()));
            }
            at = end.next_multiple_of(CODE_OFFSET);
        }
        let (headers, names) = sections.finish(at);
        write_at(at, &names)?;
        let headers_at = (at + names.len() as u64).next_multiple_of(CODE_OFFSET);
        write_at(headers_at, &headers)?;
        let programs_at = headers_at + headers.len() as u64;
        write_at(programs_at, &programs)?;
        write_at(0, &file_header((programs_at, programs.len()), (headers_at, headers.len())))
    }
}

/// The section headers of a file, and their names.
struct SectionHeaders {
    headers: Vec<u8>,
    names: Vec<u8>,
}

impl SectionHeaders {
    fn new() -> Self {
        Self { headers: vec![0; SECTION_HEADER_BYTES], names: vec![0] }
    }

    fn add(
        &mut self,
        name: &str,
        kind: SectionType,
        flags: SectionFlags,
        range: std::ops::Range<u64>,
        link: u32,
    ) {
        /// Of symbols, and of relocations with addends.
        const ENTRY_BYTES: u64 = 24;
        let name_at = self.names.len() as u32;
        self.names.extend([name.as_bytes(), b"\0"].concat());
        self.headers.extend([name_at, kind.0].map(u32::to_le_bytes).concat());
        let words = [flags.0, range.start, range.start, range.end - range.start];
        self.headers.extend(words.map(u64::to_le_bytes).concat());
        self.headers.extend([link, 0].map(u32::to_le_bytes).concat());
        self.headers.extend([1, ENTRY_BYTES].map(u64::to_le_bytes).concat());
    }

    /// The headers and the names, which will be at this offset of the file.
    fn finish(mut self, names_at: u64) -> (Vec<u8>, Vec<u8>) {
        const NAME: &str = ".shstrtab";
        let names_bytes = (self.names.len() + NAME.len() + 1) as u64;
        self.add(NAME, SHT_STRTAB, SectionFlags(0), names_at..names_at + names_bytes, 0);
        (self.headers, self.names)
    }
}

fn program_header(kind: ProgramType, flags: ProgramFlags, at: u64, bytes: u64) -> Vec<u8> {
    let words = [at, at, at, bytes, bytes, CODE_OFFSET].map(u64::to_le_bytes).concat();
    [[kind.0, flags.0].map(u32::to_le_bytes).concat(), words].concat()
}

/// The file header, by the offsets and sizes of the tables of program headers and section headers.
fn file_header(
    (programs_at, programs_bytes): (u64, usize),
    (sections_at, sections_bytes): (u64, usize),
) -> Vec<u8> {
    let sections = sections_bytes / SECTION_HEADER_BYTES;
    let sizes = [
        FILE_HEADER_BYTES as usize,
        PROGRAM_HEADER_BYTES,
        programs_bytes / PROGRAM_HEADER_BYTES,
        SECTION_HEADER_BYTES,
        sections,
        sections - 1,
    ];
    let mut header = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    header.extend([ET_DYN.0, EM_X86_64.0].map(u16::to_le_bytes).concat());
    header.extend(1_u32.to_le_bytes());
    header.extend([CODE_OFFSET, programs_at, sections_at].map(u64::to_le_bytes).concat());
    header.extend(0_u32.to_le_bytes());
    header.extend(sizes.map(|size| u16::try_from(size).unwrap_or(u16::MAX).to_le_bytes()).concat());
    header
}
