//! Reads tables of an ELF file in pieces, whatever size their headers claim.

use std::io;
use std::ops::Range;

use object::pod::{Pod, slice_from_all_bytes};

use crate::read_at::ReadAt;

/// Bytes per read: a multiple of the sizes of all table entries.
const PIECE_BYTES: usize = 24 * 2048;
/// The most bytes of one table that are read. The largest relocation tables of programs in use are about as large.
const TABLE_BYTES_MAX: u64 = 64 << 20;
/// The most places of one string that are kept.
const FOUND_MAX: usize = 8;

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
    find_strings_with_prefix(file, table, &[name, b"\0"].concat(), FOUND_MAX)
}

/// The same for each of several names, in one pass.
pub(super) fn find_each_string(
    file: &impl ReadAt,
    table: Range<u64>,
    names: &[&[u8]],
) -> io::Result<Vec<Vec<u64>>> {
    let longest = names.iter().map(|name| name.len()).max().unwrap_or(0);
    let end = table.end.min(table.start.saturating_add(TABLE_BYTES_MAX));
    let mut found = vec![Vec::new(); names.len()];
    let mut piece = vec![0; PIECE_BYTES.max(2 * longest)];
    let (mut at, mut kept) = (table.start, 0);
    while at < end {
        let most = usize::try_from(end - at).unwrap_or(piece.len()).min(piece.len() - kept);
        let read = file.read_up_to(&mut piece[kept..kept + most], at)?;
        let filled = kept + read;
        let ends = (kept..filled).filter(|byte| piece[*byte] == 0);
        for end in ends {
            for (name, offsets) in names.iter().zip(&mut found) {
                if offsets.len() < FOUND_MAX && piece[..end].ends_with(name) {
                    offsets.push(at + end as u64 - kept as u64 - name.len() as u64 - table.start);
                }
            }
        }
        if read < most {
            break;
        }
        at += read as u64;
        // A string that starts in this piece may end in the next.
        kept = longest.min(filled);
        piece.copy_within(filled - kept..filled, 0);
    }
    Ok(found)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_found_wherever_pieces_end() {
        let names: [&[u8]; 3] = [b"tail", b"whole", b"absent"];
        for padding in [0, 1, PIECE_BYTES - 7, PIECE_BYTES - 3, PIECE_BYTES, 3 * PIECE_BYTES - 5] {
            let mut table = vec![b'x'; padding];
            table.extend_from_slice(b"\0with_tail\0whole\0wholes\0");
            let range = 0..table.len() as u64;
            let found = find_each_string(&&table[..], range.clone(), &names).unwrap();
            let at = padding as u64;
            assert_eq!(found, [vec![at + 6], vec![at + 11], vec![]], "{padding}");
            for (name, offsets) in names.iter().zip(&found) {
                assert_eq!(&find_string(&&table[..], range.clone(), name).unwrap(), offsets, "{padding}");
            }
            // The table ends before the file does.
            assert_eq!(find_each_string(&&table[..], 0..at + 12, &names).unwrap()[1], []);
        }
    }
}
