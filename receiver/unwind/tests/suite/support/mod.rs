//! Builds small ELF files with unwind information, byte by byte.

use object::elf;

/// The address of the text of a built file, and its length.
pub(crate) const TEXT: u64 = 0x40_1000;
pub(crate) const TEXT_BYTES: usize = 0x4000;

/// DWARF instructions, as bytes.
pub(crate) mod cfa {
    pub(crate) fn advance(bytes: u8) -> Vec<u8> {
        assert!(bytes < 64);
        vec![0x40 | bytes]
    }
    pub(crate) fn def_cfa(register: u8, offset: u64) -> Vec<u8> {
        [vec![0x0c, register], uleb(offset)].concat()
    }
    pub(crate) fn def_cfa_offset(offset: u64) -> Vec<u8> {
        [vec![0x0e], uleb(offset)].concat()
    }
    pub(crate) fn def_cfa_register(register: u8) -> Vec<u8> {
        vec![0x0d, register]
    }
    pub(crate) fn def_cfa_expression(expression: &[u8]) -> Vec<u8> {
        [&[0x0f], &*uleb(expression.len() as u64), expression].concat()
    }
    /// The register is at the CFA minus `words` times 8.
    pub(crate) fn offset(register: u8, words: u8) -> Vec<u8> {
        vec![0x80 | register, words]
    }
    pub(crate) fn restore(register: u8) -> Vec<u8> {
        vec![0xc0 | register]
    }
    pub(crate) fn expression(register: u8, expression: &[u8]) -> Vec<u8> {
        [&[0x10, register], &*uleb(expression.len() as u64), expression].concat()
    }
    pub(crate) fn val_expression(register: u8, expression: &[u8]) -> Vec<u8> {
        [&[0x16, register], &*uleb(expression.len() as u64), expression].concat()
    }
    pub(crate) fn undefined(register: u8) -> Vec<u8> {
        vec![0x07, register]
    }
    pub(crate) fn in_register(register: u8, other: u8) -> Vec<u8> {
        vec![0x09, register, other]
    }
    pub(crate) fn same_value(register: u8) -> Vec<u8> {
        vec![0x08, register]
    }
    /// The register is at the CFA plus `factor` times the CIE's data alignment.
    pub(crate) fn offset_extended_sf(register: u8, factor: i8) -> Vec<u8> {
        vec![0x11, register, factor.cast_unsigned() & 0x7f]
    }
    /// The register's value is the CFA minus `words` times 8.
    pub(crate) fn val_offset(register: u8, words: u8) -> Vec<u8> {
        vec![0x14, register, words]
    }
    pub(crate) fn args_size(bytes: u8) -> Vec<u8> {
        vec![0x2e, bytes]
    }
    pub(crate) fn remember() -> Vec<u8> {
        vec![0x0a]
    }
    pub(crate) fn restore_state() -> Vec<u8> {
        vec![0x0b]
    }

    pub(crate) fn uleb(mut value: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        while value >= 0x80 {
            bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        bytes.push(value as u8);
        bytes
    }
}

pub(crate) const RBP: u8 = 6;
pub(crate) const RSP: u8 = 7;
pub(crate) const RA: u8 = 16;

/// A section of call frame information under construction.
pub(crate) struct Section {
    pub(crate) bytes: Vec<u8>,
    /// The return address's number, x86-64's unless stated otherwise.
    pub(crate) return_address: u8,
    is_debug_frame: bool,
}

impl Section {
    pub(crate) fn eh_frame() -> Self {
        Self { bytes: Vec::new(), return_address: RA, is_debug_frame: false }
    }

    pub(crate) fn debug_frame() -> Self {
        Self { is_debug_frame: true, ..Self::eh_frame() }
    }

    fn entry(&mut self, id: [u8; 4], content: &[u8]) -> usize {
        let at = self.bytes.len();
        let padded = (4 + content.len()).next_multiple_of(8);
        self.bytes.extend((padded as u32).to_le_bytes());
        self.bytes.extend(id);
        self.bytes.extend(content);
        self.bytes.resize(at + 4 + padded, 0);
        at
    }

    /// A CIE with the usual beginning of a function: CFA = rsp+8, return address at cfa-8. Returns its
    /// offset.
    pub(crate) fn cie(&mut self) -> usize {
        self.cie_with("zR", &[cfa::def_cfa(RSP, 8), cfa::offset(RA, 1)])
    }

    /// A CIE whose addresses are absolute.
    pub(crate) fn cie_with(&mut self, augmentation: &str, instructions: &[Vec<u8>]) -> usize {
        let data: &[u8] = if augmentation.contains('R') { &[0] } else { &[] };
        self.cie_with_data(augmentation, data, instructions)
    }

    /// The same with augmentation data.
    pub(crate) fn cie_with_data(
        &mut self,
        augmentation: &str,
        data: &[u8],
        instructions: &[Vec<u8>],
    ) -> usize {
        let version = [1];
        let data = [&[data.len() as u8], data].concat();
        let data: &[u8] = if augmentation.starts_with('z') { &data } else { &[] };
        let content = [
            &version,
            augmentation.as_bytes(),
            &[0, 1, 0x78, self.return_address],
            data,
            &instructions.concat(),
        ]
        .concat();
        let id = if self.is_debug_frame { [0xff; 4] } else { [0; 4] };
        self.entry(id, &content)
    }

    /// An FDE for `length` bytes from `start` bytes into the text. Returns its offset.
    pub(crate) fn fde(&mut self, cie: usize, start: u64, length: u64, instructions: &[Vec<u8>]) -> usize {
        self.fde_with_data(cie, start, length, &[], instructions)
    }

