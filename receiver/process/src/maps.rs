//! Parses `/proc/PID/maps` into executable mappings.
//!
//! The format is proc(5)'s: `start-end perms offset major:minor inode path`, where the kernel writes a
//! newline in a path as `\012` and escapes nothing else.

use std::io::{self, Read};
use std::ops::Range;

use sidewinder_address::{Avma, FileOffset};
use thiserror::Error;

use crate::id::{DeviceId, MappedIdentity};
use crate::mapping::{Backing, ExecutableMapping, MappedFile};

/// The longest line that is read completely, in bytes: the fields, and a path in which every byte is escaped.
const LONGEST_LINE_BYTES: usize = 128 + 4 * MappedFile::LONGEST_PATH_BYTES;

/// Bytes per read.
const CHUNK_BYTES: usize = 32 * 1024;

/// One line, with its fields as written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MapsLine<'line> {
    /// The address range.
    pub range: Range<Avma>,
    /// Whether it is executable.
    pub executable: bool,
    /// The file offset of the first byte.
    pub file_offset: FileOffset,
    /// The device of the file.
    pub device: DeviceId,
    /// The inode number of the file; 0 if there is no file.
    pub inode: u64,
    /// The path or name, still escaped; empty if there is none.
    pub escaped_name: &'line [u8],
}

/// Why a line is not valid.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum MapsLineError {
    /// The range is not a pair of hexadecimal numbers.
    #[error("no address range")]
    Range,
    /// The range ends at or before its start.
    #[error("address range is empty")]
    EmptyRange,
    /// The four permission letters are missing.
    #[error("no permissions")]
    Permissions,
    /// The offset is not a hexadecimal number.
    #[error("no file offset")]
    FileOffset,
    /// The device is not a pair of hexadecimal numbers.
    #[error("no device")]
    Device,
    /// The inode is not a decimal number.
    #[error("no inode")]
    Inode,
}

impl<'line> MapsLine<'line> {
    /// Parses one line, without its newline.
    ///
    /// # Errors
    /// Names the first field that does not conform to proc(5).
    pub fn parse(line: &'line [u8]) -> Result<Self, MapsLineError> {
        use MapsLineError as E;
        let (range, rest) = field(line).ok_or(E::Range)?;
        let (start, end) = pair(range, b'-').ok_or(E::Range)?;
        if start >= end {
            return Err(E::EmptyRange);
        }
        let (permissions, rest) = field(rest).ok_or(E::Permissions)?;
        let &[_, _, execute, _] = permissions else { return Err(E::Permissions) };
        let (offset, rest) = field(rest).ok_or(E::FileOffset)?;
        let (device, rest) = field(rest).ok_or(E::Device)?;
        let (major, minor) = pair(device, b':').ok_or(E::Device)?;
        let (inode, rest) = field(rest).ok_or(E::Inode)?;
        Ok(Self {
            range: Avma(start)..Avma(end),
            executable: execute == b'x',
            file_offset: FileOffset(hexadecimal(offset).ok_or(E::FileOffset)?),
            device: DeviceId {
                major: u32::try_from(major).map_err(|_| E::Device)?,
                minor: u32::try_from(minor).map_err(|_| E::Device)?,
            },
            inode: decimal(inode).ok_or(E::Inode)?,
            escaped_name: rest.trim_ascii_start(),
        })
    }

    /// The mapping that this line reports.
    fn to_mapping(&self) -> ExecutableMapping {
        let identity =
            (self.inode != 0).then_some(MappedIdentity::Inode { device: self.device, inode: self.inode });
        ExecutableMapping {
            range: self.range.clone(),
            file_offset: self.file_offset,
            backing: Backing::from_report(identity, &unescape(self.escaped_name)),
        }
    }
}

/// Counters of one read.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct MapsSummary {
    /// All lines.
    pub lines: u64,
    /// Lines that do not conform to proc(5).
    pub malformed: u64,
    /// Executable mappings whose line was too long: kept, with an unknown path.
    pub overlong: u64,
}

/// Reads `maps` to its end and calls `keep` for each executable mapping, in order.
///
/// Memory is bounded by the longest line; other lines cause no allocation.
///
/// # Errors
/// Any I/O error of the source (`ESRCH` once the process is gone).
pub fn read_executable_mappings(
    maps: impl Read,
    mut keep: impl FnMut(ExecutableMapping),
) -> io::Result<MapsSummary> {
    let mut summary = MapsSummary::default();
    read_lines(maps, |line, overlong| summary.take_line(line, overlong, &mut keep))?;
    Ok(summary)
}

