//! Prints what a read of another process's memory takes, by each of the two ways that the receiver has: eBPF programs, and
//! `process_vm_readv(2)`. Requires root.
//!
//! The child is `sleep`; its first mapping is read, again and again.

use std::error::Error;
use std::hint::black_box;
use std::io;
use std::process::Command;
use std::time::Instant;

use sidewinder_address::Avma;
use sidewinder_bpf::{ForeignMemoryPrograms, ReadableProcess};
use sidewinder_process::{ForeignMemory as _, Pid, ProcRoot, ProcessDir, ProcessMemory};

const ROUNDS: u32 = 20_000;
const SIZES: [usize; 4] = [8, 64, 4096, 16 << 10];

fn nanoseconds<T>(mut run: impl FnMut() -> io::Result<T>) -> io::Result<u128> {
    let start = Instant::now();
    for _ in 0..ROUNDS {
        black_box(run()?);
    }
    Ok(start.elapsed().as_nanos() / u128::from(ROUNDS))
}

fn main() -> Result<(), Box<dyn Error>> {
    let start = Instant::now();
    let programs = ForeignMemoryPrograms::load(None)?;
    println!("load: {} us; maps: {} bytes", start.elapsed().as_micros(), ForeignMemoryPrograms::MAP_BYTES);

    let mut child = Command::new("sleep").arg("60").spawn()?;
    // Until it has run exec.
    std::thread::sleep(std::time::Duration::from_millis(200));
    let measured = measure(&programs, child.id());
    child.kill()?;
    child.wait()?;
    measured
}

fn measure(programs: &std::sync::Arc<ForeignMemoryPrograms>, pid: u32) -> Result<(), Box<dyn Error>> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let at = u64::from_str_radix(maps.split('-').next().unwrap_or_default(), 16)?;
    let directory = ProcessDir::open(&ProcRoot::default(), Pid(pid))?;
    let tick_ns = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
    let start_ns = directory.state()?.start_ticks * tick_ns;
    let linked = nanoseconds(|| ReadableProcess::link(programs, pid, start_ns))?;
    println!("link: {linked} ns");
    let process = ReadableProcess::link(programs, pid, start_ns)?;
    let mappings = nanoseconds(|| process.contexts())?;
    println!("context in {} mappings: {mappings} ns", maps.lines().count());
    let memory = ProcessMemory::new(directory);
    println!("bytes\tprograms (ns)\tprocess_vm_readv (ns)");
    for bytes in SIZES {
        let mut to = vec![0; bytes];
        let by_programs = nanoseconds(|| process.read_exact(at, &mut to))?;
        let by_call = nanoseconds(|| memory.read_exact(Avma(at), &mut to))?;
        println!("{bytes}\t{by_programs}\t{by_call}");
    }
    Ok(())
}
