//! Bytes of a process, read from front to back.

use std::ops::Range;

use sidewinder_address::Avma;
use sidewinder_process::ForeignMemory;
use sidewinder_vm_runtime::FunctionError;

/// How many bytes are read at a time.
const CHUNK_BYTES: u32 = 16 << 10;
/// The most bytes of a number in LEB128, of up to 64 bits.
const NUMBER_BYTES_MAX: usize = 10;

/// Reads a range of bytes.
pub(super) struct BytesReader<'a, M> {
    memory: &'a M,
    /// What offsets count from.
    start: Avma,
    position: u32,
    end: u32,
    /// The bytes from an offset on that were read last.
    chunk: Vec<u8>,
    chunk_start: u32,
}

impl<'a, M: ForeignMemory> BytesReader<'a, M> {
    /// Reads a range of what is at an address.
    pub(super) fn new(memory: &'a M, start: Avma, range: Range<u32>) -> Self {
        Self { memory, start, position: range.start, end: range.end, chunk: Vec::new(), chunk_start: 0 }
    }

    /// The offset of the next byte.
    pub(super) fn position(&self) -> u32 {
        self.position
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.position >= self.end
    }

    pub(super) fn byte(&mut self) -> Result<u8, FunctionError> {
        if self.is_at_end() {
            return Err(FunctionError::Malformed("a module that ends too early"));
        }
        if self.position < self.chunk_start || self.position - self.chunk_start >= self.chunk.len() as u32 {
            let bytes = CHUNK_BYTES.min(self.end - self.position);
            self.chunk.resize(bytes as usize, 0);
            self.chunk_start = self.position;
            let at = self.start.checked_add(self.position.into());
            let at = at.ok_or(FunctionError::Malformed("not an address"))?;
            if let Err(error) = self.memory.read_exact(at, &mut self.chunk) {
                self.chunk.clear();
                return Err(error.into());
            }
        }
        let byte = self.chunk.get((self.position - self.chunk_start) as usize).copied();
        self.position += 1;
        byte.ok_or(FunctionError::Malformed("a module that ends too early"))
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], FunctionError> {
        let mut bytes = [0; N];
        for byte in &mut bytes {
            *byte = self.byte()?;
        }
        Ok(bytes)
    }

    /// A number in LEB128, of 32 bits.
    pub(super) fn number(&mut self) -> Result<u32, FunctionError> {
        let mut number: u32 = 0;
        for shift in (0..u32::BITS).step_by(7) {
            let byte = self.byte()?;
            number |= u32::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(FunctionError::Malformed("a number that does not end"))
    }

    /// Skips a number of any size and sign.
    pub(super) fn skip_number(&mut self) -> Result<(), FunctionError> {
        for _ in 0..NUMBER_BYTES_MAX {
            if self.byte()? & 0x80 == 0 {
                return Ok(());
            }
        }
        Err(FunctionError::Malformed("a number that does not end"))
    }

    pub(super) fn skip(&mut self, bytes: u32) -> Result<(), FunctionError> {
        let to = self.position.checked_add(bytes).filter(|to| *to <= self.end);
        self.position = to.ok_or(FunctionError::Malformed("a module that ends too early"))?;
        Ok(())
    }

    /// The kind of what comes next, which a byte says, and its content, whose length follows; the reader is then behind it.
    pub(super) fn part(&mut self) -> Result<(u8, Self), FunctionError> {
        let kind = self.byte()?;
        let length = self.number()?;
        let start = self.position;
        self.skip(length)?;
        Ok((kind, Self::new(self.memory, self.start, start..self.position)))
    }

    pub(super) fn text(&mut self, bytes: u32) -> Result<String, FunctionError> {
        let mut text = Vec::new();
        for _ in 0..bytes {
            text.push(self.byte()?);
        }
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}
