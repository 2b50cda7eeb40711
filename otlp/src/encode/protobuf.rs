//! Writes fields in the format of Protocol Buffers.

use prost::Message;

/// The maximum length of a 64-bit varint.
const VARINT_LEN_MAX: usize = 10;
/// The length of the tag of a field with a number below 16.
const LENGTH_HEADER_LEN_MAX: usize = 1 + VARINT_LEN_MAX;

pub(super) fn put_message(to: &mut Vec<u8>, field: u8, message: &impl Message) {
    put_length_header(to, field, message.encoded_len());
    append(to, message);
}

pub(super) fn append(to: &mut Vec<u8>, message: &impl Message) {
    // Encoding only fails for lack of capacity, and a vector grows.
    let _ = message.encode(to);
}

/// Writes the tag and length of a length-delimited field with a number below 16.
pub(super) fn put_length_header(to: &mut Vec<u8>, field: u8, len: usize) {
    const LENGTH_DELIMITED: u8 = 2;
    to.push(field << 3 | LENGTH_DELIMITED);
    put_varint(to, len as u64);
}

pub(super) fn put_bytes(to: &mut Vec<u8>, field: u8, content: &[u8]) {
    put_length_header(to, field, content.len());
    to.extend_from_slice(content);
}

/// Writes an integer field, unless it is zero.
pub(super) fn put_number(to: &mut Vec<u8>, field: u8, number: u64) {
    if number != 0 {
        to.push(field << 3);
        put_varint(to, number);
    }
}

/// Writes a field whose length is only known after `put` has written its content. The content is moved within the buffer
/// rather than copied from another one: touching new memory costs more.
pub(super) fn put_length_delimited(to: &mut Vec<u8>, field: u8, put: impl FnOnce(&mut Vec<u8>)) {
    let start = to.len();
    to.resize(start + LENGTH_HEADER_LEN_MAX, 0);
    put(to);
    let content = start + LENGTH_HEADER_LEN_MAX..to.len();
    let mut head = Vec::with_capacity(LENGTH_HEADER_LEN_MAX);
    put_length_header(&mut head, field, content.len());
    let (end, moved_to) = (start + head.len() + content.len(), start + head.len());
    to[start..moved_to].copy_from_slice(&head);
    to.copy_within(content, moved_to);
    to.truncate(end);
}

/// Writes a field with a list of integers, unless it is empty. `spare` is a reused buffer.
pub(super) fn put_list(
    to: &mut Vec<u8>,
    field: u8,
    spare: &mut Vec<u8>,
    numbers: impl ExactSizeIterator<Item = u64>,
) {
    if numbers.len() == 0 {
        return;
    }
    if spare.len() < VARINT_LEN_MAX * numbers.len() {
        spare.resize(VARINT_LEN_MAX * numbers.len(), 0);
    }
    let mut len = 0;
    for number in numbers {
        len += set_varint(&mut spare[len..], number);
    }
    put_bytes(to, field, &spare[..len]);
}

/// Writes a varint to the start of `to`, which has room for [`VARINT_LEN_MAX`] bytes. Its length is unpredictable, so up
/// to three bytes are written without a branch.
#[inline]
fn set_varint(to: &mut [u8], number: u64) -> usize {
    if number >> 21 != 0 {
        let mut longer = Vec::with_capacity(VARINT_LEN_MAX);
        put_varint(&mut longer, number);
        to[..longer.len()].copy_from_slice(&longer);
        return longer.len();
    }
    let (has_second, has_third) = (u8::from(number >= 0x80), u8::from(number >= 0x4000));
    let bytes = [
        number as u8 & 0x7f | has_second << 7,
        (number >> 7) as u8 & 0x7f | has_third << 7,
        (number >> 14) as u8,
    ];
    to[..bytes.len()].copy_from_slice(&bytes);
    usize::from(1 + has_second + has_third)
}

fn put_varint(to: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        to.push(number as u8 | 0x80);
        number >>= 7;
    }
    to.push(number as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_every_length_are_varints() {
        for shift in 0..64 {
            for number in [(1_u64 << shift) - 1, 1 << shift, u64::MAX >> shift] {
                let (mut ours, mut theirs, mut set) = (Vec::new(), Vec::new(), [0; VARINT_LEN_MAX]);
                put_varint(&mut ours, number);
                prost::encoding::encode_varint(number, &mut theirs);
                assert_eq!(ours, theirs);
                let len = set_varint(&mut set, number);
                assert_eq!(set[..len], theirs);
            }
        }
    }
}
