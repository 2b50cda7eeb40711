//! How a C library lays out `struct pthread`, to which `pthread_self()` points, and in which a thread has the values of pthread
//! keys.

pub(crate) mod layout;

use std::io;

use sidewinder_process::ReadAt;
use sidewinder_process::tls::{ElfFile, ElfSymbol};

pub use self::layout::{BLOCK_PAIRS, CLibrary, KeyValues, PAIR_BYTES, PthreadLayout};
use crate::arch;

/// No thread's structure is larger: glibc's has 2 KiB.
const STRUCTURE_BYTES_MAX: u32 = 1 << 14;

impl PthreadLayout {
    /// Whether files have to be read for it on this architecture.
    pub const IS_READ: bool = arch::pthread_layout(CLibrary::Glibc).is_none();

    /// Reads it from the file of glibc, which states sizes and offsets for debuggers (`nptl_db/db_info.c`). `None` if this is
    /// another file.
    ///
    /// # Errors
    /// Any I/O error of the file.
    pub fn read(file: &impl ReadAt) -> io::Result<Option<Self>> {
        let Some(elf) = ElfFile::read(file)? else { return Ok(None) };
        let names: [&[u8]; 2] = [b"_thread_db_sizeof_pthread", b"_thread_db_pthread_specific"];
        let Some([Some(size), Some(specific)]) = elf.exported(file, names)? else { return Ok(None) };
        let number = |symbol: ElfSymbol, index: u64| -> io::Result<Option<u32>> {
            let at = symbol.address.checked_add(index * size_of::<u32>() as u64);
            let Some(at) = at else { return Ok(None) };
            Ok(elf.content(file, at, size_of::<u32>())?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes)))
        };
        // The second is an array's description: the bits of an item, how many there are, and the offset of the first.
        let (Some(bytes), Some(pointers)) = (number(size, 0)?, number(specific, 2)?) else { return Ok(None) };
        let Some(first) = pointers.checked_sub(BLOCK_PAIRS * PAIR_BYTES) else { return Ok(None) };
        if bytes > STRUCTURE_BYTES_MAX || pointers >= bytes {
            return Ok(None);
        }
        let structure = arch::offset_of_pthread(bytes);
        let offset = |of_field: u32| structure + i64::from(of_field);
        let values = KeyValues::Blocks { first: offset(first), pointers: offset(pointers) };
        Ok(Some(Self { structure, values }))
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn glibc_says_what_is_known_of_it() {
        let mappings = std::fs::read_to_string("/proc/self/maps").unwrap();
        let mut paths = mappings.lines().filter_map(|line| line.split_whitespace().nth(5));
        let path = paths.find(|path| path.ends_with("/libc.so.6")).expect("this test uses glibc");
        let read = PthreadLayout::read(&File::open(path).unwrap()).unwrap();
        assert!(read.is_some());
        if let Some(known) = arch::pthread_layout(CLibrary::Glibc) {
            assert_eq!(read, Some(known));
        }
        let other = File::open(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(PthreadLayout::read(&other).unwrap(), None);
    }
}
