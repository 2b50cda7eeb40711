//! How much memory a message takes once it is decoded, estimated before that.
//!
//! On the wire an empty entry of a table takes two bytes, and hundreds of them in memory. Only what repeats is counted, since
//! nothing else grows beyond its size on the wire.

use prost::encoding::{WireType, decode_key, decode_varint};

use sidewinder_profile::{AttributeValue, Link};

use crate::decoded::{DecodedFrame, DecodedLine, DecodedMapping, DecodedProfile, DecodedSample};
use crate::wire;

/// The most levels of messages within each other that are decoded, by prost's own limit.
const DEPTH_MAX: usize = 100;
/// A string, with its allocation, in bytes.
const TEXT_BYTES: usize = 64;
/// An index in a table, in bytes: as a reference to its entry, or as an attribute in a set.
const INDEX_BYTES: usize = 64;
/// An index in a stack, in bytes: a number, and a reference to a frame.
const FRAME_INDEX_BYTES: usize = 16;
/// The value of a sample, in bytes.
const VALUE_BYTES: usize = 16;

/// A type of message.
struct MessageShape {
    /// The memory of one in bytes, decoded by prost and by this crate.
    bytes: usize,
    /// The fields that repeat, or lead to some that do.
    fields: &'static [(u32, FieldShape)],
}

