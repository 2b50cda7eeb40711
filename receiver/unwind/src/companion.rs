//! Additional files about the same code: separate debug files, and the small one inside `.gnu_debugdata`.

use std::io::Read as _;

use lzma_rust2::XzReader;
use object::{File, Object as _, ObjectSection as _, ReadRef};
use sidewinder_unwind_table::{RowSource, Summary};

/// The largest size that `.gnu_debugdata` may decompress to: a few bytes can claim any size.
const MAX_MINI_DEBUG_INFO_BYTES: u64 = 64 << 20;

/// The most memory that decompression may use, in KiB. `xz` needs 9 MiB with its default options.
const MAX_DECODER_KIB: u32 = 16 << 10;

/// The ELF file inside `.gnu_debugdata` ("MiniDebugInfo" in GDB's manual), decompressed. One that can't be read counts
/// as malformed.
pub(crate) fn mini_debug_info<'data, R: ReadRef<'data>>(
    file: &File<'data, R>,
    summary: &mut Summary,
) -> Option<Vec<u8>> {
    let compressed = file.section_by_name(".gnu_debugdata")?.data().ok()?;
    let data = unpack_mini_debug_info(compressed, MAX_MINI_DEBUG_INFO_BYTES);
    if data.is_none() {
        Summary::count(&mut summary.malformed, RowSource::MiniDebugInfo);
    }
    data
}

/// The ELF file inside the bytes of `.gnu_debugdata`, or `None` if they are malformed or it is larger than `max_bytes`.
#[must_use]
pub fn unpack_mini_debug_info(compressed: &[u8], max_bytes: u64) -> Option<Vec<u8>> {
    let mut data = Vec::new();
    let reader = XzReader::new_mem_limit(compressed, false, MAX_DECODER_KIB);
    let read = reader.take(max_bytes.saturating_add(1)).read_to_end(&mut data);
    read.is_ok_and(|bytes| bytes as u64 <= max_bytes).then_some(data)
}
