//! Names of code that a process generated while it ran, from the files that its runtime writes.
//!
//! Two formats are read, and their files grow meanwhile: `perf_map` is text, `jitdump` is binary. Of entries that
//! overlap, the newest holds: runtimes discard code and reuse its addresses without recording that.

mod code_map;
mod jitdump;
mod perf_map;
mod symbol_files;

use std::io;

use crate::image::Image;
use code_map::CodeMap;
pub use symbol_files::JitSymbols;

/// The most bytes read by one refresh, which takes some milliseconds. The next refresh continues after them.
const BYTES_AT_ONCE: u64 = 8 << 20;
/// Bytes in one read.
const CHUNK_BYTES: usize = 64 << 10;

/// The length of the tail of the data read, which is compared to detect that a file was rewritten: a line or two.
const LAST_BYTES: usize = 64;

/// The format in which a runtime records its code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JitMapFormat {
    /// `/tmp/perf-PID.map`: a line of start, size and name for each function.
    PerfMap,
    /// `jit-PID.dump`: records, which perf(1) converts to binaries.
    JitDump,
}

/// The functions that a runtime has recorded for one process.
#[derive(Debug)]
pub struct JitMap {
    image: Image,
    form: JitMapFormat,
    reader: JitFileReader,
    /// Bytes of the file that have been read.
    read_bytes: u64,
    /// The last of these bytes.
    last: Vec<u8>,
    code: CodeMap,
}

#[derive(Debug)]
enum JitFileReader {
    PerfMap(perf_map::PerfMapReader),
    JitDump(jitdump::JitDumpReader),
}

impl JitFileReader {
    /// The reader for the beginning of a file.
    fn new(form: JitMapFormat) -> Self {
        match form {
            JitMapFormat::PerfMap => Self::PerfMap(perf_map::PerfMapReader::default()),
            JitMapFormat::JitDump => Self::JitDump(jitdump::JitDumpReader::default()),
        }
    }
}

impl JitMap {
    /// A map of a file that hasn't been read yet. What is kept takes at most `room_bytes`.
    #[must_use]
    pub fn new(image: impl Into<Image>, form: JitMapFormat, room_bytes: usize) -> Self {
        Self {
            image: image.into(),
            form,
            reader: JitFileReader::new(form),
            read_bytes: 0,
            last: Vec::new(),
            code: CodeMap::new(room_bytes),
        }
    }

    /// Reads what has been written since the last refresh, and returns whether that is everything. A file that has
    /// become shorter or was rewritten is read again from the start.
    ///
    /// # Errors
    ///
    /// Errors of reading the file.
    pub fn refresh(&mut self) -> io::Result<bool> {
        let file_bytes = self.image.len()?;
        if file_bytes == self.read_bytes {
            return Ok(true);
        }
        if file_bytes < self.read_bytes || !self.has_same_prefix()? {
            self.restart();
        }
        let end = file_bytes.min(self.read_bytes.saturating_add(BYTES_AT_ONCE));
        let mut chunk = vec![0; CHUNK_BYTES];
        while self.read_bytes < end {
            let wanted = (end - self.read_bytes).min(CHUNK_BYTES as u64) as usize;
            let count = self.image.read_at(self.read_bytes, chunk.get_mut(..wanted).unwrap_or_default())?;
            if count == 0 {
                break;
            }
            self.read_bytes += count as u64;
            self.feed(chunk.get(..count).unwrap_or_default());
        }
        Ok(end == file_bytes)
    }

    /// Whether the bytes read last are unchanged in the file.
    fn has_same_prefix(&self) -> io::Result<bool> {
        let mut there = vec![0; self.last.len()];
        let count = self.image.read_at(self.read_bytes - self.last.len() as u64, &mut there)?;
        Ok(there.get(..count) == Some(&self.last))
    }

    fn restart(&mut self) {
        self.read_bytes = 0;
        self.last.clear();
        self.code.clear();
        self.reader = JitFileReader::new(self.form);
    }

    /// The function that contains an address.
    #[must_use]
    pub fn lookup(&self, address: u64) -> Option<&str> {
        self.code.lookup(address)
    }

    /// The number of functions that have been read and are kept.
    #[must_use]
    pub fn functions(&self) -> usize {
        self.code.len()
    }

    /// Functions left out for lack of memory, and malformed entries.
    #[must_use]
    pub fn cut(&self) -> u64 {
        let malformed = match &self.reader {
            JitFileReader::PerfMap(reader) => reader.malformed,
            JitFileReader::JitDump(reader) => reader.malformed,
        };
        self.code.cut + malformed
    }

    /// Memory held, in bytes.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.code.heap_bytes()
    }

    fn feed(&mut self, bytes: &[u8]) {
        self.last.extend_from_slice(bytes.get(bytes.len().saturating_sub(LAST_BYTES)..).unwrap_or_default());
        self.last.drain(..self.last.len().saturating_sub(LAST_BYTES));
        match &mut self.reader {
            JitFileReader::PerfMap(reader) => reader.feed(bytes, &mut self.code),
            JitFileReader::JitDump(reader) => reader.feed(bytes, &mut self.code),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_file_that_grows_is_read_on_and_one_that_was_written_anew_is_read_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("perf-1.map");
        fs::write(&path, "1000 10 first\n").unwrap();
        let mut map = JitMap::new(File::open(&path).unwrap(), JitMapFormat::PerfMap, 1 << 20);
        let named = |map: &JitMap| [0x1000, 0x2000].map(|address| map.lookup(address).map(str::to_owned));
        assert!(map.refresh().unwrap() && named(&map) == [Some("first".to_owned()), None]);

        let mut file = File::options().append(true).open(&path).unwrap();
        file.write_all(b"2000 10 second\n").unwrap();
        assert!(map.refresh().unwrap());
        assert_eq!(named(&map), [Some("first".to_owned()), Some("second".to_owned())]);

        // Longer than before, with different content up to the byte at which reading would continue.
        fs::write(&path, "1000 10 other\n1800 10 between\n2000 10 third\n").unwrap();
        assert!(map.refresh().unwrap());
        assert_eq!(named(&map), [Some("other".to_owned()), Some("third".to_owned())]);

        fs::write(&path, "2000 10 last\n").unwrap();
        assert!(map.refresh().unwrap());
        assert_eq!((named(&map), map.cut()), ([None, Some("last".to_owned())], 0));
        assert_eq!(map.functions(), 1);
    }

    #[test]
    fn a_long_file_is_read_in_turns() {
        let line = b"1000 10 name\n";
        let bytes = line.repeat(BYTES_AT_ONCE as usize / line.len() + 1);
        let mut map = JitMap::new(bytes, JitMapFormat::PerfMap, 1 << 20);
        assert_eq!([(); 3].map(|()| map.refresh().unwrap()), [false, true, true]);
        assert_eq!((map.lookup(0x100f), map.cut()), (Some("name"), 0));
    }
}