/// Reads `maps` to its end and calls `take` for each line, without its newline. The second argument is `true` if the line
/// is too long, and only its beginning is given.
///
/// # Errors
/// Any I/O error of the source.
pub(crate) fn read_lines(mut maps: impl Read, mut take: impl FnMut(&[u8], bool)) -> io::Result<()> {
    let mut buffer = vec![0; CHUNK_BYTES.max(LONGEST_LINE_BYTES * 2)];
    let mut filled = 0;
    let mut skipping = false;
    loop {
        let read = match maps.read(buffer.get_mut(filled..).unwrap_or_default()) {
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let unread = buffer.get(..filled + read).unwrap_or_default();
        let mut rest = unread;
        while let Some((line, after)) = split_line(rest, read == 0) {
            if !std::mem::take(&mut skipping) {
                take(line, false);
            }
            rest = after;
        }
        if rest.len() > LONGEST_LINE_BYTES {
            if !std::mem::replace(&mut skipping, true) {
                take(rest, true);
            }
            rest = &[];
        }
        if read == 0 {
            return Ok(());
        }
        let kept = unread.len() - rest.len()..unread.len();
        filled = kept.len();
        buffer.copy_within(kept, 0);
    }
}

impl MapsSummary {
    fn take_line(&mut self, line: &[u8], overlong: bool, keep: &mut impl FnMut(ExecutableMapping)) {
        self.lines += 1;
        match MapsLine::parse(line) {
            Ok(line) if !line.executable => {}
            Ok(mut line) => {
                if overlong {
                    self.overlong += 1;
                    line.escaped_name = &[];
                }
                keep(line.to_mapping());
            }
            Err(_) => self.malformed += 1,
        }
    }
}

/// The first line and the rest; at the end of the input, the rest is a line too.
fn split_line(bytes: &[u8], at_end: bool) -> Option<(&[u8], &[u8])> {
    match bytes.iter().position(|&byte| byte == b'\n') {
        Some(newline) => Some((&bytes[..newline], &bytes[newline + 1..])),
        None if at_end && !bytes.is_empty() => Some((bytes, &[])),
        None => None,
    }
}

/// The bytes before a space, and those after it.
fn field(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|&byte| byte == b' ').unwrap_or(bytes.len());
    (end > 0).then(|| (&bytes[..end], bytes.get(end + 1..).unwrap_or_default()))
}

fn pair(bytes: &[u8], between: u8) -> Option<(u64, u64)> {
    let at = bytes.iter().position(|&byte| byte == between)?;
    Some((hexadecimal(&bytes[..at])?, hexadecimal(&bytes[at + 1..])?))
}

fn hexadecimal(digits: &[u8]) -> Option<u64> {
    number(digits, 16)
}

fn decimal(digits: &[u8]) -> Option<u64> {
    number(digits, 10)
}

/// Digits alone: the standard library also accepts a sign.
fn number(digits: &[u8], radix: u32) -> Option<u64> {
    let digits = str::from_utf8(digits).ok().filter(|digits| !digits.starts_with('+'))?;
    u64::from_str_radix(digits, radix).ok()
}

/// The kernel's escape sequence for a newline in a path.
const NEWLINE: &[u8] = b"\\012";

/// The name with its newlines restored. Because the kernel does not escape the backslash, a name that contains these four
/// characters itself looks the same; opening the file tries both.
fn unescape(name: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some((&byte, after)) = rest.split_first() {
        match rest.strip_prefix(NEWLINE) {
            Some(after) => {
                plain.push(b'\n');
                rest = after;
            }
            None => {
                plain.push(byte);
                rest = after;
            }
        }
    }
    plain
}