/// What a field holds.
enum FieldShape {
    Message(&'static MessageShape),
    Text,
    /// Numbers, packed or not, and the memory of each in bytes.
    Numbers(usize),
}

use FieldShape::{Message, Numbers, Text};

static PROFILES_DATA: MessageShape =
    MessageShape { bytes: 0, fields: &[(1, Message(&RESOURCE_PROFILES)), (2, Message(&DICTIONARY))] };
static RESOURCE_PROFILES: MessageShape = MessageShape {
    bytes: size_of::<wire::ResourceProfiles>(),
    fields: &[(1, Message(&RESOURCE)), (2, Message(&SCOPE_PROFILES))],
};
static RESOURCE: MessageShape =
    MessageShape { bytes: 0, fields: &[(1, Message(&KEY_VALUE)), (3, Message(&ENTITY))] };
static ENTITY: MessageShape = MessageShape { bytes: 2 * TEXT_BYTES, fields: &[(3, Text), (4, Text)] };
static SCOPE_PROFILES: MessageShape = MessageShape {
    bytes: size_of::<wire::ScopeProfiles>(),
    fields: &[(1, Message(&SCOPE)), (2, Message(&PROFILE))],
};
static SCOPE: MessageShape = MessageShape { bytes: 0, fields: &[(3, Message(&KEY_VALUE))] };
static PROFILE: MessageShape = MessageShape {
    bytes: size_of::<wire::Profile>() + size_of::<DecodedProfile>(),
    fields: &[(2, Message(&SAMPLE)), (11, Numbers(INDEX_BYTES))],
};
static SAMPLE: MessageShape = MessageShape {
    bytes: size_of::<wire::Sample>() + size_of::<DecodedSample>(),
    fields: &[(2, Numbers(INDEX_BYTES)), (4, Numbers(VALUE_BYTES))],
};
static DICTIONARY: MessageShape = MessageShape {
    bytes: 0,
    fields: &[
        (1, Message(&MAPPING)),
        (2, Message(&LOCATION)),
        (3, Message(&FUNCTION)),
        (4, Message(&LINK)),
        (5, Text),
        (6, Message(&ATTRIBUTE)),
        (7, Message(&STACK)),
    ],
};
static MAPPING: MessageShape = MessageShape {
    bytes: size_of::<wire::Mapping>() + size_of::<DecodedMapping>(),
    fields: &[(5, Numbers(INDEX_BYTES))],
};
static LOCATION: MessageShape = MessageShape {
    bytes: size_of::<wire::Location>() + size_of::<DecodedFrame>(),
    fields: &[(3, Message(&LINE)), (4, Numbers(INDEX_BYTES))],
};
static LINE: MessageShape =
    MessageShape { bytes: size_of::<wire::Line>() + size_of::<DecodedLine>(), fields: &[] };
static FUNCTION: MessageShape = MessageShape { bytes: size_of::<wire::Function>(), fields: &[] };
static LINK: MessageShape =
    MessageShape { bytes: size_of::<wire::Link>() + size_of::<Option<Link>>(), fields: &[] };
static ATTRIBUTE: MessageShape = MessageShape {
    bytes: size_of::<wire::KeyValueAndUnit>() + size_of::<AttributeValue>(),
    fields: &[(2, Message(&ANY_VALUE))],
};
static STACK: MessageShape =
    MessageShape { bytes: size_of::<wire::Stack>(), fields: &[(1, Numbers(FRAME_INDEX_BYTES))] };
static KEY_VALUE: MessageShape =
    MessageShape { bytes: size_of::<wire::KeyValue>() + INDEX_BYTES, fields: &[(2, Message(&ANY_VALUE))] };
/// With its text, where it is of a type that this project does not use.
static ANY_VALUE: MessageShape = MessageShape {
    bytes: size_of::<wire::AnyValue>() + size_of::<AttributeValue>() + TEXT_BYTES,
    fields: &[(5, Message(&ARRAY)), (6, Message(&KEY_VALUES))],
};
static ARRAY: MessageShape = MessageShape { bytes: 0, fields: &[(1, Message(&ANY_VALUE))] };
static KEY_VALUES: MessageShape = MessageShape { bytes: 0, fields: &[(1, Message(&KEY_VALUE))] };

/// The estimated memory of a decoded `ProfilesData` in bytes. What is not valid is not counted: decoding refuses it.
pub(super) fn decoded_bytes(message: &[u8]) -> usize {
    message.len().saturating_add(repeated_bytes(message, &PROFILES_DATA, DEPTH_MAX))
}

fn repeated_bytes(mut message: &[u8], shape: &MessageShape, depth_left: usize) -> usize {
    let mut bytes = 0_usize;
    let Some(depth_left) = depth_left.checked_sub(1) else { return 0 };
    while let Some((number, value)) = take_field(&mut message) {
        let Some((_, field)) = shape.fields.iter().find(|(field, _)| *field == number) else { continue };
        bytes = bytes.saturating_add(match (field, value) {
            (Message(shape), Some(message)) => {
                shape.bytes.saturating_add(repeated_bytes(message, shape, depth_left))
            }
            (Text, Some(_)) => TEXT_BYTES,
            // The last byte of each number, and only that, has no high bit.
            (Numbers(each), Some(packed)) => {
                packed.iter().filter(|byte| **byte < 0x80).count().saturating_mul(*each)
            }
            (Numbers(each), None) => *each,
            (Message(_) | Text, None) => 0,
        });
    }
    bytes
}

/// Takes a field off the front: its number, and its value if that has a length. `None` at the end, and where it is not valid.
fn take_field<'a>(message: &mut &'a [u8]) -> Option<(u32, Option<&'a [u8]>)> {
    if message.is_empty() {
        return None;
    }
    let (number, kind) = decode_key(message).ok()?;
    let length = match kind {
        WireType::Varint => {
            decode_varint(message).ok()?;
            return Some((number, None));
        }
        WireType::LengthDelimited => usize::try_from(decode_varint(message).ok()?).ok()?,
        WireType::SixtyFourBit => 8,
        WireType::ThirtyTwoBit => 4,
        WireType::StartGroup | WireType::EndGroup => return None,
    };
    let (value, rest) = message.split_at_checked(length)?;
    *message = rest;
    Some((number, (kind == WireType::LengthDelimited).then_some(value)))
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::super::DecodeError;
    use super::*;
    use crate::wire::{
        Line, Location, Profile, ProfilesData, ProfilesDictionary, ResourceProfiles, ScopeProfiles,
    };

    fn bytes(message: &ProfilesData) -> usize {
        decoded_bytes(&message.encode_to_vec())
    }

    fn of_profiles(profiles: Vec<Profile>) -> ProfilesData {
        let scope_profiles = vec![ScopeProfiles { profiles, ..ScopeProfiles::default() }];
        let resource_profiles = vec![ResourceProfiles { scope_profiles, ..ResourceProfiles::default() }];
        ProfilesData { resource_profiles, dictionary: None }
    }

    #[test]
    fn entries_that_are_nothing_on_the_wire_are_counted_as_what_they_take() {
        let empty = of_profiles(vec![Profile::default(); 1000]);
        assert_eq!(bytes(&of_profiles(Vec::new())) + 2 * 1000 + 1000 * PROFILE.bytes, bytes(&empty) - 2);
        let lines = vec![Line::default(); 1000];
        let location_table = vec![Location { lines, ..Location::default() }];
        let dictionary = Some(ProfilesDictionary { location_table, ..ProfilesDictionary::default() });
        let lines = bytes(&ProfilesData { dictionary, ..ProfilesData::default() });
        assert!(lines > 1000 * (2 + LINE.bytes), "{lines}");
    }

    #[test]
    fn a_message_of_empty_profiles_is_refused_before_it_is_decoded() {
        let message = of_profiles(vec![Profile::default(); 500_000]).encode_to_vec();
        let limit_mib = ((32 << 20) + 32 * message.len()) >> 20;
        let refused = crate::decode::decode_profiles_data(&message);
        assert_eq!(refused, Err(DecodeError::Expands { bytes: message.len(), limit_mib }));
        let message = of_profiles(vec![Profile::default(); 1000]).encode_to_vec();
        assert_eq!(crate::decode::decode_profiles_data(&message).map(|profiles| profiles.len()), Ok(1000));
    }

    #[test]
    fn messages_of_a_file_share_one_limit() {
        let message = of_profiles(vec![Profile::default(); 100_000]).encode_to_vec();
        assert_eq!(crate::decode::decode_profiles_data(&message).map(|profiles| profiles.len()), Ok(100_000));
        let file = [&(message.len() as u32).to_be_bytes(), &*message].concat().repeat(20);
        let refused = crate::decode::decode_collector_file(&file);
        assert!(matches!(refused, Err(DecodeError::Expands { bytes, .. }) if bytes == 20 * message.len()));
    }

    #[test]
    fn indices_are_counted_packed_or_not() {
        // One message of stacks with three indices each: packed, and one by one.
        let packed = [0x12, 7, 0x3a, 5, 0x0a, 3, 1, 2, 3];
        let single = [0x12, 8, 0x3a, 6, 0x08, 1, 0x08, 2, 0x08, 3];
        let expected = STACK.bytes + 3 * FRAME_INDEX_BYTES;
        assert_eq!(decoded_bytes(&packed), packed.len() + expected);
        assert_eq!(decoded_bytes(&single), single.len() + expected);
    }
}
