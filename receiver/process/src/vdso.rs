//! The kernel's vDSO, which every process maps and no file holds.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::mapping::Backing;
use crate::maps::read_executable_mappings;

/// The most that is read of it, in bytes; it has two or three pages.
const MOST_VDSO_BYTES: u64 = 1 << 20;

/// The image of the vDSO, read from our own memory: the kernel gives all 64-bit processes the same one.
///
/// # Errors
/// [`io::ErrorKind::NotFound`] where this kernel maps none, or whatever reading `/proc/self` returns.
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
