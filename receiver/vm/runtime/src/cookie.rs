//! Cookies: the check value of an object that tells it from a later one at the same address. The eBPF programs compute the same
//! (`bpf/c/cookie.bpf.h`).

const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;

/// The hash of words; never 0.
pub fn hash(words: impl Iterator<Item = u64>) -> u32 {
    let hash = words.fold(0_u64, |hash, word| {
        let product = (hash ^ word).wrapping_mul(MULTIPLIER);
        product ^ product >> 32
    });
    (hash as u32).max(1)
}
