//! Objects and strings of V8's heap, read from another process with bounds.

use std::ops::Range;

use sidewinder_address::Avma;
use sidewinder_process::ForeignMemory;
use sidewinder_vm_runtime::FunctionError;

use super::layout::ObjectLayout;

/// A string consists of at most this many parts that are read.
const PARTS_MAX: usize = 4096;
/// Bytes that are read at once.
const CHUNK_BYTES: usize = 32 << 10;
/// The lowest bit of a reference to an object.
const TAG: u64 = 1;

/// Types of strings: how one is represented, and whether a character has one byte.
const REPRESENTATION: u16 = 7;
const ONE_BYTE: u16 = 8;
const SEQUENTIAL: u16 = 0;
const CONS: u16 = 1;
const EXTERNAL: u16 = 2;
const SLICED: u16 = 3;
const THIN: u16 = 5;
/// Of an external string whose text has to be asked for.
const UNCACHED: u16 = 0x10;
const FIRST_OTHER_TYPE: u16 = 0x80;

/// Offsets in strings: of the text, of the first string that a string refers to, and of the second or of a number.
const LENGTH: u64 = 12;
const TEXT: u64 = 16;
const FIRST: u64 = 16;
const SECOND: u64 = 24;

/// The memory of a process, with objects.
pub(super) struct Heap<'a, M> {
    pub(super) memory: &'a M,
    pub(super) layout: &'a ObjectLayout,
}

/// A reference to an object.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Object(u64);

/// A word of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TaggedWord {
    Object(Object),
    Number(i32),
}

impl TaggedWord {
    pub(super) fn from_word(word: u64) -> Self {
        if word & TAG == 0 { Self::Number((word >> 32) as u32 as i32) } else { Self::Object(Object(word)) }
    }

    pub(super) fn object(self) -> Result<Object, FunctionError> {
        match self {
            Self::Object(object) => Ok(object),
            Self::Number(_) => Err(FunctionError::Malformed("a number in the place of an object")),
        }
    }

    pub(super) fn number(self) -> Option<i32> {
        if let Self::Number(number) = self { Some(number) } else { None }
    }
}

impl Object {
    /// The object at an address.
    pub(super) fn at(address: Avma) -> Self {
        Self(address.0 | TAG)
    }

    /// The address of what is at an offset in the object.
    pub(super) fn address(self, offset: u64) -> Result<Avma, FunctionError> {
        Avma(self.0 & !TAG).checked_add(offset).ok_or(FunctionError::Malformed("not an address"))
    }
}

/// The characters of a part of a string.
pub(super) enum Characters<'bytes> {
    /// Latin 1.
    OneByte(&'bytes [u8]),
    /// UTF-16, in the byte order of the machine.
    TwoByte(&'bytes [u8]),
}

impl Characters<'_> {
    fn append_to(&self, units: &mut Vec<u16>) {
        match self {
            Characters::OneByte(bytes) => units.extend(bytes.iter().map(|byte| u16::from(*byte))),
            Characters::TwoByte(bytes) => {
                units.extend(bytes.as_chunks().0.iter().map(|unit| u16::from_le_bytes(*unit)));
            }
        }
    }
}

