//! What tests do with programs of their own (`c/test.bpf.h`), and that no release contains.

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

/// A place that samples are taken at.
#[derive(Debug)]
pub struct AttachedProbe {
    _link: Link,
}

impl Profiler<'_> {
    /// Samples each pass of any process in scope through a place of a program, until what is returned is dropped.
    ///
    /// # Errors
    /// If the kernel refuses the probe, or [`Options::test_programs`](crate::Options::test_programs) was not asked for.
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

    /// Passes through probed places that left no sample.
    #[must_use]
    pub fn probes_lost(&self) -> u64 {
        self.skeleton.maps.bss_data.as_deref().map_or(0, |counted| counted.probes_lost)
    }

    /// Samples this process as if it had been interrupted with these registers; whether there was a walk. Where walks are
    /// [loops](Walk::Loop).
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
    /// The table of a file of one page in which each entry holds for `spacing` bytes, one after the other.
    #[must_use]
    pub fn from_entries(entries: &[Entry], spacing: u64) -> Self {
        Self::from_page(entries.iter().zip(0..).map(|(entry, i)| (i * spacing, *entry)), Packing::Auto)
    }
}

/// Memory of this process that can be read and written, in the middle of a stretch of addresses at which nothing else is.
#[derive(Debug)]
pub struct StackMemory {
    /// Of the whole stretch.
    reserved: NonNull<u8>,
    bytes: usize,
}

impl StackMemory {
    /// On either side of what can be read.
    pub const GAP_BYTES: usize = 64 << 20;

    /// The smallest page of the architecture.
    pub const PAGE_BYTES: usize = 1 << crate::intf::SW_PAGE_SHIFT;

    /// So many pages of that size.
    ///
    /// # Errors
    /// If the kernel gives no memory.
    pub fn new(pages: usize) -> io::Result<Self> {
        let bytes = pages * Self::PAGE_BYTES;
        let all_bytes = bytes + 2 * Self::GAP_BYTES;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at a place of the kernel's choice changes no memory that anybody has.
        let reserved = unsafe { mmap_anonymous(std::ptr::null_mut(), all_bytes, ProtFlags::empty(), flags) }?;
        let start = reserved.wrapping_byte_add(Self::GAP_BYTES);
        // SAFETY: these pages lie within the mapping that was just made, and that nobody else knows.
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
        // SAFETY: the mapping is page-aligned, readable and writable for so many bytes, lives as long as `self`, and is
        // reached through `self` alone; any bytes are numbers.
        unsafe { std::slice::from_raw_parts_mut(start, self.bytes / size_of::<u64>()) }
    }
}

impl Drop for StackMemory {
    fn drop(&mut self) {
        let all_bytes = self.bytes + 2 * Self::GAP_BYTES;
        // SAFETY: the whole of the mapping that `new` made; what borrowed from it borrowed from `self`.
        let _ = unsafe { munmap(self.reserved.as_ptr().cast(), all_bytes) };
    }
}
