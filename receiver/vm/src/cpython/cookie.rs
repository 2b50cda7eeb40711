//! The check value of an object that tells it from a later one at the same address.

const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;

/// The hash of an object's identity ([`Layout::identity`](super::Layout::identity)), never 0. The eBPF programs compute the
/// same. Bytes behind the last whole word are ignored.
#[must_use]
pub fn cookie(identity: &[u8]) -> u32 {
    let (words, _) = identity.as_chunks();
    let hash = words.iter().fold(0_u64, |hash, word| {
        let product = (hash ^ u64::from_le_bytes(*word)).wrapping_mul(MULTIPLIER);
        product ^ product >> 32
    });
    (hash as u32).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_never_zero_and_depends_on_each_bit() {
        assert_eq!(cookie(&[]), 1);
        assert_eq!(cookie(&[0; 96]), 1);
        let identity: Vec<u8> = (0..96).collect();
        let whole = cookie(&identity);
        for bit in 0..identity.len() * 8 {
            let mut other = identity.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(cookie(&other), whole, "bit {bit}");
        }
    }

    /// What a C program prints:
    /// `u64 h = 0; for (i = 0; i < 2; i++) { h = (h ^ w[i]) * 0x9E3779B97F4A7C15; h ^= h >> 32; } return (u32)h ? (u32)h : 1;`
    #[test]
    fn a_cookie_is_what_the_programs_in_the_kernel_compute() {
        let identity = [1_u64.to_le_bytes(), 2_u64.to_le_bytes()].concat();
        assert_eq!(cookie(&identity[..8]), 0xE17D_05AC);
        assert_eq!(cookie(&identity), 0xE3C8_2D6D);
    }
}
