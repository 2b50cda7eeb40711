//! Strings: compact `str` objects of any kind, read with as few calls as possible.

use std::io;

use sidewinder_address::Avma;
use sidewinder_process::ForeignMemory;

use super::function::FunctionError;
use super::layout::{NameLayout, ObjectHead};

/// Bytes that are read of an object before its size is known.
const FIRST_BYTES: usize = 256;
/// Longer objects are not plausible: an address where something else is.
const SIZE_MAX: u64 = 1 << 31;

/// Reads a `str` that is a name or a path, at most `bytes_max` bytes of it, as UTF-8. Characters that are none are replaced.
/// The compiler accepts no NUL in names and paths: where one is, something else was read.
pub(super) fn read_text(
    memory: &impl ForeignMemory,
    at: Avma,
    layout: &NameLayout,
    bytes_max: usize,
) -> Result<Box<str>, FunctionError> {
    let (head, first) = read_first(memory, at, layout.ascii_bytes.into())?;
    let state = field::<4>(&head, layout.head.text_state()).map_or(0, u32::from_le_bytes);
    let (kind, is_compact, is_ascii) = (state >> 2 & 7, state & 1 << 5 != 0, state & 1 << 6 != 0);
    if !is_compact || !matches!(kind, 1 | 2 | 4) || is_ascii && kind != 1 {
        return Err(FunctionError::Malformed("not a compact string"));
    }
    let start = if is_ascii { layout.ascii_bytes } else { layout.compact_bytes };
    let unit = kind as usize;
    let characters = size(&head, layout.head)?.min(bytes_max / unit);
    let data = read_rest(memory, at, head, first, start.into(), characters * unit)?;
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

/// A field of an object.
pub(super) fn field<const BYTES: usize>(object: &[u8], at: u16) -> Option<[u8; BYTES]> {
    object.get(usize::from(at)..)?.first_chunk().copied()
}
