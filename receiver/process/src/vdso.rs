//! The kernel's vDSO, which every process maps, and which is in no file.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::mapping::Backing;
use crate::maps::read_executable_mappings;

/// The most bytes of it that are read; it has two or three pages.
const MOST_VDSO_BYTES: u64 = 1 << 20;

/// The image of the vDSO, read from our own memory: the kernel maps the same one into all 64-bit processes.
///
/// # Errors
/// [`io::ErrorKind::NotFound`] if this kernel maps none, or any I/O error of `/proc/self`.
pub fn vdso_image() -> io::Result<Vec<u8>> {
    let mut range = None;
    read_executable_mappings(File::open("/proc/self/maps")?, |mapping| {
        if mapping.backing == Backing::Vdso {
            range = Some(mapping.range);
        }
    })?;
    let range = range.ok_or(io::ErrorKind::NotFound)?;
    let length = range.end.0.saturating_sub(range.start.0).min(MOST_VDSO_BYTES);
    let mut image = vec![0; length as usize];
    File::open("/proc/self/mem")?.read_exact_at(&mut image, range.start.0)?;
    Ok(image)
}
