//! Reads the format of `jit-PID.dump` as perf(1) does.
//!
//! Source: Linux, `tools/perf/Documentation/jitdump-specification.txt`, version 1: a header, then records, each with a
//! type, a length and a time. Only the native byte order is read, which the writer also uses if it runs on the same
//! machine.

use super::code_map::CodeMap;

/// `JiTD`.
const MAGIC: u32 = 0x4a69_5444;
const HEADER_BYTES: usize = 40;
const RECORD_BYTES: usize = 16;
/// Bytes of a record that are kept: its fields and its name. The code after them is skipped.
const KEPT_BYTES: usize = RECORD_BYTES + 56 + 1024;
/// Types of records.
const CODE_LOAD: u32 = 0;
const CODE_MOVE: u32 = 1;

/// The state of reading: the position in the file, and the data seen of the current record.
#[derive(Debug, Default)]
pub(super) struct JitDumpReader {
    state: JitDumpState,
    /// The part of the current header or record that is kept.
    buffered: Vec<u8>,
    /// Malformed records; 1 if the whole file is malformed.
    pub(super) malformed: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum JitDumpState {
    /// In the header, whose length isn't known yet.
    #[default]
    Header,
    /// In a record, whose length isn't known yet.
    Record,
    /// In a header or record with this many bytes left.
    InRecord(u64),
    /// The boundaries of records are lost.
    Desynchronized,
}

impl JitDumpReader {
    pub(super) fn feed(&mut self, mut bytes: &[u8], code: &mut CodeMap) {
        while !bytes.is_empty() && self.state != JitDumpState::Desynchronized {
            match self.state {
                JitDumpState::Header => self.begin(&mut bytes, HEADER_BYTES, |seen| {
                    // The header's length follows the magic number and the version.
                    (word(seen, 0) == Some(MAGIC)).then(|| word(seen, 8)).flatten()
                }),
                JitDumpState::Record => self.begin(&mut bytes, RECORD_BYTES, |seen| word(seen, 4)),
                JitDumpState::InRecord(left) => {
                    let here = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
                    let (now, rest) = bytes.split_at(here);
                    let room = KEPT_BYTES.saturating_sub(self.buffered.len()).min(now.len());
                    self.buffered.extend_from_slice(now.get(..room).unwrap_or_default());
                    bytes = rest;
                    self.state = JitDumpState::InRecord(left - here as u64);
                }
                JitDumpState::Desynchronized => {}
            }
            if self.state == JitDumpState::InRecord(0) {
                self.end(code);
            }
        }
    }

    /// Reads a header or record up to its length field.
    fn begin(&mut self, bytes: &mut &[u8], least: usize, length: impl FnOnce(&[u8]) -> Option<u32>) {
        let (now, rest) = bytes.split_at((least - self.buffered.len()).min(bytes.len()));
        self.buffered.extend_from_slice(now);
        *bytes = rest;
        if self.buffered.len() < least {
            return;
        }
        let length = length(&self.buffered).and_then(|length| u64::from(length).checked_sub(least as u64));
        match length {
            Some(left) => self.state = JitDumpState::InRecord(left),
            None => {
                self.malformed += 1;
                self.state = JitDumpState::Desynchronized;
            }
        }
    }

    fn end(&mut self, code: &mut CodeMap) {
        // The header parses as a record whose type is the magic number, which is no record's type.
        let body = self.buffered.get(RECORD_BYTES..).unwrap_or_default();
        let taken = match word(&self.buffered, 0) {
            Some(CODE_LOAD) => load(body, code),
            Some(CODE_MOVE) => move_code(body, code),
            _ => Some(()),
        };
        self.malformed += u64::from(taken.is_none());
        self.buffered.clear();
        self.state = JitDumpState::Record;
    }
}

/// PID, TID, address, address of the code, its length, its index, its name.
fn load(body: &[u8], code: &mut CodeMap) -> Option<()> {
    let (start, bytes) = (long(body, 16)?, long(body, 24)?);
    let name = body.get(40..)?.split(|byte| *byte == 0).next().filter(|name| !name.is_empty())?;
    code.insert(start, bytes, name);
    Some(())
}

/// PID, TID, address, old and new address of the code, its length, its index.
fn move_code(body: &[u8], code: &mut CodeMap) -> Option<()> {
    let (from, to, bytes) = (long(body, 16)?, long(body, 24)?, long(body, 32)?);
    let name = code.starting_at(from)?.to_owned();
    code.remove(from, from.checked_add(bytes)?);
    code.insert(to, bytes, name.as_bytes());
    Some(())
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().copied().map(u32::from_ne_bytes)
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().copied().map(u64::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u32, body: &[u8]) -> Vec<u8> {
        let length = (RECORD_BYTES + body.len()) as u32;
        [&kind.to_ne_bytes()[..], &length.to_ne_bytes(), &[0; 8], body].concat()
    }

    fn longs(longs: &[u64]) -> Vec<u8> {
        longs.iter().flat_map(|long| long.to_ne_bytes()).collect()
    }

    fn file() -> Vec<u8> {
        let mut file = [MAGIC, 1, HEADER_BYTES as u32].map(u32::to_ne_bytes).concat();
        file.resize(HEADER_BYTES, 0);
        let code = [0x90; 0x2000];
        let body = [&longs(&[0, 0x1000, 0x1000, 0x2000, 7]), &b"LazyCompile:~work\0"[..], &code].concat();
        file.extend(record(CODE_LOAD, &body));
        file.extend(record(2, &longs(&[0x1000, 0])));
        file.extend(record(CODE_MOVE, &longs(&[0, 0, 0x1000, 0x8000, 0x2000, 7])));
        file.extend(record(CODE_LOAD, &[&longs(&[0, 0x1000, 0x1000, 0x10, 8]), &b"next\0"[..]].concat()));
        file
    }

    #[test]
    fn records_are_read_however_they_arrive() {
        for size in [1, 5, 17, 100_000] {
            let (mut reader, mut code) = (JitDumpReader::default(), CodeMap::new(1 << 20));
            file().chunks(size).for_each(|bytes| reader.feed(bytes, &mut code));
            let found = [0x1000, 0x1010, 0x9fff, 0xa000].map(|at| code.lookup(at));
            assert_eq!(found, [Some("next"), None, Some("LazyCompile:~work"), None]);
            assert_eq!(reader.malformed, 0);
            assert!(reader.buffered.capacity() <= 2 * KEPT_BYTES);
        }
    }

    #[test]
    fn another_file_and_a_record_shorter_than_itself_end_it() {
        let (mut reader, mut code) = (JitDumpReader::default(), CodeMap::new(1 << 20));
        reader.feed(&[0; 4096], &mut code);
        assert_eq!((reader.state, reader.malformed), (JitDumpState::Desynchronized, 1));
        let mut reader = JitDumpReader::default();
        reader.feed(&file()[..HEADER_BYTES], &mut code);
        reader.feed(&[[0_u32, 8].map(u32::to_ne_bytes).concat(), vec![0; 8]].concat(), &mut code);
        assert_eq!((reader.state, reader.malformed), (JitDumpState::Desynchronized, 1));
    }
}
