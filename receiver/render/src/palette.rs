//! The colour of each category of code.
//!
//! Hues from Okabe and Ito's palette, which colour-blind people can distinguish; the lightness differs too.

use crate::category::FrameCategory;

/// Red, green, blue.
pub(crate) type Rgb = [u8; 3];

/// The colour of nodes that are not functions: a process, the root.
pub(crate) const NEUTRAL: Rgb = [0xd9, 0xd5, 0xcc];

impl FrameCategory {
    /// The colour of this category; dark text on it is readable.
    pub(crate) const fn colour(self) -> Rgb {
        match self {
            Self::Native => [0xf0, 0xb4, 0x4c],
            Self::Rust => [0xe8, 0x86, 0x5a],
            Self::Go => [0x6c, 0xc0, 0xea],
            Self::Python => [0xf0, 0xe0, 0x62],
            Self::Jit => [0x6c, 0xc9, 0xa1],
            Self::Kernel => [0xb3, 0xa2, 0xd6],
            Self::Lock => [0xdb, 0x9f, 0xc0],
            Self::Marker => [0xb8, 0xbc, 0xc2],
        }
    }
}

/// The colour of one function: its category's, slightly lighter or darker by its name, so that neighbours differ.
pub(crate) fn function_colour(kind: FrameCategory, name: &str) -> Rgb {
    let hash =
        name.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    let percent = 92 + (hash >> 8) % 15;
    kind.colour().map(|channel| (u32::from(channel) * percent / 100).min(255) as u8)
}
