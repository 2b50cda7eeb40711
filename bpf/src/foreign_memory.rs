//! The memory of other processes, read by an eBPF program in the kernel.
//!
//! `process_vm_readv(2)` requires `CAP_SYS_PTRACE` for the memory of other users. An iterator over one task (Linux 6.1) that
//! copies from its memory requires `CAP_BPF` and `CAP_PERFMON`, and these only to load it: creating its links and iterators,
//! and reading from those, requires nothing. The program checks for which process it runs: see `c/foreign_memory.bpf.c`.
//!
//! The program reads no memory that is backed by a file system which may never answer, such as FUSE: while it waited, the
//! kernel could not free sleepable programs, nor remove uprobes, of anyone.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use libbpf_rs::ProgramType;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use rustix::io::Errno;
use zerocopy::{FromBytes as _, IntoBytes as _};

use crate::denial;
use crate::intf;
use crate::iterator;
use crate::load::{LoadError, PodCgroup, Storage, pid_namespace_inode};
use crate::memory::MappedArray;
use crate::opener::Opener;
use crate::skeleton::foreign_memory::ForeignMemorySkelBuilder;
use crate::walk::BPF_FIND_VMA;

const BATCHES: usize = intf::SW_READ_BATCHES as usize;
const READS_MAX: usize = intf::SW_READS_MAX as usize;
const READ_BYTES_MAX: usize = intf::SW_READ_BYTES_MAX as usize;
/// How often a read is repeated if the process was changing its mappings, and the time before the first repetition, which
/// doubles with each: a thread that holds the lock of the mappings may have to wait for a CPU. 51 ms in all.
const BUSY_TRIES: u32 = 9;
const BUSY_FIRST_WAIT: Duration = Duration::from_micros(100);

/// The loaded programs, and the memory that they share with us.
#[derive(Debug)]
pub struct ForeignMemoryPrograms {
    read_memory: OwnedFd,
    find_contexts: OwnedFd,
    batches: MappedArray,
    data: MappedArray,
    /// Which batches are in use, by number.
    claims: [AtomicBool; BATCHES],
}

impl ForeignMemoryPrograms {
    /// The memory of the maps, in bytes.
    pub const MAP_BYTES: usize =
        BATCHES * (size_of::<intf::sw_read_batch>() + intf::SW_READ_DATA_BYTES as usize);

    /// The most threads that can read at the same time.
    pub const READERS_MAX: usize = BATCHES;

    /// Loads the programs, and reads from our own memory to see that they work. With a pod, only processes in its cgroup can
    /// be read. Requires `CAP_BPF` and `CAP_PERFMON`.
    ///
    /// # Errors
    /// If the kernel refuses: before Linux 6.1, or without the capabilities.
    pub fn load(pod: Option<PodCgroup>) -> Result<Arc<Self>, LoadError> {
        let programs = Arc::new(Self::load_unchecked(pod)?);
        let failed = |source| LoadError::Map { map: "our own memory", source };
        programs.check().map_err(failed)?;
        Ok(programs)
    }

    fn load_unchecked(pod: Option<PodCgroup>) -> Result<Self, LoadError> {
        let refused = |doing| move |source| LoadError::Refused { doing, source };
        // Of the helpers that the programs need, this is one that can be asked for. Older kernels would refuse the programs
        // with long messages.
        if denial::is_privileged()
            && ProgramType::PerfEvent.is_helper_supported(BPF_FIND_VMA).is_ok_and(|is| !is)
        {
            let reason = io::Error::new(io::ErrorKind::Unsupported, "it has no bpf_find_vma (Linux 5.17)");
            return Err(refused("looking for helpers")(reason.into()));
        }
        let mut storage = Storage::uninit();
        let mut open = ForeignMemorySkelBuilder::default()
            .open(&mut storage)
            .map_err(refused("opening the programs that read memory"))?;
        let own_namespace = pid_namespace_inode()?;
        if let Some(fixed) = open.maps.rodata_data.as_deref_mut() {
            if let Some(PodCgroup { level, id }) = pod {
                (fixed.pod_level, fixed.pod_cgroup) = (level, id);
            }
            fixed.pid_namespace_inode = own_namespace;
        }
        let skeleton = open.load().map_err(refused("loading the programs that read memory"))?;
        let of_map = |map| move |source| LoadError::Map { map, source };
        let maps = &skeleton.maps;
        let batches = MappedArray::new(maps.read_batches.as_fd(), size_of::<intf::sw_read_batch>(), BATCHES);
        let data = MappedArray::new(maps.read_data.as_fd(), intf::SW_READ_DATA_BYTES as usize, BATCHES);
        let kept = |program: &libbpf_rs::ProgramMut<'_>| program.as_fd().try_clone_to_owned();
        Ok(Self {
            read_memory: kept(&skeleton.progs.read_memory).map_err(of_map("a program that reads memory"))?,
            find_contexts: kept(&skeleton.progs.find_contexts)
                .map_err(of_map("a program that finds mappings"))?,
            batches: batches.map_err(of_map("reads of memory"))?,
            data: data.map_err(of_map("the memory that was read"))?,
            claims: [const { AtomicBool::new(false) }; BATCHES],
        })
    }