    /// The same with the augmentation data that its CIE requires.
    pub(crate) fn fde_with_data(
        &mut self,
        cie: usize,
        start: u64,
        length: u64,
        data: &[u8],
        instructions: &[Vec<u8>],
    ) -> usize {
        let id = if self.is_debug_frame { cie } else { self.bytes.len() + 4 - cie };
        let data = [&[data.len() as u8], data].concat();
        let augmentation_data: &[u8] = if self.is_debug_frame { &[] } else { &data };
        let content = [
            &TEXT.wrapping_add(start).to_le_bytes(),
            &length.to_le_bytes(),
            augmentation_data,
            &instructions.concat(),
        ]
        .concat();
        self.entry((id as u32).to_le_bytes(), &content)
    }

    pub(crate) fn terminator(&mut self) {
        self.bytes.extend([0; 4]);
    }
}

/// An x86-64 executable with `.text` and the given sections, which are loaded after it.
pub(crate) fn elf(entry: u64, code: &[u8], sections: &[(&str, &[u8])]) -> Vec<u8> {
    elf_with_symbols(entry, code, sections, &[])
}

/// The same with functions in `.symtab`: names, and starts and sizes in bytes of the text.
pub(crate) fn elf_with_symbols(
    entry: u64,
    code: &[u8],
    sections: &[(&str, &[u8])],
    symbols: &[(&str, u64, u64)],
) -> Vec<u8> {
    let text_offset = 0x1000;
    let text_bytes = TEXT_BYTES.max(code.len());
    let mut file = vec![0; text_offset + text_bytes];
    file[text_offset..text_offset + code.len()].copy_from_slice(code);
    let mut names = vec![0];
    let mut headers = vec![[0; 64].to_vec()];
    let text = [(".text", TEXT, text_offset, text_bytes)];
    let mut laid_out = text.to_vec();
    for (name, bytes) in sections {
        laid_out.push((*name, TEXT + (file.len() - text_offset) as u64, file.len(), bytes.len()));
        file.extend(*bytes);
        file.resize(file.len().next_multiple_of(16), 0);
    }
    for (name, address, offset, size) in laid_out {
        headers.push(section_header(names.len(), elf::SHT_PROGBITS.0, address, offset, size));
        names.extend(name.as_bytes());
        names.push(0);
    }
    let mut symbol_names = vec![0];
    let mut symbol_table = vec![0; 24];
    for (name, start, size) in symbols {
        symbol_table.extend((symbol_names.len() as u32).to_le_bytes());
        symbol_table.extend([0x12, 0, 1, 0]); // STB_GLOBAL, STT_FUNC, in the first section
        symbol_table.extend((TEXT + start).to_le_bytes());
        symbol_table.extend(size.to_le_bytes());
        symbol_names.extend(name.as_bytes());
        symbol_names.push(0);
    }
    for (name, kind, bytes) in
        [(".symtab\0", elf::SHT_SYMTAB, &symbol_table), (".strtab\0", elf::SHT_STRTAB, &symbol_names)]
    {
        let mut header = section_header(names.len(), kind.0, 0, file.len(), bytes.len());
        header[40..44].copy_from_slice(&(headers.len() as u32 + 1).to_le_bytes()); // sh_link
        header[56] = if kind == elf::SHT_SYMTAB { 24 } else { 0 }; // sh_entsize
        headers.push(header);
        names.extend(name.as_bytes());
        file.extend(bytes);
    }

    let names_at = names.len();
    names.extend(b".shstrtab\0");
    headers.push(section_header(names_at, elf::SHT_STRTAB.0, 0, file.len(), names.len()));
    file.extend(names);
    file.resize(file.len().next_multiple_of(16), 0);

    let headers_offset = file.len() as u64;
    let count = headers.len() as u16;
    file.extend(headers.concat());
    let segment = [
        &1u32.to_le_bytes()[..],
        &5u32.to_le_bytes(), // PF_R | PF_X
        &(text_offset as u64).to_le_bytes(),
        &TEXT.to_le_bytes(),
        &TEXT.to_le_bytes(),
        &(text_bytes as u64).to_le_bytes(),
        &(text_bytes as u64).to_le_bytes(),
        &0x1000u64.to_le_bytes(),
    ]
    .concat();
    let header = [
        &b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0"[..],
        &2u16.to_le_bytes(),
        &62u16.to_le_bytes(),
        &1u32.to_le_bytes(),
        &entry.to_le_bytes(),
        &64u64.to_le_bytes(),
        &headers_offset.to_le_bytes(),
        &0u32.to_le_bytes(),
        &64u16.to_le_bytes(),
        &56u16.to_le_bytes(),
        &1u16.to_le_bytes(),
        &64u16.to_le_bytes(),
        &count.to_le_bytes(),
        &(count - 1).to_le_bytes(),
    ]
    .concat();
    file[..64].copy_from_slice(&header);
    file[64..64 + 56].copy_from_slice(&segment);
    file
}

fn section_header(name: usize, kind: u32, address: u64, offset: usize, size: usize) -> Vec<u8> {
    [
        &(name as u32).to_le_bytes()[..],
        &kind.to_le_bytes(),
        &2u64.to_le_bytes(), // SHF_ALLOC
        &address.to_le_bytes(),
        &(offset as u64).to_le_bytes(),
        &(size as u64).to_le_bytes(),
        &0u64.to_le_bytes(),
        &1u64.to_le_bytes(),
        &0u64.to_le_bytes(),
    ]
    .concat()
}
