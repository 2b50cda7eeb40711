//! x86-64 (System V ABI for AMD64).

#[cfg(any(target_arch = "x86_64", test))]
#[cfg_attr(not(target_arch = "x86_64"), expect(unreachable_pub, reason = "only its tests use it here"))]
pub(crate) mod call;
pub(crate) mod clone;
pub(crate) mod go;
pub(crate) mod haskell;
mod instruction;
pub(crate) mod known;
pub(crate) mod linkage;
mod step;

pub(crate) use self::instruction::Instruction;
pub(crate) use self::step::{Stepper, at_entry};

/// Bytes up to the first instruction, inclusive, after which execution never continues.
pub(super) fn straight_length(code: &[u8]) -> Option<u32> {
    let mut end = 0;
    loop {
        let instruction = Instruction::decode(code.get(end as usize..)?, end)?;
        end = instruction.end();
        if instruction.is_last() {
            return Some(end);
        }
    }
}
