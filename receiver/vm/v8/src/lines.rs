//! The positions of bytecodes in a source.

/// Positions that are kept of one function.
const POSITIONS_MAX: usize = 16 << 10;

/// How an entry of a table of positions is written (`source-position-table.cc`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PositionForm {
    /// The difference of the offset is negative, less 1, for expressions (until V8 13).
    Signed,
    /// Two flags are below the difference of the offset (since V8 14).
    Flagged,
}

/// A position in the source of a function, in some function that a compiler has put into another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Position(u64);

impl Position {
    pub(super) fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    /// Whether it is a line of V8's own source.
    fn is_external(self) -> bool {
        self.0 & 1 != 0
    }

    /// In characters; `None` if the instruction has none.
    pub(super) fn in_source(self) -> Option<i32> {
        let position = u32::try_from(self.0 >> 1 & 0x3fff_ffff).ok()?;
        position.checked_sub(1).filter(|_| !self.is_external()).map(u32::cast_signed)
    }

    /// The index of the inlined call that it belongs to; `None`: to the function itself.
    pub(super) fn inlined_call(self) -> Option<usize> {
        usize::from((self.0 >> 31) as u16).checked_sub(1)
    }
}

/// The entries of a table of positions: an offset in the code and a position, each as the difference to the entry before. In the
/// order of offsets.
pub(super) struct Positions<'bytes> {
    bytes: std::slice::Iter<'bytes, u8>,
    form: PositionForm,
    offset: i64,
    position: i64,
}

impl<'bytes> Positions<'bytes> {
    pub(super) fn new(bytes: &'bytes [u8], form: PositionForm) -> Self {
        // The entry of a function is before its first instruction.
        Self { bytes: bytes.iter(), form, offset: -1, position: 0 }
    }
}

impl Iterator for Positions<'_> {
    type Item = (u32, Position);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let difference = match self.form {
                PositionForm::Signed => match signed(unsigned(&mut self.bytes)?) {
                    statement @ 0.. => statement,
                    expression => -(expression + 1),
                },
                PositionForm::Flagged => (unsigned(&mut self.bytes)? >> 2).cast_signed(),
            };
            self.offset = self.offset.checked_add(difference)?;
            self.position = self.position.checked_add(signed(unsigned(&mut self.bytes)?))?;
            let position = Position(u64::try_from(self.position).ok()?);
            // Only an entry of the function's start may be before the first instruction.
            match u32::try_from(self.offset) {
                Ok(offset) if !position.is_external() => return Some((offset, position)),
                Err(_) if self.offset >= 0 => return None,
                _ => {}
            }
        }
    }
}

/// The position of the instruction at an offset. `is_cut`: bytes of the table are missing at its end.
pub(super) fn position_at(bytes: &[u8], form: PositionForm, is_cut: bool, offset: u32) -> Option<Position> {
    let mut found = None;
    for (start, position) in Positions::new(bytes, form) {
        if start > offset {
            return found;
        }
        found = Some(position);
    }
    found.filter(|_| !is_cut)
}

/// The offsets of bytecodes, and their positions in the source, in characters.
pub(super) fn bytecode_positions(bytes: &[u8], form: PositionForm) -> Vec<(u32, u32)> {
    let in_source = |(offset, position): (u32, Position)| {
        position.in_source().map(|position| (offset, position.cast_unsigned()))
    };
    let mut rows: Vec<_> = Positions::new(bytes, form).filter_map(in_source).take(POSITIONS_MAX).collect();
    rows.sort_by_key(|(offset, _)| *offset);
    rows
}

