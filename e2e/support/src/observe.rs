//! What the kernel says about a running process: its CPU time, its memory, its eBPF programs and maps.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};

const BPF_STATS: &str = "/proc/sys/kernel/bpf_stats_enabled";
/// `BPF_PROG_TYPE_PERF_EVENT`.
const PERF_EVENT_PROGRAM: u64 = 7;

/// While it lives, the kernel counts the runs of eBPF programs and their time.
#[derive(Debug)]
pub struct BpfStats(());

/// How many [`BpfStats`] live in this process, and what the setting was before the first of them.
static BPF_STATS_HELD: Mutex<(usize, String)> = Mutex::new((0, String::new()));

impl BpfStats {
    /// Switches the counting on.
    ///
    /// # Errors
    /// Without the privilege to.
    pub fn enable() -> Result<Self> {
        let mut held = BPF_STATS_HELD.lock().unwrap_or_else(PoisonError::into_inner);
        if held.0 == 0 {
            held.1 = fs::read_to_string(BPF_STATS).with_context(|| format!("cannot read {BPF_STATS}"))?;
            fs::write(BPF_STATS, "1").with_context(|| format!("cannot write {BPF_STATS}"))?;
        }
        held.0 += 1;
        Ok(Self(()))
    }
}

impl Drop for BpfStats {
    fn drop(&mut self) {
        let mut held = BPF_STATS_HELD.lock().unwrap_or_else(PoisonError::into_inner);
        held.0 -= 1;
        if held.0 == 0 {
            // There is nobody to tell; the counting costs a little and harms nothing.
            let _ = fs::write(BPF_STATS, &held.1);
        }
    }
}

/// Runs of eBPF programs as the kernel counts them, all zero where nobody enabled [`BpfStats`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ProgramRuns {
    /// How often programs of the kind that perf events run ran.
    pub interrupts: u64,
    /// How long all programs of the process took together.
    pub time_ns: u64,
}

/// The runs of all eBPF programs that a process holds; none where the process is gone.
#[must_use]
pub fn program_runs(pid: u32) -> ProgramRuns {
    let mut runs = ProgramRuns::default();
    for fdinfo in by_id(pid, "prog_type", "prog_id").values() {
        runs.time_ns += field(fdinfo, "run_time_ns").unwrap_or_default();
        if is_of_interrupt_program(fdinfo) {
            runs.interrupts += field(fdinfo, "run_cnt").unwrap_or_default();
        }
    }
    runs
}

/// The number of eBPF programs that a process holds.
#[must_use]
pub fn program_count(pid: u32) -> usize {
    by_id(pid, "prog_type", "prog_id").len()
}

/// The descriptors of programs for perf events that a process holds.
#[must_use]
pub fn interrupt_programs(pid: u32) -> Vec<i32> {
    descriptors(pid).filter(|(_, fdinfo)| is_of_interrupt_program(fdinfo)).map(|(number, _)| number).collect()
}

/// Whether a process holds a program for perf events under this descriptor.
#[must_use]
pub fn is_interrupt_program(pid: u32, descriptor: i32) -> bool {
    runs_of_interrupt_program(pid, descriptor).is_some()
}

/// How often a program for perf events has run, counted since somebody enabled [`BpfStats`]; `None` if the descriptor is not
/// that of one.
#[must_use]
pub fn runs_of_interrupt_program(pid: u32, descriptor: i32) -> Option<u64> {
    let fdinfo = fs::read_to_string(of(pid).join(format!("fdinfo/{descriptor}"))).ok()?;
    is_of_interrupt_program(&fdinfo).then(|| field(&fdinfo, "run_cnt"))?
}

/// Whether a process has programs attached to perf events, by links (Linux 5.15).
#[must_use]
pub fn is_attached_to_events(pid: u32) -> bool {
    descriptors(pid).any(|(_, fdinfo)| fdinfo.lines().any(|line| line == "link_type:\tperf"))
}

/// Something that lives in the kernel, by the number that no other of its kind ever has.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum BpfObject {
    /// A program.
    Program(u32),
    /// A map.
    Map(u32),
    /// What attaches a program.
    Link(u32),
}

/// The eBPF objects of which a process holds descriptors.
#[must_use]
pub fn bpf_objects(pid: u32) -> BTreeSet<BpfObject> {
    let ids = |kind, id| by_id(pid, kind, id).into_keys().filter_map(|id| u32::try_from(id).ok());
    let programs = ids("prog_type", "prog_id").map(BpfObject::Program);
    let maps = ids("map_type", "map_id").map(BpfObject::Map);
    let links = ids("link_id", "link_id").map(BpfObject::Link);
    programs.chain(maps).chain(links).collect()
}

/// The process of a group that runs, or, where none does, the youngest.
#[must_use]
pub fn busiest_of_group(group: u32) -> Option<u32> {
    let members = processes().filter(|process| process.group == group);
    members.map(|process| (process.is_running, process.pid)).max().map(|(_, pid)| pid)
}

/// The processes of a group, and their descendants, which may have groups of their own.
#[must_use]
pub fn processes_of_group(group: u32) -> Vec<u32> {
    let (mut found, mut others): (Vec<_>, Vec<_>) = processes().partition(|process| process.group == group);
    let mut next = 0;
    while let Some(parent) = found.get(next).map(|process| process.pid) {
        found.extend(others.extract_if(.., |process| process.parent == parent));
        next += 1;
    }
    found.into_iter().map(|process| process.pid).collect()
}

struct Process {
    pid: u32,
    parent: u32,
    group: u32,
    is_running: bool,
}

