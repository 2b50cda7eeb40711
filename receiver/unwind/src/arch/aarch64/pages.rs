//! Addresses that pairs of instructions compute: `adrp xA, PAGE; add xB, xA, #OFFSET`, with others in between.

use sidewinder_address::Svma;

use super::Instruction;
use super::fields::{first, page_distance, sum};

/// Bytes of what `adrp` calls a page, whatever the size of the system's.
const PAGE_BYTES: u64 = 4 << 10;

/// The pages whose addresses registers hold, as far as code that runs straight on is known to have put them there.
#[derive(Default)]
pub(crate) struct Pages {
    /// By register.
    held: [Option<u64>; 32],
}

impl Pages {
    /// The address that the next instruction completes, in bytes from `base`, the lowest code.
    pub(crate) fn next(&mut self, instruction: &Instruction, base: Svma) -> Option<u32> {
        let Instruction { word, at } = *instruction;
        let completed = sum(word).and_then(|(_, from, addend)| {
            let page = (*self.held.get(from as usize)?)?;
            u32::try_from(page.checked_add_signed(addend.into())?.checked_sub(base.0)?).ok()
        });
        let page = page_distance(word).and_then(|distance| page_of(base, at)?.checked_add_signed(distance));
        if let Some(held) = self.held.get_mut(first(word) as usize)
            && (page.is_some() || completed.is_some())
        {
            *held = page;
        }
        completed
    }
}

/// The page of an address in bytes from `base`.
pub(super) fn page_of(base: Svma, at: u32) -> Option<u64> {
    Some(base.0.checked_add(at.into())? & !(PAGE_BYTES - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_an_address_may_be_apart() {
        let words = [
            0xb000_0000, // adrp x0, one page on
            0xd000_0001, // adrp x1, two pages on
            0x9120_0002, // add x2, x0, #0x800
            0x9100_4021, // add x1, x1, #0x10
            0x9100_4021, // add x1, x1, #0x10
            0x9100_4063, // add x3, x3, #0x10
        ];
        let mut pages = Pages::default();
        let found: Vec<_> = words
            .iter()
            .zip((0x100..).step_by(4))
            .map(|(word, at)| pages.next(&Instruction { word: *word, at }, Svma(0x10_0f80)))
            .collect();
        // The first is at 0x10_1080.
        assert_eq!(found, [None, None, Some(0x1880), Some(0x2090), None, None]);
    }
}