/// A number of groups of 7 bits, the lowest first.
pub(super) fn unsigned(bytes: &mut std::slice::Iter<'_, u8>) -> Option<u64> {
    let mut number = 0_u64;
    for shift in (0..63).step_by(7) {
        let byte = bytes.next()?;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// A number with its sign in the lowest bit.
fn signed(number: u64) -> i64 {
    (number >> 1).cast_signed() ^ -(number & 1).cast_signed()
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    fn write(mut number: u64, to: &mut Vec<u8>) {
        while number > 0x7f {
            to.push(number as u8 | 0x80);
            number >>= 7;
        }
        to.push(number as u8);
    }

    fn zigzag(number: i64) -> u64 {
        ((number << 1) ^ (number >> 63)).cast_unsigned()
    }

    /// As `EncodeEntry` of source-position-table.cc.
    pub(crate) fn write_rows(form: PositionForm, rows: &[(u32, u64, bool)]) -> Vec<u8> {
        let (mut bytes, mut offset, mut raw) = (Vec::new(), -1, 0);
        for (row_offset, position, is_statement) in rows {
            let difference = i64::from(*row_offset) - offset;
            match form {
                PositionForm::Signed if *is_statement => write(zigzag(difference), &mut bytes),
                PositionForm::Signed => write(zigzag(-difference - 1), &mut bytes),
                PositionForm::Flagged => {
                    write(difference.cast_unsigned() << 2 | u64::from(*is_statement), &mut bytes);
                }
            }
            write(zigzag(position.cast_signed() - raw), &mut bytes);
            (offset, raw) = (i64::from(*row_offset), position.cast_signed());
        }
        bytes
    }

    const FORMS: [PositionForm; 2] = [PositionForm::Signed, PositionForm::Flagged];

    /// As Node.js 24 and 26 write the start of the same function.
    #[test]
    fn tables_of_each_form_are_read() {
        let tables: [&[u8]; 2] = [
            &[17, 156, 9, 1, 0, 1, 0, 43, 0, 55, 104, 75, 0],
            &[34, 156, 9, 2, 0, 2, 0, 86, 0, 110, 104, 162, 1, 0],
        ];
        let rows = FORMS.into_iter().zip(tables).map(|(form, table)| bytecode_positions(table, form));
        let rows: Vec<_> = rows.collect();
        assert_eq!(rows[0], [(7, 294), (7, 294), (7, 294), (28, 294), (55, 320), (92, 320)]);
        assert_eq!(rows[1], [(7, 294), (7, 294), (7, 294), (28, 294), (55, 320), (95, 320)]);
    }

    #[test]
    fn an_instruction_has_the_position_of_the_entry_before_it() {
        let call = |position: u64, call: u64| ((position + 1) << 1) | (call << 31);
        let rows = [(2, call(10, 0), true), (8, call(20, 3), false), (8, call(30, 0), true)];
        for form in FORMS {
            let bytes = write_rows(form, &rows);
            let at = |offset| {
                let position = position_at(&bytes, form, false, offset)?;
                Some((position.in_source(), position.inlined_call()))
            };
            assert_eq!(
                [1, 2, 7, 8, 900].map(at),
                [
                    None,
                    Some((Some(10), None)),
                    Some((Some(10), None)),
                    Some((Some(30), None)),
                    Some((Some(30), None))
                ]
            );
            // Behind the end of what was read, another entry may follow.
            assert_eq!(position_at(&bytes, form, true, 8), None);
            assert!(position_at(&bytes, form, true, 7).is_some());
            let inlined = write_rows(form, &rows[..2]);
            assert_eq!(position_at(&inlined, form, false, 8).unwrap().inlined_call(), Some(2));
        }
    }

    proptest! {
        #[test]
        fn positions_are_read_as_they_were_written(
            rows in prop::collection::vec((0_u32..300, 0_u32..100_000, any::<bool>()), 0..50),
            is_flagged: bool,
        ) {
            let (form, mut offset) = (FORMS[usize::from(is_flagged)], 0);
            let rows: Vec<_> = rows.into_iter().map(|(more, position, is_statement)| {
                offset += more;
                (offset, u64::from(position + 1) << 1, is_statement)
            }).collect();
            let expected: Vec<_> =
                rows.iter().map(|(offset, position, _)| (*offset, (position >> 1) as u32 - 1)).collect();
            prop_assert_eq!(bytecode_positions(&write_rows(form, &rows), form), expected);
        }

        #[test]
        fn any_bytes_are_a_table(bytes: Vec<u8>, is_flagged: bool, offset: u32) {
            let form = FORMS[usize::from(is_flagged)];
            prop_assert!(bytecode_positions(&bytes, form).len() <= bytes.len());
            position_at(&bytes, form, false, offset);
        }
    }
}
