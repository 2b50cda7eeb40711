//! The constants by which a file describes the objects of its heap.

use std::collections::HashMap;
use std::io;

use sidewinder_process::ReadAt;
use sidewinder_process::tls::ElfFile;

/// `v8::internal::Version::major_`, which not all builds export.
pub(super) const MAJOR: &[u8] = b"_ZN2v88internal7Version6major_E";

pub(super) const MINOR: &[u8] = b"_ZN2v88internal7Version6minor_E";

/// Offsets of fields are below this, in bytes: as much as walks read of an object.
pub(super) const OFFSET_MAX: u16 = 120;

/// The constants of a file by name.
pub(super) struct Constants(HashMap<&'static [u8], i32>);

impl Constants {
    /// Reads those of these names that a file has.
    pub(super) fn read(file: &impl ReadAt, elf: &ElfFile, names: &[&'static [u8]]) -> io::Result<Self> {
        let symbols = elf.exported_each(file, names)?;
        let mut values = HashMap::new();
        for (name, symbol) in names.iter().zip(symbols) {
            let Some(symbol) = symbol else { continue };
            let bytes = elf.content(file, symbol.address, size_of::<i32>())?;
            values.extend(bytes.first_chunk().map(|bytes| (*name, i32::from_le_bytes(*bytes))));
        }
        Ok(Self(values))
    }

    pub(super) fn get(&self, name: &[u8]) -> Option<i32> {
        self.0.get(name).copied()
    }

    /// The value of the first of these that there is.
    pub(super) fn any(&self, names: &[&[u8]]) -> Option<u16> {
        names.iter().find_map(|name| self.get(name))?.try_into().ok()
    }
}