/// All processes that have not ended.
fn processes() -> impl Iterator<Item = Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten();
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(move |pid| {
        let stat = fs::read_to_string(of(pid).join("stat")).ok()?;
        // The name, in parentheses, may hold anything: state, parent and group follow the last one.
        let mut fields = stat.rsplit_once(") ")?.1.split(' ');
        let state = fields.next()?;
        let (parent, group) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
        (state != "Z").then_some(Process { pid, parent, group, is_running: state == "R" })
    })
}

/// Bytes of kernel memory that the eBPF maps of a process take.
#[must_use]
pub fn map_bytes(pid: u32) -> u64 {
    by_id(pid, "map_type", "map_id").values().filter_map(|fdinfo| field(fdinfo, "memlock")).sum()
}

/// CPU time of a process so far, user and system, of all threads that are alive.
///
/// # Errors
/// When the process is gone.
pub fn cpu_ns(pid: u32) -> Result<u64> {
    let threads = of(pid).join("task");
    let mut sum_ns = 0;
    for thread in fs::read_dir(&threads).with_context(|| format!("process {pid} is gone"))? {
        // A thread may end while its fellows are read.
        let Ok(schedstat) = fs::read_to_string(thread?.path().join("schedstat")) else { continue };
        sum_ns += schedstat.split(' ').next().and_then(|ns| ns.parse::<u64>().ok()).unwrap_or_default();
    }
    Ok(sum_ns)
}

/// What a process took while it was watched.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// CPU time of all threads, in per cent of one CPU.
    pub cpu_percent: f64,
    /// Memory at the end (`VmRSS`), in MiB.
    pub resident_mib: f64,
}

/// Watches a process for some time.
///
/// # Errors
/// When the process ends meanwhile.
pub fn cost_over(pid: u32, time: Duration) -> Result<Cost> {
    let before_ns = cpu_ns(pid)?;
    thread::sleep(time);
    let cpu_ns = cpu_ns(pid)? - before_ns;
    Ok(Cost {
        cpu_percent: 100.0 * cpu_ns as f64 / time.as_nanos() as f64,
        resident_mib: resident_bytes(pid)? as f64 / f64::from(1 << 20),
    })
}

/// Bytes of a process that are in memory (`VmRSS`).
///
/// # Errors
/// When the process is gone.
pub fn resident_bytes(pid: u32) -> Result<u64> {
    let status = fs::read_to_string(of(pid).join("status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS in status")?;
    let kib: u64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kib << 10)
}

/// Bytes of a process that are in memory and of which no other process has a part: of many processes of one program, what
/// each of them takes.
///
/// # Errors
/// When the process is gone.
pub fn private_bytes(pid: u32) -> Result<u64> {
    let rollup = fs::read_to_string(of(pid).join("smaps_rollup"))?;
    let private = rollup.lines().filter(|line| line.starts_with("Private_"));
    let kib = private.filter_map(|line| line.split_ascii_whitespace().nth(1)?.parse::<u64>().ok());
    Ok(kib.sum::<u64>() << 10)
}

/// Bytes of a process that are in memory and belong to eBPF maps, which count as kernel memory too.
///
/// # Errors
/// When the process is gone.
pub fn resident_map_bytes(pid: u32) -> Result<u64> {
    let smaps = fs::read_to_string(of(pid).join("smaps"))?;
    let mut is_map = false;
    let mut sum_kib = 0;
    for line in smaps.lines() {
        match line.strip_prefix("Rss:") {
            Some(kib) if is_map => sum_kib += kib.trim().trim_end_matches(" kB").parse::<u64>()?,
            Some(_) => {}
            // The first line of a mapping is the only one whose first word is no key.
            None if line.split(' ').next().is_some_and(|word| !word.ends_with(':')) => {
                is_map = line.ends_with("anon_inode:bpf-map");
            }
            None => {}
        }
    }
    Ok(sum_kib << 10)
}

fn of(pid: u32) -> PathBuf {
    Path::new("/proc").join(pid.to_string())
}

/// The descriptors of a process, and what `/proc/PID/fdinfo` says of each; none where the process is gone.
fn descriptors(pid: u32) -> impl Iterator<Item = (i32, String)> {
    let entries = fs::read_dir(of(pid).join("fdinfo")).into_iter().flatten().flatten();
    // One may be closed while the others are read.
    entries.filter_map(|entry| {
        Some((entry.file_name().to_str()?.parse().ok()?, fs::read_to_string(entry.path()).ok()?))
    })
}

/// The objects whose descriptors have the fields `kind` and `id`, each once. The kind tells a program from the links that name
/// it.
fn by_id(pid: u32, kind: &str, id: &str) -> BTreeMap<u64, String> {
    let objects = descriptors(pid).filter(|(_, fdinfo)| field(fdinfo, kind).is_some());
    objects.filter_map(|(_, fdinfo)| Some((field(&fdinfo, id)?, fdinfo))).collect()
}

fn is_of_interrupt_program(fdinfo: &str) -> bool {
    field(fdinfo, "prog_type") == Some(PERF_EVENT_PROGRAM)
}

fn field(fdinfo: &str, name: &str) -> Option<u64> {
    fdinfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_can_observe_itself() -> Result<()> {
        let pid = std::process::id();
        assert!(cpu_ns(pid)? > 0);
        assert!(resident_bytes(pid)? > 100 << 10);
        assert!((1..resident_bytes(pid)?).contains(&private_bytes(pid)?), "its libraries are others' too");
        assert_eq!(map_bytes(pid), 0);
        Ok(())
    }

    #[test]
    fn a_field_is_found_by_its_whole_name() {
        let fdinfo = "pos:\t0\nmap_id:\t7\nmemlock:\t4096\n";
        assert_eq!((field(fdinfo, "memlock"), field(fdinfo, "map")), (Some(4096), None));
    }
}
