//! Machine code as text: branches, calls, returns and addresses beside the code; all other instructions as words, by the
//! assembler's directive for them.

use sidewinder_address::Svma;

use super::{WORD_BYTES, address_immediate, page_address};
use crate::arch::listed_instruction::ListedInstruction;

/// The conditions of `b.cond`, by their code.
const CONDITIONS: [&str; 16] =
    ["eq", "ne", "hs", "lo", "mi", "pl", "vs", "vc", "hi", "ls", "ge", "lt", "gt", "le", "al", "nv"];

/// The instructions of code that begins at `start`. The rest of an incomplete one is `(bad)`.
pub(crate) fn disassemble(code: &[u8], start: Svma) -> Vec<ListedInstruction> {
    let at = |number: usize| Svma(start.0.wrapping_add((number * WORD_BYTES) as u64));
    let (words, rest) = code.as_chunks();
    let mut listed: Vec<ListedInstruction> = (words.iter().copied().map(u32::from_le_bytes).enumerate())
        .map(|(number, word)| {
            let (text, target) = instruction(word, at(number).0);
            ListedInstruction { start: at(number), end: at(number + 1), target: target.map(Svma), text }
        })
        .collect();
    if !rest.is_empty() {
        let start = at(words.len());
        let end = Svma(start.0.wrapping_add(rest.len() as u64));
        listed.push(ListedInstruction { start, end, target: None, text: "(bad)".to_owned() });
    }
    listed
}

/// An instruction as text, and the address that it refers to.
fn instruction(word: u32, at: u64) -> (String, Option<u64>) {
    // A signed number of instructions, in bits from `low` on.
    let distance = |bits: u32, low: u32| i64::from((word << (32 - bits - low)).cast_signed() >> (32 - bits));
    let branch = |bits, low| at.wrapping_add_signed(distance(bits, low) * WORD_BYTES as i64);
    let register = word & 31;
    let half = if word >> 31 == 1 { 'x' } else { 'w' };
    let through = word >> 5 & 31;
    let (text, target) = match word {
        _ if word >> 26 == 0b00_0101 => ("b".to_owned(), branch(26, 0)),
        _ if word >> 26 == 0b10_0101 => ("bl".to_owned(), branch(26, 0)),
        _ if word & 0xff00_0010 == 0x5400_0000 => {
            let condition = CONDITIONS.get((word & 15) as usize).copied().unwrap_or_default();
            (format!("b.{condition}"), branch(19, 5))
        }
        _ if word & 0x7e00_0000 == 0x3400_0000 => {
            let name = if word >> 24 & 1 == 1 { "cbnz" } else { "cbz" };
            (format!("{name} {half}{register},"), branch(19, 5))
        }
        _ if word & 0x7e00_0000 == 0x3600_0000 => {
            let name = if word >> 24 & 1 == 1 { "tbnz" } else { "tbz" };
            let bit = word >> 26 & 0x20 | word >> 19 & 31;
            (format!("{name} {half}{register}, #{bit},"), branch(14, 5))
        }
        _ if word & 0x9f00_0000 == 0x1000_0000 => {
            (format!("adr x{register},"), at.wrapping_add_signed(address_immediate(word)))
        }
        _ if word & 0x9f00_0000 == 0x9000_0000 => (format!("adrp x{register},"), page_address(word, at)),
        _ => {
            let text = match word {
                0xd503_201f => "nop".to_owned(),
                0xd65f_03c0 => "ret".to_owned(),
                _ if word & 0xffff_fc1f == 0xd65f_0000 => format!("ret x{through}"),
                _ if word & 0xffff_fc1f == 0xd61f_0000 => format!("br x{through}"),
                _ if word & 0xffff_fc1f == 0xd63f_0000 => format!("blr x{through}"),
                _ if word & 0xffe0_001f == 0xd400_0001 => format!("svc #{:#x}", word >> 5 & 0xffff),
                _ => format!(".inst {word:#010x}"),
            };
            return (text, None);
        }
    };
    (format!("{text} {target:#x}"), Some(target))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_have_their_text_their_range_and_what_they_refer_to() {
        // As llvm-mc 14 encodes them.
        let words: [(u32, &str, Option<u64>); 16] = [
            (0x97ff_fffe, "bl 0x1008", Some(0x1008)),
            (0x1400_0004, "b 0x1024", Some(0x1024)),
            (0x5400_0061, "b.ne 0x1024", Some(0x1024)),
            (0xb4ff_ffc3, "cbz x3, 0x1014", Some(0x1014)),
            (0x3500_0040, "cbnz w0, 0x1028", Some(0x1028)),
            (0xb718_0045, "tbnz x5, #35, 0x102c", Some(0x102c)),
            (0x3600_0045, "tbz w5, #0, 0x1030", Some(0x1030)),
            (0x1000_0080, "adr x0, 0x103c", Some(0x103c)),
            (0xb000_0001, "adrp x1, 0x2000", Some(0x2000)),
            (0xd503_201f, "nop", None),
            (0xd65f_03c0, "ret", None),
            (0xd65f_0220, "ret x17", None),
            (0xd61f_0200, "br x16", None),
            (0xd63f_0100, "blr x8", None),
            (0xd400_0001, "svc #0x0", None),
            (0xa9bf_7bfd, ".inst 0xa9bf7bfd", None),
        ];
        let mut code: Vec<u8> = words.iter().flat_map(|(word, ..)| word.to_le_bytes()).collect();
        code.push(0);
        let listed = disassemble(&code, Svma(0x1010));
        let shown: Vec<_> =
            listed.iter().map(|one| (&*one.text, one.target.map(|target| target.0))).collect();
        let mut expected: Vec<_> = words.iter().map(|(_, text, target)| (*text, *target)).collect();
        expected.push(("(bad)", None));
        assert_eq!(shown, expected);
        assert!(listed.windows(2).all(|pair| pair[0].end == pair[1].start), "one after the other");
    }
}