    /// Reads a word of our own memory.
    fn check(self: &Arc<Self>) -> io::Result<()> {
        let expected = u64::from(intf::SW_START_TIME_TICK_NS);
        let mut word = [0; 8];
        let pid = std::process::id();
        let own = ReadableProcess::link(self, pid, start_ns(pid)?)?;
        own.read_exact((&raw const expected).expose_provenance() as u64, &mut word)?;
        if u64::from_ne_bytes(word) == expected { Ok(()) } else { Err(Errno::IO.into()) }
    }

    /// Claims a free batch, which is free again when the claim is dropped.
    fn claim(&self) -> io::Result<ClaimedBatch<'_>> {
        let is_claimed = |claim: &AtomicBool| !claim.swap(true, Ordering::Acquire);
        let number = self.claims.iter().position(is_claimed).ok_or(Errno::BUSY)?;
        Ok(ClaimedBatch { programs: self, number })
    }
}

impl Opener {
    /// Loads the programs that read the memory of other processes.
    ///
    /// # Errors
    /// As [`ForeignMemoryPrograms::load`], or if the thread has ended.
    pub fn load_foreign_memory(
        &self,
        pod: Option<PodCgroup>,
    ) -> Result<Arc<ForeignMemoryPrograms>, LoadError> {
        let ended = |source| LoadError::Map { map: "reads of memory", source };
        self.run(move || ForeignMemoryPrograms::load(pod)).map_err(ended)?
    }
}

/// When a process started, by `CLOCK_BOOTTIME`, truncated to a clock tick.
pub(crate) fn start_ns(pid: u32) -> io::Result<u64> {
    /// "starttime" in proc(5), counted from the state, which follows the name.
    const START_TIME: usize = 19;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields = stat.rsplit_once(") ").map(|(_, fields)| fields);
    let ticks = fields.and_then(|fields| fields.split(' ').nth(START_TIME)?.parse::<u64>().ok());
    let ticks = ticks.ok_or_else(|| io::Error::other(format!("/proc/{pid}/stat has no start time")))?;
    Ok(ticks * (1_000_000_000 / rustix::param::clock_ticks_per_second().max(1)))
}

/// A batch of reads that this thread owns. No other thread writes to it, and no program that another thread runs, also while
/// a read never returns.
struct ClaimedBatch<'programs> {
    programs: &'programs ForeignMemoryPrograms,
    number: usize,
}

impl Drop for ClaimedBatch<'_> {
    fn drop(&mut self) {
        let reader = std::mem::offset_of!(intf::sw_read_batch, reader);
        self.programs.batches.atomic_u32(self.number, reader).store(0, Ordering::Relaxed);
        self.programs.claims[self.number].store(false, Ordering::Release);
    }
}

impl ClaimedBatch<'_> {
    /// Runs a program for this batch, and returns what it made of the batch.
    fn run(&self, link: &OwnedFd, batch: &intf::sw_read_batch) -> io::Result<intf::sw_read_batch> {
        self.programs.batches.write(self.number, 0, batch.as_bytes());
        let iterator = iterator::create(link.as_fd())?;
        // The programs print nothing, so this ends after the last task or mapping.
        rustix::io::read(&iterator, &mut [0; 1])?;
        let bytes = self.programs.batches.bytes(self.number, 0, size_of::<intf::sw_read_batch>());
        let done = intf::sw_read_batch::read_from_bytes(bytes).map_err(|_| Errno::IO)?;
        error_from(done.error)?;
        Ok(done)
    }

    /// The bytes of one read.
    fn data(&self, read: usize, bytes: usize) -> &[u8] {
        self.programs.data.bytes(self.number, read * READ_BYTES_MAX, bytes)
    }
}

fn error_from(error: i32) -> io::Result<()> {
    if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(error.saturating_neg())) }
}

/// One process whose memory can be read, and never another one that reuses its PID. After an exec, it is the memory of the
/// new program.
#[derive(Debug)]
pub struct ReadableProcess {
    programs: Arc<ForeignMemoryPrograms>,
    link: OwnedFd,
    pid: u32,
    start_ns: u64,
}

