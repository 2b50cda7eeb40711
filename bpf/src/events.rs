//! Perf events, one per CPU and target. The clock of those that interrupt is an independent count of interrupts, with
//! which the interrupt check compares the programs' counts.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};

use libbpf_rs::{Link, PerfEventOpts, ProgramMut};
use perf_event_open_sys as sys;
use sidewinder_kind::{Counter, CounterRate, CpuIds, SampledCounter};
use sys::bindings as perf;
use thiserror::Error;

use crate::container::{CgroupId, Container};
use crate::counter::PerfCounter;
use crate::opener::Opener;

/// Any side band event wakes us: until a new mapping is known, stacks that go through it are truncated. The receiver
/// waits for a poll interval between two wakeups.
const SIDE_BAND_WAKEUP_BYTES: u32 = 1;

/// Why events could not be opened or used.
#[derive(Debug, Error)]
pub enum EventError {
    /// The list of CPUs could not be read.
    #[error("can't read which CPUs are online from /sys/devices/system/cpu/online")]
    Cpus(#[source] io::Error),
    /// `perf_event_open` failed.
    #[error("can't open a {what} event on CPU {cpu}")]
    Open {
        /// The kind of event.
        what: &'static str,
        /// Where.
        cpu: u32,
        /// Why.
        source: io::Error,
    },
    /// This machine has no such counter.
    #[error("this machine does not have the counter {counter}")]
    NoCounter {
        /// The counter.
        counter: Counter,
        /// Why.
        source: io::Error,
    },
    /// The ring of an event could not be mapped.
    #[error("can't map the ring of the side band of CPU {cpu}: locked memory of this user is used up")]
    Map {
        /// Where.
        cpu: u32,
        /// Why.
        source: io::Error,
    },
    /// None of the CPUs that are to be profiled is online.
    #[error("none of the selected CPUs is online: change pin_cpu_ids")]
    NoCpu,
    /// The opener's thread has ended.
    #[error("can't reach the thread that opens events")]
    Opener(#[source] io::Error),
    /// Sampling could not be paused or continued.
    #[error("can't pause or continue sampling")]
    Pause(#[source] io::Error),
    /// An event could not be redirected to the ring of another.
    #[error("can't redirect an event to the ring of another")]
    Share(#[source] io::Error),
    /// The program could not be attached.
    #[error("can't attach the sampling program to CPU {cpu}")]
    Attach {
        /// Where.
        cpu: u32,
        /// Why.
        source: libbpf_rs::Error,
    },
}

/// The CPUs that are online.
///
/// # Errors
/// If sysfs can't be read or has an unexpected format.
pub fn online_cpus() -> Result<CpuIds, EventError> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online").map_err(EventError::Cpus)?;
    text.parse().map_err(|error| EventError::Cpus(io::Error::new(io::ErrorKind::InvalidData, error)))
}

/// The purpose of an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EventKind {
    /// Interrupts whenever a counter has advanced by its period. Disabled until a program is attached.
    Overflow(PerfCounter),
    /// Records forks, execs, mappings and exits of tasks.
    SideBand,
    /// Records nothing, but has a ring that other events write into.
    Ring,
}

/// Which tasks an event covers.
#[derive(Debug)]
pub(crate) enum EventTarget<'a> {
    /// All tasks of a CPU.
    EveryTask,
    /// The tasks of a cgroup, given by its directory, and of the cgroups below it.
    Cgroup(BorrowedFd<'a>),
}

/// Whether this thread may open events for every task.
#[must_use]
pub fn can_open_events() -> bool {
    online_cpus().and_then(|cpus| EventKind::SideBand.open(&cpus, &EventTarget::EveryTask)).is_ok()
}

impl EventKind {
    /// Opens one event on each CPU. Requires `CAP_PERFMON`.
    pub(crate) fn open(self, cpus: &CpuIds, target: &EventTarget<'_>) -> Result<Vec<OwnedFd>, EventError> {
        let mut attr = self.attributes();
        let (tasks, flags) = match target {
            EventTarget::EveryTask => (-1, 0),
            EventTarget::Cgroup(directory) => (directory.as_raw_fd(), perf::PERF_FLAG_PID_CGROUP),
        };
        let no_group = -1;
        let flags = u64::from(perf::PERF_FLAG_FD_CLOEXEC | flags);
        let mut events = Vec::new();
        for cpu in cpus.iter() {
            let cpu_number = i32::try_from(cpu).unwrap_or(i32::MAX);
            // SAFETY: `attr` is a complete perf_event_attr that contains its size, and lives during the call.
            let fd = unsafe { sys::perf_event_open(&mut attr, tasks, cpu_number, no_group, flags) };
            if fd < 0 {
                return Err(self.open_error(cpu, io::Error::last_os_error()));
            }
            // SAFETY: the kernel just created this descriptor, and nobody else has it.
            events.push(unsafe { OwnedFd::from_raw_fd(fd) });
        }
        Ok(events)
    }

    fn open_error(self, cpu: u32, source: io::Error) -> EventError {
        match self {
            Self::Overflow(PerfCounter { counter: Some(counter), .. }) if is_absent(&source) => {
                EventError::NoCounter { counter, source }
            }
            _ => EventError::Open { what: self.name(), cpu, source },
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Overflow(counter) => counter.name,
            Self::SideBand | Self::Ring => "side band",
        }
    }

    fn attributes(self) -> perf::perf_event_attr {
        let mut attr = perf::perf_event_attr {
            type_: perf::PERF_TYPE_SOFTWARE,
            size: size_of::<perf::perf_event_attr>() as u32,
            ..Default::default()
        };
        if self == Self::SideBand {
            attr.set_mmap2(1);
            attr.set_mmap(1);
            attr.set_comm(1);
            attr.set_comm_exec(1);
            attr.set_task(1);
        }
        match self {
            Self::Overflow(PerfCounter { selector, rate, index, .. }) => {
                attr.type_ = selector.type_;
                attr.config = selector.config;
                match rate {
                    CounterRate::Period(period) => attr.__bindgen_anon_1.sample_period = period,
                    CounterRate::Frequency(hz) => {
                        attr.__bindgen_anon_1.sample_freq = hz.into();
                        attr.set_freq(1);
                    }
                }
                // The kernel ignores it, since the event has no ring; the program reads it.
                attr.__bindgen_anon_2.wakeup_events = index.into();
                attr.set_disabled(1);
                // An interrupt of an idle CPU runs no program; `interrupt_check` reads how long the CPU was idle. Arm's PMU
                // refuses an event that asks for it.
                attr.set_exclude_idle((selector.type_ == perf::PERF_TYPE_SOFTWARE).into());
            }
            Self::SideBand | Self::Ring => {
                attr.config = u64::from(perf::PERF_COUNT_SW_DUMMY);
                attr.sample_type = u64::from(perf::PERF_SAMPLE_TID | perf::PERF_SAMPLE_TIME);
                attr.clockid = rustix::time::ClockId::Monotonic as i32;
                attr.__bindgen_anon_2.wakeup_watermark = SIDE_BAND_WAKEUP_BYTES;
                attr.set_watermark(1);
                attr.set_sample_id_all(1);
                attr.set_use_clockid(1);
            }
        }
        attr
    }
}

/// A counter at a rate at which it does not interrupt while it is probed.
fn probed(counter: Counter) -> EventKind {
    let rate = CounterRate::Period(u64::from(u32::MAX));
    EventKind::Overflow(PerfCounter::named(SampledCounter { counter, rate }))
}

/// Tries whether this machine has a counter.
///
/// # Errors
/// [`EventError::NoCounter`] if it does not, others if that can't be tried.
pub fn probe_counter(counter: Counter) -> Result<(), EventError> {
    probed(counter).open(&online_cpus()?, &EventTarget::EveryTask).map(drop)
}

impl Opener {
    /// Opens one event on each of `cpus`, for a container's tasks or for all.
    pub(crate) fn events(
        &self,
        kind: EventKind,
        cpus: &CpuIds,
        container: Option<&Container>,
    ) -> Result<Vec<OwnedFd>, EventError> {
        let cgroup = container.map(|container| container.directory().try_clone_to_owned());
        let cgroup = cgroup.transpose().map_err(EventError::Opener)?;
        let cpus = cpus.clone();
        let open = move || {
            let directory = cgroup.as_ref().map(AsFd::as_fd);
            kind.open(&cpus, &directory.map_or(EventTarget::EveryTask, EventTarget::Cgroup))
        };
        self.run(open).map_err(EventError::Opener)?
    }

    /// Tries whether this machine has a counter, with the privileges of the opener's thread.
    ///
    /// # Errors
    /// As [`probe_counter`].
    pub fn probe_counter(&self, counter: Counter) -> Result<(), EventError> {
        self.events(probed(counter), &online_cpus()?, None).map(drop)
    }
}

/// Whether `perf_event_open` failed because the machine has no such counter: no performance monitoring unit, none that
/// interrupts, or one that does not count this. Each architecture has errors of its own for these.
fn is_absent(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let absent = [Errno::NOENT, Errno::OPNOTSUPP, Errno::NODEV, Errno::INVAL];
    Errno::from_io_error(error).is_some_and(|error| absent.contains(&error))
}

/// The events of a counter, each with a program that runs at its overflows. Dropping it ends sampling.
#[derive(Debug)]
pub(crate) struct CounterEvents {
    counter: PerfCounter,
    events: Vec<OpenedEvent>,
    /// Due interrupts of events that are already closed, by CPU.
    expected_before: HashMap<u32, u64>,
}

#[derive(Debug)]
struct OpenedEvent {
    container: Option<CgroupId>,
    cpu: u32,
    file: File,
    _link: Link,
}

impl CounterEvents {
    /// Creates an empty set of events for this counter.
    pub(crate) fn new(counter: PerfCounter) -> Self {
        Self { counter, events: Vec::new(), expected_before: HashMap::new() }
    }

    pub(crate) fn kind(&self) -> EventKind {
        EventKind::Overflow(self.counter)
    }

    /// Attaches `program` to these events, one on each of `cpus`, and enables them.
    pub(crate) fn attach(
        &mut self,
        program: &ProgramMut<'_>,
        cpus: &CpuIds,
        container: Option<CgroupId>,
        events: Vec<OwnedFd>,
    ) -> Result<(), EventError> {
        for (cpu, event) in cpus.iter().zip(events) {
            let file = File::from(event);
            // Its counter only counts while the program is attached.
            let of_link = file.try_clone().map_err(EventError::Opener)?;
            let link = attach_to_event(program, of_link.into(), None)
                .map_err(|source| EventError::Attach { cpu, source })?;
            self.events.push(OpenedEvent { container, cpu, file, _link: link });
        }
        Ok(())
    }

    /// Lets the counter advance, or not. Interrupts come only while it advances.
    pub(crate) fn set_counting(&self, is_counting: bool) -> io::Result<()> {
        let control = if is_counting { sys::ioctls::ENABLE } else { sys::ioctls::DISABLE };
        for event in &self.events {
            // SAFETY: the descriptor is that of an open perf event, and the call takes no pointer.
            if unsafe { control(event.file.as_raw_fd(), 0) } < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    }

    /// Closes the events of a container, or those of every task.
    pub(crate) fn close(&mut self, container: Option<CgroupId>) {
        for event in self.events.extract_if(.., |event| event.container == container) {
            *self.expected_before.entry(event.cpu).or_default() +=
                event.expected_interrupts(self.counter.period()).unwrap_or(0);
        }
    }

    /// How far the counter advances between two interrupts on a CPU; `None` if the kernel adapts that.
    pub(crate) fn period(&self) -> Option<u64> {
        self.counter.period()
    }

    /// How many interrupts were due on each CPU since the start, whether or not a program ran; 0 if that is not known, since
    /// the period was not always the same.
    pub(crate) fn expected_interrupts(&self) -> io::Result<HashMap<u32, u64>> {
        let mut due = self.expected_before.clone();
        for event in &self.events {
            *due.entry(event.cpu).or_default() += event.expected_interrupts(self.counter.period())?;
        }
        Ok(due)
    }
}

/// Attaches a program to an event, which also enables it, with a cookie if the kernel has these (Linux 5.15). The link closes the
/// event's descriptor when it is dropped.
pub(crate) fn attach_to_event(
    program: &ProgramMut<'_>,
    event: OwnedFd,
    cookie: Option<u64>,
) -> libbpf_rs::Result<Link> {
    let link = match cookie {
        Some(cookie) => {
            let options = PerfEventOpts { cookie, ..PerfEventOpts::default() };
            program.attach_perf_event_with_opts(event.as_raw_fd(), options)
        }
        None => program.attach_perf_event(event.as_raw_fd()),
    }?;
    let _ = event.into_raw_fd();
    Ok(link)
}

impl OpenedEvent {
    fn expected_interrupts(&self, period: Option<u64>) -> io::Result<u64> {
        let mut counted = [0; 8];
        (&self.file).read_exact(&mut counted)?;
        Ok(period.and_then(|period| u64::from_ne_bytes(counted).checked_div(period)).unwrap_or(0))
    }
}
