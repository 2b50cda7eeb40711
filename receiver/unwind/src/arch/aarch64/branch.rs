//! How code goes on after an instruction.

use super::fields::signed_field;

/// How a function goes on after an instruction.
pub(super) struct Next {
    pub(super) falls_through: bool,
    /// The distance in instructions.
    pub(super) branch: Option<i64>,
}

impl Next {
    pub(super) fn of(word: u32) -> Self {
        let signed = |shift, bits| Some(i64::from(signed_field(word, shift, bits)));
        let is_trap = word >> 16 == 0 || word & 0xffe0_001f == 0xd420_0000; // `udf`, `brk`
        if word >> 26 == 0b00_0101 {
            return Self { falls_through: false, branch: signed(0, 26) }; // `b`
        }
        if is_branch_to_register(word) || is_return(word) || is_trap {
            return Self { falls_through: false, branch: None };
        }
        let branch = match word >> 24 {
            0b0101_0100 => signed(5, 19),                             // `b.cond`
            top if top & 0b0111_1110 == 0b0011_0100 => signed(5, 19), // `cbz`, `cbnz`
            top if top & 0b0111_1110 == 0b0011_0110 => signed(5, 14), // `tbz`, `tbnz`
            _ => None,
        };
        Self { falls_through: true, branch }
    }
}

/// The distance of `bl` to its target, in instructions.
pub(super) fn call_distance(word: u32) -> Option<i32> {
    (word >> 26 == 0b10_0101).then(|| signed_field(word, 0, 26))
}

/// `br`, also with authentication.
pub(super) fn is_branch_to_register(word: u32) -> bool {
    word & 0xfeff_f000 == 0xd61f_0000
}

/// `ret`, also with authentication.
pub(super) fn is_return(word: u32) -> bool {
    word & 0xffff_f000 == 0xd65f_0000
}
