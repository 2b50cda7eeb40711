use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

/// Words by address; any other address is unmapped.
struct Words(HashMap<u64, u64>);

impl ForeignMemory for Words {
    fn read_exact(&self, at: Avma, to: &mut [u8]) -> io::Result<()> {
        let word = self.0.get(&at.0).ok_or(io::ErrorKind::NotFound)?;
        to.copy_from_slice(&word.to_ne_bytes());
        Ok(())
    }
}

fn symbol(slots: &[TlsGotEntry]) -> TlsSymbol {
    TlsSymbol { value: Some(16), image: None, is_program: false, slots: slots.to_vec(), loads: Vec::new() }
}

fn locate(slot: TlsGotEntry, words: &[(u64, u64)]) -> Option<TlsLocation> {
    symbol(&[slot]).locate(0x5000, &Words(words.iter().copied().collect())).ok()
}

#[test]
fn words_that_the_linker_has_not_filled_in_are_skipped() {
    const AT: Svma = Svma(0x100);
    let fixed = Some(TlsLocation::Static { offset: -8 });
    let dynamic = Some(TlsLocation::Dynamic { module: 2, offset: 16 });
    let minus_8 = -8_i64 as u64;
    assert_eq!(locate(TlsGotEntry::Offset(AT, 0), &[(0x5100, 0)]), None);
    assert_eq!(locate(TlsGotEntry::Offset(AT, 0), &[(0x5100, 16)]), None, "above the thread pointer");
    assert_eq!(locate(TlsGotEntry::Offset(AT, 0), &[(0x5100, minus_8)]), fixed);
    assert_eq!(locate(TlsGotEntry::Module(AT, 0), &[(0x5100, 0), (0x5108, 0)]), None);
    assert_eq!(locate(TlsGotEntry::Module(AT, 0), &[(0x5100, 2), (0x5108, 16)]), dynamic);
    assert_eq!(locate(TlsGotEntry::OwnModule(AT, 16), &[(0x5100, 2)]), dynamic);
    assert_eq!(locate(TlsGotEntry::Descriptor(AT, 0), &[(0x5100, 0), (0x5108, minus_8)]), None);
    assert_eq!(locate(TlsGotEntry::Descriptor(AT, 0), &[(0x5100, 1), (0x5108, minus_8)]), fixed);
    assert_eq!(locate(TlsGotEntry::Descriptor(AT, 0), &[(0x5100, 1), (0x5108, 16)]), None);
    let argument = [(0x5100, 1), (0x5108, 0x7f00_0000), (0x7f00_0000, 2), (0x7f00_0008, 16)];
    assert_eq!(locate(TlsGotEntry::Descriptor(AT, 0), &argument), dynamic);
    // Before its first use, the argument is the relocation, whose first word is an address.
    let unresolved = [(0x5100, 1), (0x5108, 0x7f00_0000), (0x7f00_0000, 0x3fd8), (0x7f00_0008, 36)];
    assert_eq!(locate(TlsGotEntry::Descriptor(AT, 0), &unresolved), None);
}

#[test]
fn an_unresolved_slot_is_skipped() {
    let both = symbol(&[TlsGotEntry::Module(Svma(0), 0), TlsGotEntry::Offset(Svma(0x10), 0)]);
    let words = Words([(0x10, -8_i64 as u64)].into());
    assert_eq!(both.locate(0, &words).unwrap(), TlsLocation::Static { offset: -8 });
    let unreadable = both.locate(8, &words);
    assert!(matches!(unreadable, Err(TlsVariableError::Unreadable(_))));
}

/// The linkers' own formula: the end of the image is rounded up to the next multiple of its alignment.
#[test]
fn a_programs_block_ends_at_the_thread_pointer() {
    let offset = |address, bytes, align, value| TlsImage { address, bytes, align }.offset_in_program(value);
    assert_eq!(offset(0x1000, 8, 8, 0), -8);
    assert_eq!(offset(0x1000, 9, 8, 8), -8);
    assert_eq!(offset(0x1000, 40, 32, 0), -64);
    assert_eq!(offset(0x1000, 40, 0, 32), -8);
    assert_eq!(offset(0x1010, 40, 32, 0), -48, "an image whose start is not aligned");
}

proptest! {
    #[test]
    fn any_words_are_understood_or_not(words: [u64; 4], address: u64, value: u64, bias: u64, bytes: u64, align: u64) {
        let all: [fn(Svma) -> TlsGotEntry; 4] = [
            |at| TlsGotEntry::Offset(at, i64::MAX),
            |at| TlsGotEntry::Descriptor(at, 24),
            |at| TlsGotEntry::Module(at, -8),
            |at| TlsGotEntry::OwnModule(at, u64::MAX),
        ];
        let image = Some(TlsImage { address, bytes, align });
        for (slot, is_program) in all.iter().flat_map(|slot| [(slot(Svma(address)), false), (slot(Svma(address)), true)]) {
            let at = address.wrapping_add(bias);
            let memory = Words([(at, words[0]), (at.wrapping_add(8), words[1]), (words[1], words[2]),
                (words[1].wrapping_add(8), words[3])].into());
            let symbol = TlsSymbol { value: Some(value), image, is_program, ..symbol(&[slot]) };
            let _ = symbol.locate(bias, &memory);
        }
    }
}