impl ReadableProcess {
    /// The process with this PID in our PID namespace and this start time, by `CLOCK_BOOTTIME` and truncated to a clock tick.
    /// Whether it exists is checked by each read.
    ///
    /// # Errors
    /// If the kernel refuses the link.
    pub fn link(programs: &Arc<ForeignMemoryPrograms>, pid: u32, start_ns: u64) -> io::Result<Self> {
        let link = iterator::link(programs.read_memory.as_fd(), Some(pid))?;
        Ok(Self { programs: Arc::clone(programs), link, pid, start_ns })
    }

    /// Fills `to` with the memory at `at`. May block without limit.
    ///
    /// # Errors
    /// `ESRCH` if the process has ended, or is not in our pod; `EFAULT` if any part of the memory can't be read;
    /// [`is_remote`](Self::is_remote); `EBUSY` if the process keeps changing its mappings. The contents of `to` are then
    /// unspecified.
    pub fn read_exact(&self, at: u64, to: &mut [u8]) -> io::Result<()> {
        let mut at = at;
        for run in to.chunks_mut(READS_MAX * READ_BYTES_MAX) {
            let mut reads: Vec<(u64, &mut [u8])> = Vec::new();
            for part in run.chunks_mut(READ_BYTES_MAX) {
                let next = at.checked_add(part.len() as u64).ok_or(Errno::FAULT)?;
                reads.push((at, part));
                at = next;
            }
            for (part, result) in self.read_batch(&mut reads)?.into_iter().enumerate() {
                match result {
                    Err(error) if error.raw_os_error() == Some(Errno::BUSY.raw_os_error()) => {
                        self.read_again(reads.get_mut(part..=part).unwrap_or_default())?;
                    }
                    result => result?,
                }
            }
        }
        Ok(())
    }

    /// Whether an error of a read means that the memory belongs to a file system that may never answer.
    #[must_use]
    pub fn is_remote(error: &io::Error) -> bool {
        error.raw_os_error() == Some(Errno::REMOTE.raw_os_error())
    }

    /// Repeats a read that found the process changing its mappings.
    fn read_again(&self, read: &mut [(u64, &mut [u8])]) -> io::Result<()> {
        let busy = || io::Error::from(Errno::BUSY);
        let mut result = Err(busy());
        for doublings in 0..BUSY_TRIES {
            std::thread::sleep(BUSY_FIRST_WAIT * (1 << doublings));
            result = self.read_batch(read)?.pop().unwrap_or_else(|| Err(busy()));
            if !result.as_ref().is_err_and(|error| error.raw_os_error() == busy().raw_os_error()) {
                break;
            }
        }
        result
    }

    /// Does at most [`READS_MAX`] reads of at most [`READ_BYTES_MAX`] bytes each, and returns how each has ended.
    fn read_batch(&self, reads: &mut [(u64, &mut [u8])]) -> io::Result<Vec<io::Result<()>>> {
        let claimed = self.programs.claim()?;
        let mut batch = self.new_batch();
        batch.count = u32::try_from(reads.len()).map_err(|_| Errno::INVAL)?;
        for (read, (address, to)) in batch.reads.iter_mut().zip(&*reads) {
            let bytes = u32::try_from(to.len()).map_err(|_| Errno::INVAL)?;
            *read = intf::sw_read { address: *address, bytes, error: 0 };
        }
        let done = claimed.run(&self.link, &batch)?;
        let unmapped = -Errno::NOENT.raw_os_error();
        let results = reads.iter_mut().zip(&done.reads).enumerate().map(|(number, ((_, to), read))| {
            error_from(if read.error == unmapped { -Errno::FAULT.raw_os_error() } else { read.error })?;
            to.copy_from_slice(claimed.data(number, to.len()));
            Ok(())
        });
        Ok(results.collect())
    }

    /// The addresses of the mappings that the process has named as its context ("Process Context", OTEP 4719).
    ///
    /// # Errors
    /// `ESRCH` if the process has ended, or is not in our pod.
    pub fn contexts(&self) -> io::Result<Vec<u64>> {
        let link = iterator::link(self.programs.find_contexts.as_fd(), Some(self.pid))?;
        let done = self.programs.claim()?.run(&link, &self.new_batch())?;
        Ok(done.contexts.into_iter().take(done.count as usize).collect())
    }

    fn new_batch(&self) -> intf::sw_read_batch {
        intf::sw_read_batch {
            reader: rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned(),
            pid: self.pid,
            start_ns: self.start_ns,
            error: -Errno::SRCH.raw_os_error(),
            ..Default::default()
        }
    }
}

#[cfg(test)]
mod fuse;
#[cfg(test)]
mod tests;
