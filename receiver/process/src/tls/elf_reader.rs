//! Reads tables of an ELF file in pieces, whatever size their headers claim.

use std::io;
use std::ops::Range;

use object::pod::{Pod, slice_from_all_bytes};

use crate::read_at::ReadAt;

/// Bytes per read: a multiple of the sizes of all table entries.
const PIECE_BYTES: usize = 24 * 2048;
/// The most bytes of one table that are read. The largest relocation tables of programs in use are about as large.
const TABLE_BYTES_MAX: u64 = 64 << 20;

/// Reads one value; `None` if the file ends too early.
pub(super) fn read_one<T: Pod + Copy>(file: &impl ReadAt, offset: u64) -> io::Result<Option<T>> {
    let mut found = None;
    for_each(file, offset..offset.saturating_add(size_of::<T>() as u64), |_, value: &T| {
        found = Some(*value);
        true
    })?;
    Ok(found)
}

/// Calls `take` for each entry of a table, with its index, until it returns false.
pub(super) fn for_each<T: Pod>(
    file: &impl ReadAt,
    table: Range<u64>,
    mut take: impl FnMut(u64, &T) -> bool,
) -> io::Result<()> {
    // A buffer of words, because entries have the alignment of words.
    let mut piece = vec![0_u64; PIECE_BYTES / 8];
    let end = table.end.min(table.start.saturating_add(TABLE_BYTES_MAX));
    let (mut at, mut number) = (table.start, 0);
    while at < end {
        let wanted = usize::try_from(end - at).unwrap_or(PIECE_BYTES).min(PIECE_BYTES) / size_of::<T>()
            * size_of::<T>();
        let bytes = &mut object::pod::bytes_of_slice_mut(&mut piece)[..wanted];
        let read = file.read_up_to(bytes, at)? / size_of::<T>() * size_of::<T>();
        let Ok(entries) = slice_from_all_bytes::<T>(&bytes[..read]) else { return Ok(()) };
        for entry in entries {
            if !take(number, entry) {
                return Ok(());
            }
            number += 1;
        }
        if read == 0 {
            return Ok(());
        }
        at += read as u64;
    }
    Ok(())
}

/// The offsets in a string table at which `name` is a string, or the end of one: names may share bytes in this way.
pub(super) fn find_string(file: &impl ReadAt, table: Range<u64>, name: &[u8]) -> io::Result<Vec<u64>> {
    const FOUND_MAX: usize = 8;
    find_strings_with_prefix(file, table, &[name, b"\0"].concat(), FOUND_MAX)
}

/// The offsets in a string table at which strings, or ends of strings, start with `prefix`: the first ones, in order.
pub(super) fn find_strings_with_prefix(
    file: &impl ReadAt,
    table: Range<u64>,
    prefix: &[u8],
    found_max: usize,
) -> io::Result<Vec<u64>> {
    let Some((last, before)) = prefix.split_last() else { return Ok(Vec::new()) };
    let end = table.end.min(table.start.saturating_add(TABLE_BYTES_MAX));
    let mut piece = vec![0; PIECE_BYTES];
    let (mut at, mut found) = (table.start, Vec::new());
    while at < end {
        let most = usize::try_from(end - at).unwrap_or(PIECE_BYTES).min(PIECE_BYTES);
        let read = file.read_up_to(&mut piece[..most], at)?;
        // The last byte, often the end of a string, is rarer than the first ones.
        let lasts = piece[..read].iter().skip(before.len()).enumerate().filter(|(_, byte)| *byte == last);
        let starts = lasts.map(|(start, _)| start).filter(|start| piece[*start..].starts_with(before));
        found.extend(starts.map(|start| at + start as u64 - table.start));
        // A string that starts in this piece and ends in the next is read again.
        let next = (read + 1).saturating_sub(prefix.len());
        if next == 0 || read < most || found.len() >= found_max {
            break;
        }
        at += next as u64;
    }
    found.truncate(found_max);
    Ok(found)
}
