//! `/proc/PID/maps`: bytes in, executable mappings out.
//!
//! The format is proc(5)'s: `start-end perms offset major:minor inode path`, where the kernel writes a
//! newline in a path as `\012` and escapes nothing else.

use std::io::{self, Read};
use std::ops::Range;

use sidewinder_address::{Avma, FileOffset};
use thiserror::Error;

use crate::event::MappedIdentity;
use crate::id::DeviceId;
use crate::mapping::{Backing, ExecutableMapping, MappedFile};

/// The longest line that is read whole, in bytes: the fields, and a path in which every byte is escaped.
const LONGEST_LINE_BYTES: usize = 128 + 4 * MappedFile::LONGEST_PATH_BYTES;

/// Bytes asked of the kernel at once.
const CHUNK_BYTES: usize = 32 * 1024;

/// One line, its fields as they stand there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MapsLine<'line> {
    /// Where the memory lies.
    pub range: Range<Avma>,
    /// Whether it may be executed.
    pub executable: bool,
    /// Which byte of the file comes first.
    pub file_offset: FileOffset,
    /// The device of the file.
    pub device: DeviceId,
    /// The number of the file on its device; 0 where there is no file.
    pub inode: u64,
    /// The path or name, still escaped; empty where there is none.
    pub escaped_name: &'line [u8],
}

/// Why a line is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum MapsLineError {
    /// The range is no pair of hexadecimal numbers.
    #[error("no address range")]
    Range,
    /// The range ends where it starts or before.
    #[error("address range is empty")]
    EmptyRange,
    /// The four letters of permissions are not there.
    #[error("no permissions")]
    Permissions,
    /// The offset is no hexadecimal number.
    #[error("no file offset")]
    FileOffset,
    /// The device is no pair of hexadecimal numbers.
    #[error("no device")]
    Device,
    /// The inode is no decimal number.
    #[error("no inode")]
    Inode,
}

impl<'line> MapsLine<'line> {
    /// Parses one line, given without its newline.
    ///
    /// # Errors
    /// Names the first field that is not what proc(5) promises.
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

/// What was in one reading besides the mappings.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct MapsSummary {
    /// Lines in all.
    pub lines: u64,
    /// Lines that are not what proc(5) promises.
    pub malformed: u64,
    /// Executable mappings whose line was too long to hold: kept, with an unknown path.
    pub overlong: u64,
}

/// Reads `maps` to its end and calls `keep` for each executable mapping, in order.
///
/// Memory is bounded by the longest line; lines that aren't executable cost no allocation.
///
/// # Errors
/// Whatever reading returns (`ESRCH` once the process has gone).
pub fn read_executable_mappings(
    mut maps: impl Read,
    mut keep: impl FnMut(ExecutableMapping),
) -> io::Result<MapsSummary> {
    let mut summary = MapsSummary::default();
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
                summary.take_line(line, false, &mut keep);
            }
            rest = after;
        }
        if rest.len() > LONGEST_LINE_BYTES {
            if !std::mem::replace(&mut skipping, true) {
                summary.take_line(rest, true, &mut keep);
            }
            rest = &[];
        }
        if read == 0 {
            return Ok(summary);
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

/// The first line and what follows it; at the end of the input what is left is a line too.
fn split_line(bytes: &[u8], at_end: bool) -> Option<(&[u8], &[u8])> {
    match bytes.iter().position(|&byte| byte == b'\n') {
        Some(newline) => Some((&bytes[..newline], &bytes[newline + 1..])),
        None if at_end && !bytes.is_empty() => Some((bytes, &[])),
        None => None,
    }
}

/// The bytes up to a space, and those after it.
fn field(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|&byte| byte == b' ').unwrap_or(bytes.len());
    (end > 0).then(|| (&bytes[..end], bytes.get(end + 1..).unwrap_or_default()))
}

fn pair(bytes: &[u8], between: u8) -> Option<(u64, u64)> {
    let at = bytes.iter().position(|&byte| byte == between)?;
    Some((hexadecimal(&bytes[..at])?, hexadecimal(&bytes[at + 1..])?))
}

fn hexadecimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 16 {
        return None;
    }
    digits.iter().try_fold(0, |value, &digit| Some(value << 4 | u64::from(char::from(digit).to_digit(16)?)))
}

fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |value, &digit| {
        value.checked_mul(10)?.checked_add(u64::from(char::from(digit).to_digit(10)?))
    })
}

/// How the kernel writes a newline in a path.
const NEWLINE: &[u8] = b"\\012";

/// The name with its newlines back. As the kernel does not escape the backslash, a name that holds these
/// four characters itself looks the same; opening the file tries both.
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

/// The path with its newlines written as the kernel writes them: the other reading of what [`unescape`]
/// made of a name; `None` where there is nothing to read in two ways.
pub(crate) fn escape(path: &[u8]) -> Option<Vec<u8>> {
    path.contains(&b'\n').then(|| path.split(|&byte| byte == b'\n').collect::<Vec<_>>().join(NEWLINE))
}
