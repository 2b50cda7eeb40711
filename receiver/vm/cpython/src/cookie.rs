//! What a code object's cookie is made of. The eBPF programs compute the same (`bpf/c/cpython/cookie.bpf.h`).

use sidewinder_vm_runtime::cookie::hash;

/// The hash of an object's identity ([`Layout::identity`](super::Layout::identity)) and of the texts that belong to it, by
/// their own hashes; never 0. Bytes of the identity behind its last whole word are ignored.
pub(super) fn hash_identity(identity: &[u8], texts: Option<[u32; 2]>) -> u32 {
    let (words, _) = identity.as_chunks();
    let texts = texts.map(|[name, path]| u64::from(path) << 32 | u64::from(name));
    hash(words.iter().map(|word| u64::from_le_bytes(*word)).chain(texts))
}

/// The hash of a string's length and of the start of its text.
pub(super) fn hash_text(characters: u64, text: &[u8]) -> u32 {
    let words = text.chunks(size_of::<u64>()).map(|bytes| {
        let mut word = [0; size_of::<u64>()];
        word.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        u64::from_le_bytes(word)
    });
    hash(std::iter::once(characters).chain(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_never_zero_and_depends_on_each_bit() {
        let cookie = |identity: &[u8]| hash_identity(identity, None);
        assert_eq!(cookie(&[]), 1);
        assert_eq!(cookie(&[0; 96]), 1);
        let identity: Vec<u8> = (0..96).collect();
        let whole = cookie(&identity);
        for bit in 0..identity.len() * 8 {
            let mut other = identity.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(cookie(&other), whole, "bit {bit}");
        }
        let with_texts = |texts| hash_identity(&identity, Some(texts));
        let all = [with_texts([1, 2]), with_texts([2, 1]), with_texts([1, 1]), whole];
        assert_eq!(std::collections::BTreeSet::from(all).len(), all.len(), "{all:x?}");
    }

    /// What a C program prints:
    /// `u64 h = 0; for (i = 0; i < 2; i++) { h = (h ^ w[i]) * 0x9E3779B97F4A7C15; h ^= h >> 32; } return (u32)h ? (u32)h : 1;`
    #[test]
    fn a_hash_is_what_the_programs_in_the_kernel_compute() {
        let identity = [1_u64.to_le_bytes(), 2_u64.to_le_bytes()].concat();
        assert_eq!(hash_identity(&identity[..8], None), 0xE17D_05AC);
        assert_eq!(hash_identity(&identity, None), 0xE3C8_2D6D);
        assert_eq!(hash_identity(&identity[..8], Some([2, 0])), 0xE3C8_2D6D);
    }
}
