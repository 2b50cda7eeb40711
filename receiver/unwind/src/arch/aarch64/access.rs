//! Loads and stores of one or two registers at a constant distance from a base.
//!
//! Source: Arm Architecture Reference Manual for A-profile, section C4.1, "Loads and Stores".

use super::fields::{base, first, second, signed_field};

/// A load or store of registers side by side.
pub(super) struct Access {
    pub(super) is_store: bool,
    /// The register that the address is relative to, or [the stack pointer](super::fields::STACK_POINTER).
    pub(super) base: u32,
    /// General registers; `None`: a vector register, or no second one.
    pub(super) registers: [Option<u32>; 2],
    /// Bytes of each.
    pub(super) bytes: i32,
    /// How many there are.
    pub(super) count: i32,
    /// From the base, once that has been moved `before` the access.
    pub(super) offset: i32,
    /// What is added to the base: before the access, or after.
    pub(super) before: i32,
    pub(super) after: i32,
}

impl Access {
    pub(super) fn of(word: u32) -> Option<Self> {
        if word & 0x3a00_0000 == 0x2800_0000 {
            return Self::of_pair(word);
        }
        let is_vector = word >> 26 & 1 == 1;
        let (size, opc) = (word >> 30, word >> 22 & 0b11);
        // Vectors of 16 bytes have a bit of their own; and a prefetch is no access.
        let (bytes, is_store) = match (is_vector, size, opc) {
            (true, 0, 0b10 | 0b11) => (16, opc == 0b10),
            (true, _, 0b00 | 0b01) => (1 << size, opc == 0b00),
            (false, 3, 0b00 | 0b01) | (false, 0..=2, _) => (1 << size, opc == 0b00),
            _ => return None,
        };
        let (offset, before, after) = if word & 0x3b00_0000 == 0x3900_0000 {
            (i32::try_from(word >> 10 & 0xfff).ok()? * bytes, 0, 0)
        } else if word & 0x3b20_0000 == 0x3800_0000 {
            let offset = signed_field(word, 12, 9);
            match word >> 10 & 0b11 {
                0b01 => (0, 0, offset),
                0b11 => (0, offset, 0),
                _ => (offset, 0, 0),
            }
        } else {
            return None;
        };
        let registers = [(!is_vector).then_some(first(word)), None];
        Some(Self { is_store, base: base(word), registers, bytes, count: 1, offset, before, after })
    }

    fn of_pair(word: u32) -> Option<Self> {
        let is_vector = word >> 26 & 1 == 1;
        let is_store = word >> 22 & 1 == 0;
        let bytes = match (is_vector, word >> 30) {
            (true, opc @ 0..=2) => 4 << opc,
            // `ldpsw` loads 4 bytes into a whole register. A store of this kind is one of tags.
            (false, 0) => 4,
            (false, 1) if !is_store => 4,
            (false, 2) => 8,
            _ => return None,
        };
        let offset = signed_field(word, 15, 7) * bytes;
        let (offset, before, after) = match word >> 23 & 0b11 {
            0b01 => (0, 0, offset),
            0b11 => (0, offset, 0),
            _ => (offset, 0, 0),
        };
        let registers = [first(word), second(word)].map(|register| (!is_vector).then_some(register));
        Some(Self { is_store, base: base(word), registers, bytes, count: 2, offset, before, after })
    }

    /// Whether it moves whole general registers.
    pub(super) fn is_of_words(&self) -> bool {
        self.bytes == 8 && self.registers[0].is_some()
    }
}
