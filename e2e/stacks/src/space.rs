//! The address space of a stopped process: what is mapped where, and what its stack holds.

use std::fmt;
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use sidewinder_e2e_judge::elf::SIGRETURN;

/// An executable mapping.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Mapping {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) file_offset: u64,
    /// As the process sees it; empty for anonymous memory.
    pub(crate) path: Arc<str>,
}

/// An address in the terms of what is mapped there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// In a file, at an offset.
    File(Arc<str>, u64),
    /// In memory that no file backs.
    Memory(u64),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path, offset) => write!(f, "{path}+{offset:#x}"),
            Self::Memory(address) => write!(f, "{address:#x}"),
        }
    }
}

impl Place {
    /// The next byte.
    pub(crate) fn behind(self) -> Self {
        match self {
            Self::File(path, offset) => Self::File(path, offset + 1),
            Self::Memory(address) => Self::Memory(address.wrapping_add(1)),
        }
    }
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Space {
    code: Vec<Mapping>,
    memory: File,
}

impl Space {
    pub(crate) fn of(pid: u32) -> Result<Self> {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).context("the process is gone")?;
        let memory = File::open(format!("/proc/{pid}/mem"))?;
        Ok(Self { code: maps.lines().filter_map(executable).collect(), memory })
    }

    /// Of a process that QEMU emulates, at the same addresses, without ever executing its code itself.
    pub(crate) fn of_emulated(pid: u32) -> Result<Self> {
        let Self { code, memory } = Self::of(pid)?;
        let emulator: Vec<Arc<str>> = code.into_iter().map(|mapping| mapping.path).collect();
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).context("the process is gone")?;
        let readable = maps.lines().filter_map(|line| mapping(line, "r--"));
        let code =
            readable.filter(|mapping| mapping.path.is_empty() || !emulator.contains(&mapping.path)).collect();
        Ok(Self { code, memory })
    }

    pub(crate) fn code(&self) -> &[Mapping] {
        &self.code
    }

    /// Whether there is code at an address.
    pub(crate) fn is_code(&self, address: u64) -> bool {
        self.mapping(address).is_some()
    }

    fn mapping(&self, address: u64) -> Option<&Mapping> {
        self.code.iter().find(|mapping| (mapping.start..mapping.end).contains(&address))
    }

    /// What is mapped at an address.
    pub(crate) fn place(&self, address: u64) -> Place {
        match self.mapping(address) {
            Some(mapping) if !mapping.path.is_empty() => {
                Place::File(Arc::clone(&mapping.path), address - mapping.start + mapping.file_offset)
            }
            _ => Place::Memory(address),
        }
    }

    /// Some bytes of memory.
    pub(crate) fn bytes(&self, address: u64, count: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; count];
        self.memory.read_exact_at(&mut bytes, address).ok()?;
        Some(bytes)
    }

    /// Whether the code at an address is that which signal handlers return to.
    pub(crate) fn is_sigreturn(&self, address: u64) -> bool {
        SIGRETURN.iter().any(|call| self.bytes(address, call.len()).is_some_and(|code| code == *call))
    }

    pub(crate) fn word(&self, address: u64) -> Option<u64> {
        let mut word = [0; 8];
        self.memory.read_exact_at(&mut word, address).ok()?;
        Some(u64::from_ne_bytes(word))
    }
}

/// A line of /proc/PID/maps, as in proc_pid_maps(5), if it is about code.
fn executable(line: &str) -> Option<Mapping> {
    ["r-x", "rwx", "--x"].into_iter().find_map(|permissions| mapping(line, permissions))
}

/// Such a line, if it is about memory with these permissions.
fn mapping(line: &str, permissions: &str) -> Option<Mapping> {
    let mut columns = line.splitn(6, ' ');
    let (start, end) = columns.next()?.split_once('-')?;
    let is_wanted = columns.next()?.starts_with(permissions);
    let file_offset = columns.next()?;
    let path = columns.nth(2).unwrap_or_default().trim_start();
    let number = |text| u64::from_str_radix(text, 16).ok();
    is_wanted.then_some(Mapping {
        start: number(start)?,
        end: number(end)?,
        file_offset: number(file_offset)?,
        path: path.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_about_code_are_read_with_and_without_a_path() {
        let file = executable("1000-3000 r-xp 00002000 fe:00 17      /usr/lib/a b.so");
        let expected =
            Mapping { start: 0x1000, end: 0x3000, file_offset: 0x2000, path: "/usr/lib/a b.so".into() };
        assert_eq!(file, Some(expected.clone()));
        let anonymous = executable("1000-3000 rwxp 00000000 00:00 0 ");
        assert_eq!(anonymous, Some(Mapping { file_offset: 0, path: "".into(), ..expected }));
        assert_eq!(executable("1000-3000 r--p 00002000 fe:00 17      /usr/lib/a.so"), None);
    }
}
