//! Malicious files.

use std::fs::File;
use std::io::Write;

use proptest::prelude::*;
use sidewinder_address::Svma;
use sidewinder_symbolize::{SymbolLimits, SymbolTable, SymbolTableError};

use crate::elf::{FUNC, GLOBAL, Made, TEXT, elf};

fn small() -> Vec<u8> {
    let symbols = [Made(GLOBAL, FUNC, "one", 0, 0x20), Made(GLOBAL, FUNC, "two", 0x20, 0x20)];
    elf(&symbols, &[Made(GLOBAL, FUNC, "three", 0x40, 0x20)], ".gopclntab")
}

/// Reads a file and looks up addresses all over it; only that this ends without a panic matters.
fn survives(bytes: Vec<u8>) {
    let limits = SymbolLimits { symbols: 1000, symbols_scanned: 10_000, name_bytes: 64 };
    let Ok(table) = SymbolTable::read(bytes, limits) else { return };
    assert!(table.len() <= limits.symbols);
    for svma in [0, TEXT, TEXT + 0x21, TEXT + 0x50, u64::MAX] {
        if let Ok(Some(symbol)) = table.lookup(Svma(svma)) {
            assert!(symbol.name.len() <= limits.name_bytes * '\u{fffd}'.len_utf8());
        }
    }
}

proptest! {
    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..4096)) {
        survives(bytes);
    }

    #[test]
    fn any_bytes_behind_an_elf_header_are_survived(tail in prop::collection::vec(any::<u8>(), 0..4096), class in 1_u8..3) {
        let mut bytes = vec![0x7f, b'E', b'L', b'F', class, 1, 1];
        bytes.extend(tail);
        survives(bytes);
    }

    #[test]
    fn any_change_of_a_good_file_is_survived(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u64>(), 0_usize..9), 1..8),
    ) {
        let mut bytes = small();
        for (at, value, width) in changes {
            let at = at.index(bytes.len());
            bytes.iter_mut().skip(at).zip(value.to_le_bytes()).take(width).for_each(|(to, from)| *to = from);
        }
        survives(bytes);
    }

    #[test]
    fn any_cut_of_a_good_file_is_survived(length in any::<prop::sample::Index>()) {
        let mut bytes = small();
        bytes.truncate(length.index(bytes.len()));
        survives(bytes);
    }
}

#[test]
fn a_file_that_shrinks_after_it_was_indexed_gives_an_error_and_no_signal() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&small()).unwrap();
    let table = SymbolTable::read(File::open(file.path()).unwrap(), SymbolLimits::default()).unwrap();
    assert!(table.lookup(Svma(TEXT)).unwrap().is_some());
    file.as_file().set_len(64).unwrap();
    assert!(matches!(table.lookup(Svma(TEXT)), Err(SymbolTableError::Read { what: "symbol name", .. })));
}

#[test]
fn a_sparse_file_of_a_terabyte_of_symbols_is_cut() {
    let file = tempfile::tempfile().unwrap();
    let mut bytes = small();
    let sections = u64::from_le_bytes(bytes[40..48].try_into().unwrap()) as usize;
    // The size of the third section, `.symtab`.
    bytes[sections + 2 * 64 + 32..][..8].copy_from_slice(&(1_u64 << 40).to_le_bytes());
    (&file).write_all(&bytes).unwrap();
    file.set_len(1 << 41).unwrap();
    let limits = SymbolLimits { symbols_scanned: 100_000, ..SymbolLimits::default() };
    let table = SymbolTable::read(file, limits).unwrap();
    assert!(table.cut().beyond_limit > 0);
}
