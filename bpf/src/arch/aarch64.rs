//! arm64.

use std::arch::asm;

use sidewinder_address::Avma;

use crate::field_names::FieldNames;
use crate::skeleton::sample::types::rodata;

/// The field that `thread_pointer` in `c/arch/aarch64.bpf.h` reads.
pub(crate) const THREAD_POINTER: FieldNames = FieldNames {
    id: "field_tp_value",
    field: "thread_struct.uw.tp_value",
    name: "the thread pointer (thread_struct.uw.tp_value)",
};

/// A task's `thread_info` has the count.
pub(crate) const PREEMPT_COUNTS: &[&str] = &[];

/// The kernel's compiler of eBPF programs doesn't have it in all versions without `bpf_loop`: 5.10 refuses such programs.
pub(crate) const ALLOWS_TAIL_CALLS: bool = false;

/// All bits that an address of user space can have, and that a signature can have: bit 55 is that of the kernel's half.
const USER_BITS: u64 = !(1 << 55);

/// An address of code in user space, without the signature that pointer authentication may have put into it.
#[must_use]
pub fn code_address(signed: Avma) -> Avma {
    let mut address = signed.0;
    // SAFETY: `xpaclri` changes x30 and nothing else: it clears the bits in which this process's addresses can have a
    // signature. A CPU without pointer authentication executes it as a `nop`.
    unsafe { asm!("hint #7", inout("x30") address, options(nomem, nostack, preserves_flags)) };
    Avma(address)
}

/// Sets the bits of signatures: they depend on how large this kernel's address spaces are, and the CPU knows that. Without
/// pointer authentication there are none.
pub(crate) fn set_constants(constants: &mut rodata) {
    constants.signature_mask = USER_BITS & !code_address(Avma(USER_BITS)).0;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An address with a signature, if the CPU makes any.
    fn sign(address: Avma) -> Avma {
        let mut signed = address.0;
        // SAFETY: `pacia1716` changes x17 and nothing else. A CPU without pointer authentication executes it as a `nop`.
        unsafe {
            asm!("hint #8", inout("x17") signed, in("x16") 0x1234, options(nomem, nostack, preserves_flags))
        };
        Avma(signed)
    }

    #[test]
    fn a_signature_is_stripped_and_an_address_stays_the_same() {
        for address in [Avma(0), Avma(0x40_4d6c), Avma(0x7fff_ffff_f000)] {
            assert_eq!(code_address(address), address);
            assert_eq!(code_address(sign(address)), address);
        }
    }
}
