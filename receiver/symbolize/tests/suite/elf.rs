//! Builds small ELF files.

/// The address of the text of a built file, and its length.
pub(crate) const TEXT: u64 = 0x40_1000;
pub(crate) const TEXT_BYTES: u64 = 0x1000;

pub(crate) const FUNC: u8 = 2;
pub(crate) const NOTYPE: u8 = 0;
pub(crate) const OBJECT: u8 = 1;
pub(crate) const LOCAL: u8 = 0;
pub(crate) const GLOBAL: u8 = 1;
pub(crate) const WEAK: u8 = 2;

/// A symbol of a built file: binding, type, name, start (from [`TEXT`] on) and size.
#[derive(Clone, Copy)]
pub(crate) struct Made<'a>(pub(crate) u8, pub(crate) u8, pub(crate) &'a str, pub(crate) u64, pub(crate) u64);

/// A stub of a built file, 16 bytes long: start (from [`TEXT`] on), and the function that it jumps to, by its number among
/// the dynamic symbols.
pub(crate) struct MadeStub(pub(crate) u64, pub(crate) u32);

/// The words that stubs jump through.
const WORDS: u64 = 0x10_0000;

/// A 64-bit little-endian file with `.text`, the symbols `full` in `.symtab` and `dynamic` in `.dynsym`, and an
/// additional section with the given name.
pub(crate) fn elf(full: &[Made<'_>], dynamic: &[Made<'_>], extra_section: &str) -> Vec<u8> {
    elf_of_text(TEXT_BYTES, full, dynamic, &[], extra_section)
}

/// As [`elf`], with a `.text` of another length, and with stubs whose distances are multiples of 16.
pub(crate) fn elf_of_text(
    text_bytes: u64,
    full: &[Made<'_>],
    dynamic: &[Made<'_>],
    made_stubs: &[MadeStub],
    extra_section: &str,
) -> Vec<u8> {
    let (full, full_names) = tables(full);
    let (dynamic, dynamic_names) = tables(dynamic);
    let (plt, plt_address, relocations) = stubs(made_stubs);
    let section_names = format!("\0.text\0.plt\0{extra_section}\0").into_bytes();
    let mut file = vec![0; 64];
    // name, type, flags, address, contents or else a length, link
    let mut headers = Vec::new();
    let mut section = |name: u32, kind: u32, flags: u64, address: u64, bytes: &[u8], size: u64, link: u32| {
        let mut header = Vec::new();
        header.extend(name.to_le_bytes());
        header.extend(kind.to_le_bytes());
        for word in [flags, address, file.len() as u64, size] {
            header.extend(word.to_le_bytes());
        }
        header.extend(link.to_le_bytes());
        header.extend([0; 20]);
        headers.push(header);
        file.extend(bytes);
    };
    section(0, 0, 0, 0, &[], 0, 0);
    section(1, 8, 6, TEXT, &[], text_bytes, 0); // NOBITS: what its bytes are does not matter here
    section(0, 2, 0, 0, &full, full.len() as u64, 3);
    section(0, 3, 0, 0, &full_names, full_names.len() as u64, 0);
    section(0, 11, 2, 0, &dynamic, dynamic.len() as u64, 5);
    section(0, 3, 2, 0, &dynamic_names, dynamic_names.len() as u64, 0);
    section(0, 3, 0, 0, &section_names, section_names.len() as u64, 0);
    section(12, 1, 0, 0, &[], 0, 0);
    section(7, 1, 2, plt_address, &plt, plt.len() as u64, 0);
    section(0, 4, 2, 0, &relocations, relocations.len() as u64, 4);
    let mut header = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    header.extend([3, 0, 62, 0, 1, 0, 0, 0]); // a shared object for x86-64
    header.extend([0; 16]);
    header.extend((file.len() as u64).to_le_bytes());
    header.extend([0; 10]);
    header.extend([64, 0, headers.len() as u8, 0, 6, 0]);
    let offset = header.len() - 6;
    assert_eq!(offset, 58);
    file.splice(..64, header);
    file.extend(headers.concat());
    file
}

/// The contents of `.plt`, its address, and its relocations.
fn stubs(stubs: &[MadeStub]) -> (Vec<u8>, u64, Vec<u8>) {
    let first = stubs.iter().map(|MadeStub(start, _)| *start).min().unwrap_or(0);
    let (mut plt, mut relocations) = (Vec::new(), Vec::new());
    for (MadeStub(start, function), word) in stubs.iter().zip((WORDS..).step_by(8)) {
        let at = (start - first) as usize;
        plt.resize(plt.len().max(at + 16), 0);
        let next = TEXT + start + 6;
        plt[at..at + 2].copy_from_slice(&[0xff, 0x25]); // jmp *displacement(%rip)
        plt[at + 2..at + 6].copy_from_slice(&(word.wrapping_sub(next) as u32).to_le_bytes());
        relocations.extend(word.to_le_bytes());
        relocations.extend(((u64::from(*function) + 1) << 32 | 7).to_le_bytes()); // R_X86_64_JUMP_SLOT
        relocations.extend([0; 8]);
    }
    (plt, TEXT + first, relocations)
}

fn tables(symbols: &[Made<'_>]) -> (Vec<u8>, Vec<u8>) {
    let mut records = vec![0; 24];
    let mut names = vec![0];
    for Made(binding, kind, name, start, size) in symbols {
        records.extend((names.len() as u32).to_le_bytes());
        records.extend([binding << 4 | kind, 0, 1, 0]);
        records.extend((TEXT + start).to_le_bytes());
        records.extend(size.to_le_bytes());
        names.extend(name.as_bytes());
        names.push(0);
    }
    (records, names)
}
