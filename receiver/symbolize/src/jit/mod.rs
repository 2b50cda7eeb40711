//! Names of code that a process made while it ran, from what its runtime writes about it.
//!
//! Two forms are read, both of which grow while they are: `perf_map` is text, `jitdump` is binary. Of entries that overlap
//! the newest holds: runtimes throw code away and use its place again without saying so.

mod code_map;
mod jitdump;
mod perf_map;
mod symbol_files;

use std::io;

use crate::image::Image;
use code_map::CodeMap;
pub use symbol_files::JitSymbols;

/// Bytes of the file that are gone through at once, which takes some milliseconds. What is left is gone through the next time.
const BYTES_AT_ONCE: u64 = 8 << 20;
/// Bytes read at once.
const CHUNK_BYTES: usize = 64 << 10;

/// How a runtime writes about its code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JitForm {
    /// `/tmp/perf-PID.map`: a line of start, size and name for each function.
    PerfMap,
    /// `jit-PID.dump`: records, of which perf(1) makes binaries.
    JitDump,
}

/// What a runtime has written of the code of one process.
#[derive(Debug)]
pub struct JitMap {
    image: Image,
    reader: Reader,
    /// How much of the file has been gone through.
    read_bytes: u64,
    code: CodeMap,
}

#[derive(Debug)]
enum Reader {
    PerfMap(perf_map::Reader),
    JitDump(jitdump::Reader),
}

impl JitMap {
    /// A file of which nothing has been read yet. What is kept of it takes `room_bytes` at most.
    #[must_use]
    pub fn new(image: impl Into<Image>, form: JitForm, room_bytes: usize) -> Self {
        let reader = match form {
            JitForm::PerfMap => Reader::PerfMap(perf_map::Reader::default()),
            JitForm::JitDump => Reader::JitDump(jitdump::Reader::default()),
        };
        Self { image: image.into(), reader, read_bytes: 0, code: CodeMap::new(room_bytes) }
    }

    /// Takes up what has been written since. A file that has become shorter is read anew.
    ///
    /// # Errors
    ///
    /// What reading gives.
    pub fn refresh(&mut self) -> io::Result<()> {
        let file_bytes = self.image.len()?;
        if file_bytes < self.read_bytes {
            self.read_bytes = 0;
            self.code.clear();
            self.reader = match self.reader {
                Reader::PerfMap(_) => Reader::PerfMap(perf_map::Reader::default()),
                Reader::JitDump(_) => Reader::JitDump(jitdump::Reader::default()),
            };
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
            self.take(chunk.get(..count).unwrap_or_default());
        }
        Ok(())
    }

    /// The function that holds an address.
    #[must_use]
    pub fn lookup(&self, address: u64) -> Option<&str> {
        self.code.lookup(address)
    }

    /// Functions for which there was no room, and what is written in no form that is known.
    #[must_use]
    pub fn cut(&self) -> u64 {
        let malformed = match &self.reader {
            Reader::PerfMap(reader) => reader.malformed,
            Reader::JitDump(reader) => reader.malformed,
        };
        self.code.cut + malformed
    }

    /// Memory held, in bytes.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.code.heap_bytes()
    }

    fn take(&mut self, bytes: &[u8]) {
        match &mut self.reader {
            Reader::PerfMap(reader) => reader.take(bytes, &mut self.code),
            Reader::JitDump(reader) => reader.take(bytes, &mut self.code),
        }
    }
}
