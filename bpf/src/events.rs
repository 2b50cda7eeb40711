//! The interrupts: one event per CPU, whose own clock is the witness of what the programs count.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use libbpf_rs::{Link, ProgramMut};
use perf_event_open_sys as sys;
use sys::bindings as perf;
use thiserror::Error;

/// Why interrupts could not be had.
#[derive(Debug, Error)]
pub enum EventError {
    /// The list of CPUs.
    #[error("can't read which CPUs are online from /sys/devices/system/cpu/online")]
    Cpus(#[source] io::Error),
    /// `perf_event_open`.
    #[error("can't open a {what} event on CPU {cpu}")]
    Open {
        /// Of what kind.
        what: &'static str,
        /// Where.
        cpu: u32,
        /// Why.
        source: io::Error,
    },
    /// Its ring.
    #[error("can't map the ring of the side band of CPU {cpu}: locked memory of this user is used up")]
    Map {
        /// Where.
        cpu: u32,
        /// Why.
        source: io::Error,
    },
    /// The program.
    #[error("can't attach the sampling program to CPU {cpu}")]
    Attach {
        /// Where.
        cpu: u32,
        /// Why.
        source: libbpf_rs::Error,
    },
}

/// CPU numbers as sysfs writes them: `0-3,8`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CpuList(Vec<u32>);

impl CpuList {
    /// The CPUs that are online.
    ///
    /// # Errors
    /// If sysfs is not there or not as expected.
    pub fn online() -> Result<Self, EventError> {
        let text = std::fs::read_to_string("/sys/devices/system/cpu/online").map_err(EventError::Cpus)?;
        let malformed = || EventError::Cpus(io::Error::new(io::ErrorKind::InvalidData, text.clone()));
        Self::parse(&text).ok_or_else(malformed)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut cpus = Vec::new();
        for part in text.trim().split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
            if last.checked_sub(first)? > 1 << 16 {
                return None;
            }
            cpus.extend(first..=last);
        }
        Some(Self(cpus))
    }

    /// The first so many CPUs.
    #[cfg(test)]
    pub(crate) fn of(count: u32) -> Self {
        Self((0..count).collect())
    }

    /// Their numbers.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().copied()
    }
}

/// The clock events of all CPUs. Dropping it ends sampling.
#[derive(Debug)]
pub(crate) struct ClockEvents {
    period_ns: u64,
    events: Vec<ClockEvent>,
}

#[derive(Debug)]
struct ClockEvent {
    cpu: u32,
    file: File,
    _link: Link,
}

impl ClockEvents {
    /// Has `program` run `samples_per_second` times a second on each CPU, from now on.
    pub(crate) fn attach(
        program: &ProgramMut<'_>,
        cpus: &CpuList,
        samples_per_second: u32,
    ) -> Result<Self, EventError> {
        let period_ns = 1_000_000_000 / u64::from(samples_per_second.max(1));
        let mut events = Vec::new();
        for cpu in cpus.iter() {
            let mut attr = perf::perf_event_attr {
                type_: perf::PERF_TYPE_SOFTWARE,
                size: size_of::<perf::perf_event_attr>() as u32,
                config: u64::from(perf::PERF_COUNT_SW_CPU_CLOCK),
                ..Default::default()
            };
            attr.__bindgen_anon_1.sample_period = period_ns;
            attr.set_disabled(1);
            // An idle CPU's interrupt runs no program; `witness` knows how long the CPU slept.
            attr.set_exclude_idle(1);
            let file = File::from(open(&mut attr, cpu, "CPU clock")?);
            // Attaching also enables the event: its clock starts with the first interrupt that can reach the program.
            let link = program
                .attach_perf_event(file.as_fd().as_raw_fd())
                .map_err(|source| EventError::Attach { cpu, source })?;
            events.push(ClockEvent { cpu, file, _link: link });
        }
        Ok(Self { period_ns, events })
    }

    /// Nanoseconds between two interrupts of a CPU.
    pub(crate) fn period_ns(&self) -> u64 {
        self.period_ns
    }

    /// For each CPU, how many interrupts were due since the start, whether or not a program heard of them.
    pub(crate) fn due(&self) -> io::Result<Vec<(u32, u64)>> {
        self.events.iter().map(|event| Ok((event.cpu, event.clock_ns()? / self.period_ns))).collect()
    }
}

impl ClockEvent {
    fn clock_ns(&self) -> io::Result<u64> {
        let mut count = [0; 8];
        (&self.file).read_exact(&mut count)?;
        Ok(u64::from_ne_bytes(count))
    }
}

/// Opens an event of every task on one CPU.
pub(crate) fn open(
    attr: &mut perf::perf_event_attr,
    cpu: u32,
    what: &'static str,
) -> Result<OwnedFd, EventError> {
    let every_task = -1;
    let no_group = -1;
    let cpu_number = i32::try_from(cpu).unwrap_or(i32::MAX);
    let flags = u64::from(perf::PERF_FLAG_FD_CLOEXEC);
    // SAFETY: `attr` is a whole perf_event_attr with its size in it, alive during the call.
    let fd = unsafe { sys::perf_event_open(attr, every_task, cpu_number, no_group, flags) };
    if fd < 0 {
        return Err(EventError::Open { what, cpu, source: io::Error::last_os_error() });
    }
    // SAFETY: the kernel just gave us this descriptor, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_read_as_sysfs_writes_them() {
        let numbers = |text| CpuList::parse(text).map(|cpus| cpus.0);
        assert_eq!(numbers("0-3,8\n"), Some(vec![0, 1, 2, 3, 8]));
        assert_eq!(numbers("0\n"), Some(vec![0]));
        assert_eq!(numbers("3-1"), None);
        assert_eq!(numbers(""), None);
        assert_eq!(numbers("0-99999999"), None);
    }
}
