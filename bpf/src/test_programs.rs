//! Access to the test programs (`c/test.bpf.h`), which no release contains.

use std::io;
use std::path::Path;
use std::ptr::NonNull;

use libbpf_rs::{Link, ProgramInput};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use sidewinder_address::FileOffset;
use sidewinder_unwind_table::Entry;

use crate::load::LoadError;
use crate::profiler::Profiler;
use crate::ring::RegisterFile;
use crate::table::{PackedSegment, Packing};
use crate::walk::WalkMode;

/// A probe at an address of a program, at which samples are taken.
#[derive(Debug)]
pub struct AttachedProbe {
    _link: Link,
}

impl Profiler<'_> {
    /// Takes a sample whenever a process in scope executes an address of a program, until the result is dropped.
    ///
    /// # Errors
    /// If the kernel refuses the probe, or [`Options::test_programs`](crate::Options::test_programs) isn't set.
    pub fn attach_probe(&self, program: &Path, offset: FileOffset) -> Result<AttachedProbe, LoadError> {
        let any_process = -1;
        let programs = &self.skeleton.progs;
        let sample_probe = match self.walk() {
            WalkMode::Loop => &programs.sample_probe,
            WalkMode::TailCalls => &programs.sample_probe_by_calls,
        };
        sample_probe
            .attach_uprobe(false, any_process, program, offset.0 as usize)
            .map(|link| AttachedProbe { _link: link })
            .map_err(|source| LoadError::Refused { doing: "attaching to a program", source })
    }

    /// Hits of probes without a sample.
    #[must_use]
    pub fn probes_lost(&self) -> u64 {
        self.skeleton.maps.bss_data.as_deref().map_or(0, |counted| counted.probes_lost)
    }

    /// Samples this process as if it had been interrupted with these registers; returns whether there was a sample. Only
    /// if walks are [loops](WalkMode::Loop).
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn walk_from_registers(&self, registers: &RegisterFile) -> Result<bool, LoadError> {
        let mut arguments = (registers.as_ptr() as u64).to_ne_bytes();
        let input = ProgramInput { context_in: Some(&mut arguments), ..ProgramInput::default() };
        let output = self.skeleton.progs.walk_given.test_run(input);
        output
            .map(|output| output.return_value == 1)
            .map_err(|source| LoadError::Refused { doing: "walking from given registers", source })
    }
}

impl PackedSegment {
    /// The table of a file of one page, in which each entry covers `spacing` bytes, one after the other.
    #[must_use]
    pub fn from_entries(entries: &[Entry], spacing: u64) -> Self {
        Self::from_page(entries.iter().zip(0..).map(|(entry, i)| (i * spacing, *entry)), Packing::Auto)
    }
}

/// Readable and writable memory of this process, in the middle of a range of addresses that is otherwise unmapped.
#[derive(Debug)]
pub struct StackMemory {
    /// The whole range, in bytes.
    reserved: NonNull<u8>,
    bytes: usize,
}

impl StackMemory {
    /// The inaccessible bytes on either side.
    pub const GAP_BYTES: usize = 64 << 20;

    /// The smallest page of the architecture.
    pub const PAGE_BYTES: usize = 1 << crate::intf::SW_PAGE_SHIFT;

    /// Maps this number of such pages.
    ///
    /// # Errors
    /// If the kernel gives no memory.
    pub fn new(pages: usize) -> io::Result<Self> {
        let bytes = pages * Self::PAGE_BYTES;
        let all_bytes = bytes + 2 * Self::GAP_BYTES;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address that the kernel chooses doesn't change existing memory.
        let reserved = unsafe { mmap_anonymous(std::ptr::null_mut(), all_bytes, ProtFlags::empty(), flags) }?;
        let start = reserved.wrapping_byte_add(Self::GAP_BYTES);
        // SAFETY: these pages are within the new mapping, to which nobody else has a pointer.
        unsafe { mprotect(start, bytes, MprotectFlags::READ | MprotectFlags::WRITE) }?;
        let reserved = NonNull::new(reserved.cast()).ok_or_else(|| io::Error::other("mapped at null"))?;
        Ok(Self { reserved, bytes })
    }

    /// The address of the first word.
    #[must_use]
    pub fn start(&self) -> u64 {
        self.reserved.as_ptr() as u64 + Self::GAP_BYTES as u64
    }

    /// All words.
    pub fn words(&mut self) -> &mut [u64] {
        let start = self.reserved.as_ptr().wrapping_byte_add(Self::GAP_BYTES).cast();
        // SAFETY: the mapping is page-aligned, readable and writable for this many bytes, lives as long as `self`, and is
        // only accessible through `self`; any bytes are valid integers.
        unsafe { std::slice::from_raw_parts_mut(start, self.bytes / size_of::<u64>()) }
    }
}

impl Drop for StackMemory {
    fn drop(&mut self) {
        let all_bytes = self.bytes + 2 * Self::GAP_BYTES;
        // SAFETY: this is the whole mapping that `new` created; borrows of it borrow `self`.
        let _ = unsafe { munmap(self.reserved.as_ptr().cast(), all_bytes) };
    }
}
