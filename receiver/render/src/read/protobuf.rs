//! The fields of a protobuf message, one after the other and not decoded: a message that is decoded as a whole takes many times
//! its size.

use super::error::ReadError;

/// The value of a field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FieldValue<'a> {
    Varint(u64),
    /// A string, a message, or packed numbers.
    Bytes(&'a [u8]),
    /// Four or eight bytes.
    Fixed,
}

impl<'a> FieldValue<'a> {
    pub(super) fn bytes(self) -> &'a [u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Varint(_) | Self::Fixed => &[],
        }
    }

    pub(super) fn integer(self) -> u64 {
        match self {
            Self::Varint(value) => value,
            Self::Bytes(_) | Self::Fixed => 0,
        }
    }

    /// The values of a repeated integer: this one, or those that are packed here.
    pub(super) fn integers(self) -> impl Iterator<Item = Result<u64, ReadError>> + 'a {
        let (single, mut packed) = match self {
            Self::Varint(value) => (Some(Ok(value)), &[][..]),
            Self::Bytes(bytes) => (None, bytes),
            Self::Fixed => (None, &[][..]),
        };
        let packed = std::iter::from_fn(move || (!packed.is_empty()).then(|| take_varint(&mut packed)));
        single.into_iter().chain(packed)
    }
}

/// The numbers and values of the fields of a message. Ends after the first error.
pub(super) fn fields(message: &[u8]) -> impl Iterator<Item = Result<(u32, FieldValue<'_>), ReadError>> {
    let mut rest = message;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let field = take_field(&mut rest);
        if field.is_err() {
            rest = &[];
        }
        Some(field)
    })
}

fn take_field<'a>(rest: &mut &'a [u8]) -> Result<(u32, FieldValue<'a>), ReadError> {
    let key = take_varint(rest)?;
    let number = u32::try_from(key >> 3).map_err(|_| ReadError::Protobuf)?;
    let value = match key & 7 {
        0 => FieldValue::Varint(take_varint(rest)?),
        1 => take(rest, 8).map(|_| FieldValue::Fixed)?,
        2 => {
            let length = usize::try_from(take_varint(rest)?).map_err(|_| ReadError::Protobuf)?;
            FieldValue::Bytes(take(rest, length)?)
        }
        5 => take(rest, 4).map(|_| FieldValue::Fixed)?,
        _ => return Err(ReadError::Protobuf),
    };
    Ok((number, value))
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Result<&'a [u8], ReadError> {
    let (taken, left) = rest.split_at_checked(length).ok_or(ReadError::Protobuf)?;
    *rest = left;
    Ok(taken)
}

fn take_varint(rest: &mut &[u8]) -> Result<u64, ReadError> {
    let mut value = 0;
    for shift in (0..70).step_by(7) {
        let (first, left) = rest.split_first().ok_or(ReadError::Protobuf)?;
        *rest = left;
        value |= u64::from(first & 0x7f).checked_shl(shift).unwrap_or(0);
        if first & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(ReadError::Protobuf)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message as _;

    use super::*;
    use crate::pprof::proto;

    proptest! {
        #[test]
        fn what_prost_writes_is_read(ids: Vec<u64>, value: Vec<i64>, line in any::<i64>()) {
            let label = vec![proto::Label { key: 1, str: 0, num: line }];
            let sample = proto::Sample { location_id: ids.clone(), value: value.clone(), label };
            let (mut read_ids, mut read_values) = (Vec::new(), Vec::new());
            for field in fields(&sample.encode_to_vec()) {
                let (number, field) = field.unwrap();
                match number {
                    1 => read_ids.extend(field.integers().map(Result::unwrap)),
                    2 => read_values.extend(field.integers().map(|value| value.unwrap() as i64)),
                    _ => prop_assert_eq!(proto::Label::decode(field.bytes()).unwrap().num, line),
                }
            }
            prop_assert_eq!((read_ids, read_values), (ids, value));
        }

        #[test]
        fn no_bytes_are_too_much(bytes: Vec<u8>) {
            for field in fields(&bytes).flatten() {
                field.1.integers().for_each(drop);
            }
        }
    }

    #[test]
    fn a_message_that_ends_early_is_an_error() {
        for message in [&[0x08][..], &[0x0a, 2, 1], &[0x09, 1], &[0x80], &[0x0b], &[0x08, 0xff, 0xff]] {
            assert!(fields(message).any(|field| field.is_err()), "{message:?}");
            assert!(fields(message).count() <= 2);
        }
    }
}
