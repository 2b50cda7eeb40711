//! Identifiers in hexadecimal digits.

/// Decodes exactly two digits per byte. `None` for any other text: no sign and no prefix is accepted.
pub fn decode<const BYTES: usize>(digits: &[u8]) -> Option<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    if digits.len() != 2 * BYTES {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |digit: u8| char::from(digit).to_digit(16);
        *byte = u8::try_from(digit(pair[0])? << 4 | digit(pair[1])?).ok()?;
    }
    Some(bytes)
}

/// Encodes each byte as two lower-case digits.
pub fn encode(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_is_encoded_can_be_decoded() {
        assert_eq!(super::encode(&[0x0a, 0xff]), "0aff");
        assert_eq!(super::decode(super::encode(&[0, 7, 0x80]).as_bytes()), Some([0, 7, 0x80]));
    }

    #[test]
    fn identifiers_have_their_exact_length() {
        assert_eq!(super::decode(b"0aFf"), Some([0x0a, 0xff]));
        assert_eq!(super::encode(&[0x0a, 0xff]), "0aff");
        for wrong in ["", "0a", "0aff0", "0x0aff", "+aff", "0aé"] {
            assert_eq!(super::decode::<2>(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
