//! Strings: compact `str` objects of any kind, read with as few calls as possible.

use std::io;
use std::ops::Range;

use sidewinder_address::Avma;
use sidewinder_process::ForeignMemory;
use sidewinder_vm_runtime::FunctionError;

use super::cookie::hash_text;
use super::layout::{NameLayout, ObjectHead, field};

/// Bytes that are read of an object before its size is known.
const FIRST_BYTES: usize = 256;
/// Bytes of a string's object of which the hash consists, as the eBPF programs read them.
const HASHED_BYTES: usize = 256;
/// Longer objects are not plausible: an address where something else is.
const SIZE_MAX: u64 = 1 << 31;

/// Where a string has its text.
struct TextExtent {
    /// Its length.
    characters: u64,
    is_compact: bool,
    is_ascii: bool,
    /// Bytes of a character.
    unit: usize,
    /// Where its text starts in the object, in bytes, if it is compact.
    start: usize,
}

impl TextExtent {
    /// That of a string of which so many bytes are known: [`NameLayout::ascii_bytes`] at least.
    fn parse(object: &[u8], layout: &NameLayout) -> Option<Self> {
        let state = u32::from_le_bytes(field(object, layout.head.text_state())?) >> layout.interned_bits;
        let is_ascii = state & 1 << 4 != 0;
        Some(Self {
            characters: u64::from_le_bytes(field(object, layout.head.size())?),
            is_compact: state & 1 << 3 != 0,
            is_ascii,
            unit: (state & 7) as usize,
            start: if is_ascii { layout.ascii_bytes } else { layout.compact_bytes }.into(),
        })
    }

    /// The bytes of the object whose content is hashed.
    fn hashed(&self) -> Range<usize> {
        let characters = usize::try_from(self.characters).unwrap_or(usize::MAX).min(HASHED_BYTES);
        let bytes = if self.is_compact { characters * self.unit } else { 0 };
        self.start..(self.start + bytes).min(HASHED_BYTES)
    }
}

/// Hashes the text of a string; `None` if its object is cut before the end of what is hashed.
pub(super) fn hash_of_copy(object: &[u8], layout: &NameLayout) -> Option<u32> {
    let extent = TextExtent::parse(object, layout)?;
    Some(hash_text(extent.characters, object.get(extent.hashed())?))
}

/// Reads the text of a string, and hashes it.
pub(super) fn hash_of_text(
    memory: &impl ForeignMemory,
    at: Avma,
    layout: &NameLayout,
) -> Result<u32, FunctionError> {
    let (head, first) = read_first(memory, at, layout.ascii_bytes.into())?;
    let extent =
        TextExtent::parse(&head, layout).ok_or(FunctionError::Malformed("a string that ends early"))?;
    let hashed = extent.hashed();
    let text = read_rest(memory, at, head, first, hashed.start, hashed.len())?;
    Ok(hash_text(extent.characters, &text))
}

/// Reads a `str` that is a name or a path, at most `bytes_max` bytes of it, as UTF-8. Characters that are none are replaced.
/// The compiler accepts no NUL in names and paths: where one is, something else was read.
pub(super) fn read_text(
    memory: &impl ForeignMemory,
    at: Avma,
    layout: &NameLayout,
    bytes_max: usize,
) -> Result<Box<str>, FunctionError> {
    let (head, first) = read_first(memory, at, layout.ascii_bytes.into())?;
    let other = FunctionError::Malformed("not a compact string");
    let Some(TextExtent { is_compact, is_ascii, unit, start, .. }) = TextExtent::parse(&head, layout) else {
        return Err(other);
    };
    if !is_compact || !matches!(unit, 1 | 2 | 4) || is_ascii && unit != 1 {
        return Err(other);
    }
    let characters = size(&head, layout.head)?.min(bytes_max / unit);
    let data = read_rest(memory, at, head, first, start, characters * unit)?;
    let mut text = String::with_capacity(data.len());
    for unit in data.chunks_exact(unit) {
        let mut word = [0; 4];
        word.iter_mut().zip(unit).for_each(|(to, from)| *to = *from);
        let character = char::from_u32(u32::from_le_bytes(word)).unwrap_or(char::REPLACEMENT_CHARACTER);
        if character == '\0' {
            return Err(FunctionError::Malformed("a name with a NUL in it"));
        }
        if text.len() + character.len_utf8() > bytes_max {
            break;
        }
        text.push(character);
    }
    Ok(text.into())
}

/// Reads a `bytes` object, at most `bytes_max` bytes of it.
pub(super) fn read_bytes(
    memory: &impl ForeignMemory,
    at: Avma,
    object: ObjectHead,
    bytes_max: usize,
) -> Result<Vec<u8>, FunctionError> {
    let start = object.bytes_data().into();
    let (head, first) = read_first(memory, at, start)?;
    let bytes = size(&head, object)?.min(bytes_max);
    read_rest(memory, at, head, first, start, bytes)
}

/// Reads the start of an object: more than its head, which has `head_bytes`, unless that can't be read. Also returns how many
/// bytes were read.
fn read_first(memory: &impl ForeignMemory, at: Avma, head_bytes: usize) -> io::Result<(Vec<u8>, usize)> {
    let mut bytes = vec![0; FIRST_BYTES];
    if memory.read_exact(at, &mut bytes).is_err() {
        // The memory ends before: the object is small.
        bytes.truncate(head_bytes);
        memory.read_exact(at, &mut bytes)?;
    }
    let read = bytes.len();
    Ok((bytes, read))
}

/// The data of an object, from `start`, of which `first` bytes are in `head`.
fn read_rest(
    memory: &impl ForeignMemory,
    at: Avma,
    mut head: Vec<u8>,
    first: usize,
    start: usize,
    bytes: usize,
) -> Result<Vec<u8>, FunctionError> {
    let end = start + bytes;
    head.resize(end, 0);
    if end > first {
        let from = at.checked_add(first as u64).ok_or(FunctionError::Malformed("an address that is none"))?;
        memory.read_exact(from, &mut head[first..])?;
    }
    head.drain(..start.min(end));
    Ok(head)
}

/// The number of an object's elements.
fn size(head: &[u8], object: ObjectHead) -> Result<usize, FunctionError> {
    let size = field(head, object.size()).map_or(u64::MAX, u64::from_le_bytes);
    usize::try_from(size)
        .ok()
        .filter(|_| size < SIZE_MAX)
        .ok_or(FunctionError::Malformed("a size that no object has"))
}