/// The path with its newlines escaped as the kernel does: the other interpretation of a name returned by [`unescape`].
/// `None` if the name is not ambiguous.
pub(crate) fn escape(path: &[u8]) -> Option<Vec<u8>> {
    path.contains(&b'\n').then(|| path.split(|&byte| byte == b'\n').collect::<Vec<_>>().join(NEWLINE))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse_all(maps: &[u8]) -> (Vec<ExecutableMapping>, MapsSummary) {
        let mut mappings = Vec::new();
        let summary = read_executable_mappings(maps, |mapping| mappings.push(mapping)).unwrap();
        (mappings, summary)
    }

    fn file_path(mapping: &ExecutableMapping) -> &[u8] {
        mapping.backing.file().unwrap().reported_path()
    }

    #[test]
    fn only_executable_lines_are_kept_with_all_their_fields() {
        let (mappings, summary) = parse_all(
            b"5628fff8d000-5628fff8f000 r--p 00000000 fe:00 247278                     /usr/bin/head\n\
              5628fff8f000-5628fff95000 r-xp 00002000 fe:00 247278                     /usr/bin/head\n\
              7ffff7fc5000-7ffff7fc7000 r-xp 00000000 00:00 0                          [vdso]\n\
              7f0000000000-7f0000001000 rwxp 00000000 00:00 0 \n\
              ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]\n",
        );
        let identity = MappedIdentity::Inode { device: DeviceId { major: 0xfe, minor: 0 }, inode: 247278 };
        assert_eq!(mappings[0].range, Avma(0x5628fff8f000)..Avma(0x5628fff95000));
        assert_eq!(mappings[0].file_offset, FileOffset(0x2000));
        assert_eq!(mappings[0].backing.file().unwrap().identity, identity);
        assert_eq!(file_path(&mappings[0]), b"/usr/bin/head");
        let others: Vec<_> = mappings[1..].iter().map(|mapping| &mapping.backing).collect();
        assert_eq!(others, [&Backing::Vdso, &Backing::Anonymous, &Backing::Vsyscall]);
        assert_eq!(summary, MapsSummary { lines: 5, malformed: 0, overlong: 0 });
    }

    #[test]
    fn a_name_may_hold_spaces_a_newline_and_the_mark_of_deletion() {
        let (mappings, _) = parse_all(
            b"1000-2000 r-xp 0 fe:00 7                     /a b/c\\012 d (deleted)\n\
              2000-3000 r-xp 0 fe:00 8                     /x\n",
        );
        let file = mappings[0].backing.file().unwrap();
        assert_eq!(file.reported_path(), b"/a b/c\n d (deleted)");
        assert_eq!((file.path(), file.name()), (b"/a b/c\n d".as_slice(), b"c\n d".as_slice()));
        assert!(file.is_marked_deleted());
        assert_eq!(escape(file.path()).unwrap(), b"/a b/c\\012 d");
        assert_eq!(file_path(&mappings[1]), b"/x");
    }

    #[test]
    fn a_malformed_line_costs_that_line() {
        for (line, error) in [
            (b"".as_slice(), MapsLineError::Range),
            (b"10-zz r-xp 0 0:0 0", MapsLineError::Range),
            (b"2000-2000 r-xp 0 0:0 0", MapsLineError::EmptyRange),
            (b"1000-2000 r-x 0 0:0 0", MapsLineError::Permissions),
            (b"1000-2000 r-xp g 0:0 0", MapsLineError::FileOffset),
            (b"1000-2000 r-xp 0 00 0", MapsLineError::Device),
            (b"1000-2000 r-xp 0 100000000:0 0", MapsLineError::Device),
            (b"1000-2000 r-xp 0 0:0 99999999999999999999", MapsLineError::Inode),
        ] {
            assert_eq!(MapsLine::parse(line), Err(error), "{}", line.escape_ascii());
        }
        let (mappings, summary) = parse_all(b"garbage\n1000-2000 r-xp 0 fe:00 7 /x");
        assert_eq!(mappings.len(), 1);
        assert_eq!(summary.malformed, 1);
    }

    #[test]
    fn an_overlong_line_keeps_its_range_and_loses_its_path() {
        let mut maps = b"1000-2000 r-xp 0 fe:00 7 /".to_vec();
        maps.resize(10 * LONGEST_LINE_BYTES, b'y');
        maps.extend_from_slice(b"\n3000-4000 r-xp 0 fe:00 8 /x\n");
        let (mappings, summary) = parse_all(&maps);
        assert_eq!(mappings.len(), 2);
        assert_eq!(file_path(&mappings[0]), b"");
        assert_eq!(file_path(&mappings[1]), b"/x");
        assert_eq!(summary, MapsSummary { lines: 2, malformed: 0, overlong: 1 });
    }

    /// Returns its content in pieces of given sizes, as files of `/proc` may.
    struct Pieces<'bytes>(&'bytes [u8], std::iter::Cycle<std::vec::IntoIter<usize>>);

    impl Read for Pieces<'_> {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            let size = self.1.next().unwrap_or(1).min(to.len());
            self.0.read(&mut to[..size])
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_to_their_end(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
            let (mappings, summary) = parse_all(&bytes);
            prop_assert!(mappings.len() as u64 + summary.malformed <= summary.lines);
        }

        #[test]
        fn what_was_written_is_read_however_it_is_cut(
            lines in prop::collection::vec((1_u64..1 << 40, any::<bool>(), any::<u32>(), "[ -~]{0,40}"), 0..30),
            sizes in prop::collection::vec(1_usize..100, 1..10),
        ) {
            let mut written = String::new();
            let mut expected = Vec::new();
            for (page, executable, inode, name) in &lines {
                let (start, letter) = (page << 12, if *executable { 'x' } else { '-' });
                written += &format!("{start:x}-{:x} r-{letter}p {page:08x} fe:01 {inode} /{name}\n", start + 0x1000);
                if *executable {
                    expected.push((Avma(start), *inode, format!("/{}", name.replace("\\012", "\n"))));
                }
            }
            let mut read = Vec::new();
            let pieces = Pieces(written.as_bytes(), sizes.into_iter().cycle());
            read_executable_mappings(pieces, |mapping| read.push(mapping)).unwrap();
            prop_assert_eq!(read.len(), expected.len());
            for (mapping, (start, inode, path)) in read.iter().zip(&expected) {
                prop_assert_eq!(mapping.range.start, *start);
                match mapping.backing.file() {
                    Some(file) if path.starts_with("//") => prop_assert_eq!(file.reported_path(), b""),
                    Some(file) => prop_assert_eq!(file.reported_path(), path.as_bytes()),
                    None => prop_assert_eq!(*inode, 0),
                }
            }
        }
    }
}
