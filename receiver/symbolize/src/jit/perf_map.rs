//! Reads the format of `/tmp/perf-PID.map` as perf(1) does.
//!
//! Source: Linux, `tools/perf/Documentation/jit-interface.txt`: `START SIZE symbolname`, both numbers hexadecimal and
//! without `0x`, although some runtimes write it. The name extends to the end of the line and may contain spaces.

use super::code_map::CodeMap;

/// The longest line that is read. The rest of a longer one is skipped.
const LINE_LIMIT_BYTES: usize = 4096;

/// The reader's state: an incomplete line at the end of the bytes read so far.
#[derive(Debug, Default)]
pub(super) struct PerfMapReader {
    line: Vec<u8>,
    /// Malformed lines.
    pub(super) malformed: u64,
}

impl PerfMapReader {
    pub(super) fn feed(&mut self, bytes: &[u8], code: &mut CodeMap) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let room = LINE_LIMIT_BYTES.saturating_sub(self.line.len());
            self.line.extend_from_slice(piece.get(..room).unwrap_or(piece));
            if !piece.ends_with(b"\n") {
                continue;
            }
            match parse(&self.line) {
                Some((start, size, name)) => code.insert(start, size, name),
                None => self.malformed += u64::from(!self.line.trim_ascii().is_empty()),
            }
            self.line.clear();
        }
    }
}

fn parse(line: &[u8]) -> Option<(u64, u64, &[u8])> {
    let line = line.trim_ascii();
    let mut parts = line.splitn(3, |byte| *byte == b' ');
    let start = number(parts.next()?)?;
    let size = number(parts.next()?)?;
    let name = parts.next()?.trim_ascii();
    (!name.is_empty()).then_some((start, size, name))
}

fn number(digits: &[u8]) -> Option<u64> {
    let digits = str::from_utf8(digits).ok()?;
    let digits = digits.strip_prefix("0x").unwrap_or(digits);
    // A sign is not a digit here.
    digits
        .starts_with(|first: char| first.is_ascii_hexdigit())
        .then(|| u64::from_str_radix(digits, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_however_they_arrive() {
        let text = b"1000 20 JS:*work /app/a.js:1:2\n0x2000 0x10 py::main:/app/a.py\nno line\n3000 10 \n+1 2 sign\n4000 8 half";
        for size in [1, 3, 7, 1000] {
            let (mut reader, mut code) = (PerfMapReader::default(), CodeMap::new(1 << 20));
            text.chunks(size).for_each(|bytes| reader.feed(bytes, &mut code));
            assert_eq!(code.lookup(0x101f), Some("JS:*work /app/a.js:1:2"));
            assert_eq!(code.lookup(0x2000), Some("py::main:/app/a.py"));
            assert_eq!((code.lookup(0x4000), reader.malformed), (None, 3), "its line has not ended");
            reader.feed(b" done\n", &mut code);
            assert_eq!(code.lookup(0x4000), Some("half done"));
        }
    }

    #[test]
    fn a_line_without_end_takes_no_memory() {
        let (mut reader, mut code) = (PerfMapReader::default(), CodeMap::new(1 << 20));
        reader.feed(b"1000 10 ", &mut code);
        (0..1000).for_each(|_| reader.feed(&[b'x'; 4096], &mut code));
        assert!(reader.line.capacity() <= 2 * LINE_LIMIT_BYTES);
        reader.feed(b"\n2000 10 next\n", &mut code);
        assert_eq!(code.lookup(0x2000), Some("next"));
    }
}
