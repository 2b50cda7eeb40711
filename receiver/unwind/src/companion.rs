//! Additional files about the same code: separate debug files, and the small one inside `.gnu_debugdata`.

use std::io::Read as _;

use lzma_rust2::XzReader;
use object::{File, Object as _, ObjectSection as _};
use sidewinder_unwind_table::{RowSource, Summary};

use crate::elf::memory_of;
use crate::memory::{Memory, Reservation};
use crate::read::{LimitedFile, ReadFile};

/// The largest dictionary that decompression may use, in KiB. `xz` has 8 MiB with its default options. It takes no more memory
/// than what is decompressed.
const MAX_DECODER_KIB: u32 = 16 << 10;

/// The memory that decompression takes for each byte of the result, which grows by being copied, beside the dictionary.
const MEMORY_SHARE: u64 = 4;

/// The ELF file inside `.gnu_debugdata` ("MiniDebugInfo" in GDB's manual), decompressed.
pub(crate) struct MiniDebugInfo<'memory> {
    bytes: Vec<u8>,
    memory: Memory<'memory>,
    _reserved: Reservation<'memory>,
}

impl<'memory> MiniDebugInfo<'memory> {
    /// Decompresses what a file has. What can't be read counts as malformed, and so does what doesn't fit the memory.
    pub(crate) fn from_file<R: ReadFile<'memory>>(
        file: &File<'memory, R>,
        summary: &mut Summary,
    ) -> Option<Self> {
        let compressed = file.section_by_name(".gnu_debugdata")?.data().ok()?;
        let memory = memory_of(file);
        let left_bytes = memory.left_bytes();
        let unpacked = unpack_mini_debug_info(compressed, left_bytes);
        if let Err(UnpackError::NoMemory) = unpacked {
            memory.refuse(left_bytes.saturating_add(1));
        }
        let reserved = unpacked.ok().and_then(|bytes| Some((memory.reserve(bytes.capacity())?, bytes)));
        if reserved.is_none() {
            Summary::count(&mut summary.malformed, RowSource::MiniDebugInfo);
        }
        reserved.map(|(_reserved, bytes)| Self { bytes, memory, _reserved })
    }

    /// The file, if it is one.
    pub(crate) fn file(&self) -> Option<File<'_, LimitedFile<'_>>> {
        File::parse(LimitedFile::new(&self.bytes, self.memory)).ok()
    }
}

/// Why `.gnu_debugdata` isn't decompressed.
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    /// It isn't in the format of `xz`, or has an error.
    #[error("malformed")]
    Malformed(#[from] std::io::Error),
    /// It would take more memory than there is for it.
    #[error("no memory to decompress it")]
    NoMemory,
}

/// The ELF file inside the bytes of `.gnu_debugdata`.
///
/// # Errors
///
/// If they are malformed, or if decompressing them would take more than `memory_bytes`.
pub fn unpack_mini_debug_info(compressed: &[u8], memory_bytes: u64) -> Result<Vec<u8>, UnpackError> {
    let max_bytes = memory_bytes / MEMORY_SHARE;
    let mut data = Vec::new();
    let reader = XzReader::new_mem_limit(compressed, false, MAX_DECODER_KIB);
    let bytes = reader.take(max_bytes.saturating_add(1)).read_to_end(&mut data)?;
    data.shrink_to_fit();
    if bytes as u64 > max_bytes { Err(UnpackError::NoMemory) } else { Ok(data) }
}
