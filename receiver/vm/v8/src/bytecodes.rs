//! How long bytecodes are, and which one an instruction of the baseline compiler's code belongs to.

use std::io;

use sidewinder_process::ReadAt;
use sidewinder_process::tls::ElfFile;

use super::lines::unsigned;

/// `Bytecodes::kBytecodeSizes`: the bytes of each bytecode, for operands of 1, 2 and 4 bytes.
const SIZES: &[u8] = b"_ZN2v88internal11interpreter9Bytecodes14kBytecodeSizesE";
const SCALES: usize = 3;
/// A bytecode is a byte.
const BYTECODES_MAX: usize = 256;
/// The first bytecodes say that the operands of the next one are wide: by 2 and 4 bytes, and the same for debuggers.
const PREFIX_SCALES: [usize; 4] = [1, 2, 1, 2];

/// The bytes of bytecodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BytecodeSizes(Box<[u8]>);

impl BytecodeSizes {
    /// Reads those of a file; `None` if it neither exports them, as libraries do, nor has a symbol table.
    pub(super) fn read(file: &impl ReadAt, elf: &ElfFile) -> io::Result<Option<Self>> {
        let exported = elf.exported(file, [SIZES])?.and_then(|[symbol]| symbol);
        let found = match exported {
            Some(symbol) => Some(symbol),
            None => elf.data_with_prefix(file, SIZES)?.first().copied(),
        };
        let Some(symbol) = found else { return Ok(None) };
        let bytes = usize::try_from(symbol.bytes).unwrap_or(usize::MAX);
        if bytes > SCALES * BYTECODES_MAX {
            return Ok(None);
        }
        Ok(Self::new(&elf.content(file, symbol.address, bytes)?))
    }

    /// Those of all bytecodes, for each scale of operands; `None` if there are none.
    #[must_use]
    pub fn new(sizes: &[u8]) -> Option<Self> {
        let is_table = sizes.len().is_multiple_of(SCALES) && sizes.len() / SCALES > PREFIX_SCALES.len();
        (is_table && sizes.iter().all(|size| *size > 0)).then(|| Self(sizes.into()))
    }

    /// The bytes of the first of these bytecodes, with its prefix.
    fn first(&self, bytecodes: &[u8]) -> Option<usize> {
        let first = usize::from(*bytecodes.first()?);
        let (prefix, scale, bytecode) = match PREFIX_SCALES.get(first) {
            Some(scale) => (1, *scale, usize::from(*bytecodes.get(1)?)),
            None => (0, 0, first),
        };
        let count = self.0.len() / SCALES;
        let bytes = self.0.get(scale * count..)?.get(..count)?.get(bytecode)?;
        Some(prefix + usize::from(*bytes))
    }

    /// The offset of the bytecode whose machine code is at an offset in the function's code. `table`: the bytes of machine code
    /// of the prologue and of each bytecode (`bytecode-offset-iterator.h`). `None`: it is in none.
    pub(super) fn offset_at(&self, table: &[u8], bytecodes: &[u8], code_offset: u32) -> Option<u32> {
        let (mut table, mut rest) = (table.iter(), bytecodes);
        let mut end = unsigned(&mut table)?;
        let mut bytecode = None;
        while end <= code_offset.into() {
            bytecode = Some((bytecodes.len() - rest.len()) as u32);
            rest = rest.get(self.first(rest)?..)?;
            end = end.checked_add(unsigned(&mut table)?)?;
        }
        bytecode
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Two prefixes, those of debuggers, and bytecodes without an operand and with one.
    const TABLE: [u8; 18] = [1, 1, 1, 1, 1, 2, 1, 1, 1, 1, 1, 3, 1, 1, 1, 1, 1, 5];

    #[test]
    fn an_instruction_has_the_bytecode_that_it_was_compiled_from() {
        let sizes = BytecodeSizes::new(&TABLE).unwrap();
        // One without an operand, one with a short, a wide and an extra wide one.
        let bytecodes = [4, 5, 0, 0, 5, 0, 0, 1, 5, 0, 0, 0, 0, 4];
        let table = [10, 3, 0, 200, 1, 5, 5, 5];
        let at = |offset| sizes.offset_at(&table, &bytecodes, offset);
        assert_eq!(
            [0, 9, 10, 12, 13, 212, 213, 217, 218, 222].map(at),
            [None, None, Some(0), Some(0), Some(3), Some(3), Some(7), Some(7), Some(13), Some(13)]
        );
        assert_eq!(at(223), None);
        assert_eq!(BytecodeSizes::new(&TABLE[..17]), None);
    }

    proptest! {
        #[test]
        fn any_bytes_have_a_result(table: Vec<u8>, bytecodes: Vec<u8>, offset: u32) {
            let found = BytecodeSizes::new(&TABLE).unwrap().offset_at(&table, &bytecodes, offset);
            prop_assert!(found.is_none_or(|found| (found as usize) < bytecodes.len()));
        }
    }
}