impl<M: ForeignMemory> Heap<'_, M> {
    pub(super) fn value(&self, object: Object, offset: u16) -> Result<TaggedWord, FunctionError> {
        Ok(TaggedWord::from_word(self.memory.word(object.address(offset.into())?)?))
    }

    pub(super) fn u32(&self, object: Object, offset: u64) -> Result<u32, FunctionError> {
        let mut bytes = [0; 4];
        self.memory.read_exact(object.address(offset)?, &mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    /// The map of an object. An object that is being moved has none.
    pub(super) fn map(&self, object: Object) -> Result<Object, FunctionError> {
        match TaggedWord::from_word(self.memory.word(object.address(0)?)?) {
            TaggedWord::Object(map) => Ok(map),
            TaggedWord::Number(_) => Err(FunctionError::Replaced),
        }
    }

    pub(super) fn type_of_map(&self, map: Object) -> Result<u16, FunctionError> {
        let mut bytes = [0; 2];
        self.memory.read_exact(map.address(self.layout.map_type.into())?, &mut bytes)?;
        Ok(u16::from_le_bytes(bytes))
    }

    /// The type of an object.
    pub(super) fn type_of(&self, object: Object) -> Result<u16, FunctionError> {
        self.type_of_map(self.map(object)?)
    }

    pub(super) fn is_string(&self, object: Object) -> Result<bool, FunctionError> {
        Ok(self.type_of(object)? < FIRST_OTHER_TYPE)
    }

    /// The number of characters of a string.
    pub(super) fn length(&self, string: Object) -> Result<u32, FunctionError> {
        self.u32(string, LENGTH)
    }

    /// Passes the first `limit` characters of a string, in pieces. Ends early if `take` returns false.
    pub(super) fn read_string(
        &self,
        string: Object,
        limit: usize,
        take: impl FnMut(Characters<'_>) -> bool,
    ) -> Result<(), FunctionError> {
        self.read_part(string, 0..limit as u64, take)
    }

    /// The characters of a range of a string, in UTF-16.
    pub(super) fn units(&self, string: Object, range: Range<u32>) -> Result<Vec<u16>, FunctionError> {
        let mut units: Vec<u16> = Vec::new();
        self.read_part(string, range.start.into()..range.end.into(), |characters| {
            characters.append_to(&mut units);
            true
        })?;
        Ok(units)
    }

    fn read_part(
        &self,
        string: Object,
        range: Range<u64>,
        mut take: impl FnMut(Characters<'_>) -> bool,
    ) -> Result<(), FunctionError> {
        let limit = range.end.saturating_sub(range.start);
        // What is left to read, the next part last: a string, the first of its characters, and how many at most.
        let mut parts = vec![(string, range.start, limit)];
        let (mut left, mut buffer) = (limit, Vec::new());
        for _ in 0..PARTS_MAX {
            let Some((part, skipped, count)) = parts.pop() else { return Ok(()) };
            let kind = self.type_of(part)?;
            if kind >= FIRST_OTHER_TYPE {
                return Err(FunctionError::Malformed("not a string"));
            }
            let length = u64::from(self.u32(part, LENGTH)?);
            let count = count.min(length.saturating_sub(skipped)).min(left);
            if count == 0 {
                continue;
            }
            let reference = |offset: u64| -> Result<Object, FunctionError> {
                TaggedWord::from_word(self.memory.word(part.address(offset)?)?).object()
            };
            let unit = if kind & ONE_BYTE == 0 { 2 } else { 1 };
            let text = match kind & REPRESENTATION {
                SEQUENTIAL => part.address(TEXT)?,
                EXTERNAL if kind & UNCACHED == 0 => Avma(self.memory.word(part.address(SECOND)?)?),
                CONS => {
                    let first = reference(FIRST)?;
                    let first_length = u64::from(self.u32(first, LENGTH)?);
                    let of_first = first_length.saturating_sub(skipped).min(count);
                    parts.push((reference(SECOND)?, skipped.saturating_sub(first_length), count - of_first));
                    parts.push((first, skipped, of_first));
                    continue;
                }
                SLICED => {
                    let offset = TaggedWord::from_word(self.memory.word(part.address(SECOND)?)?).number();
                    let offset = offset.and_then(|offset| u64::try_from(offset).ok());
                    let offset = offset.ok_or(FunctionError::Malformed("a slice without an offset"))?;
                    parts.push((reference(FIRST)?, skipped.saturating_add(offset), count));
                    continue;
                }
                THIN => {
                    parts.push((reference(FIRST)?, skipped, count));
                    continue;
                }
                _ => return Err(FunctionError::Malformed("a string whose text is elsewhere")),
            };
            left -= count;
            let (mut from, mut bytes) = (text.checked_add(skipped * unit), count * unit);
            while bytes > 0 {
                let at = from.ok_or(FunctionError::Malformed("not an address"))?;
                let now = bytes.min(CHUNK_BYTES as u64);
                buffer.resize(now as usize, 0);
                self.memory.read_exact(at, &mut buffer)?;
                let characters =
                    if unit == 1 { Characters::OneByte(&buffer) } else { Characters::TwoByte(&buffer) };
                if !take(characters) {
                    return Ok(());
                }
                bytes -= now;
                from = at.checked_add(now);
            }
        }
        Err(FunctionError::Malformed("a string of too many parts"))
    }

    /// The start of a string, up to so many bytes.
    pub(super) fn text(&self, string: Object, bytes_max: usize) -> Result<String, FunctionError> {
        let mut units: Vec<u16> = Vec::new();
        self.read_string(string, bytes_max, |characters| {
            characters.append_to(&mut units);
            true
        })?;
        let mut text = String::from_utf16_lossy(&units);
        while text.len() > bytes_max {
            text.pop();
        }
        Ok(text)
    }
}
