//! Loads and attaches the programs, and reads their counters. One thread owns all of it.

mod counts;

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::mem::offset_of;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use libbpf_rs::{Link, MapCore, MapFlags, MapHandle};
use rustix::event::epoll;
use sidewinder_kind::KindSet;

pub use self::counts::{ContextCounts, FrameCounts};
use crate::arena::Arena;
use crate::container::Container;
use crate::events::{EventError, online_cpus};
use crate::intf::{self, sw_cpu, sw_probe_site, sw_process, sw_scope_gaps, sw_segment};
use crate::load::{ListedFrom, LoadError, Options, Storage, load_object};
use crate::memory::MappedArray;
use crate::opener::Opener;
use crate::processes::ProcessMap;
use crate::programs::{self, ProgramTrigger, SamplingPrograms};
use crate::ring::{Newcomer, Rings, borrow, whole_pages};
use crate::settings::CpuSettings;
use crate::sideband::SideBand;
use crate::skeleton::sample::{OpenSampleSkel, SampleSkel};
use crate::tables::UnwindTables;
use crate::tracepoint::{NumericArgument, TracepointError};
use crate::user_probe::{AttachWay, UserProbeError, UserProbeHits, UserProbeSite, UserProbes};
use crate::wait_list::{ListedWait, WaitList};
use crate::walk::WalkMode;
use crate::watch::{EventScope, EventWatch};

/// A program, as the eBPF programs identify it. Two processes execute the same one if they opened its file by the same path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExecutedProgram(Vec<u8>);

/// The loaded and attached programs, with their maps, rings and events.
pub struct Profiler<'obj> {
    pub(crate) skeleton: SampleSkel<'obj>,
    kinds: KindSet,
    walk: WalkMode,
    watch: EventWatch,
    _hooks: Vec<Link>,
    /// Whether off-CPU time is sampled at the tracepoint of context switches, which no counter counts.
    traces_switches: bool,
    /// If off-CPU time is sampled.
    wait_list: Option<WaitList>,
    rings: Rings,
    /// Readable when a ring of samples or of the side band needs draining.
    wakeups: rustix::fd::OwnedFd,
    /// Readable when a ring of samples is filling up.
    pressure: rustix::fd::OwnedFd,
    /// Settings and counters of each CPU.
    cpus: Rc<MappedArray>,
    /// Counters of the slots.
    slots: Rc<MappedArray>,
    settings: Rc<CpuSettings>,
    user_probes: UserProbes,
    /// Whether processes are missing from the list.
    gaps: MappedArray,
    lists_programs: bool,
    /// How many processes we could not list because the list was full.
    refused: Cell<u64>,
    /// The memory of tables and mappings that walks look up.
    pub arena: Arena,
    /// Unwind tables.
    pub tables: UnwindTables,
    /// Mappings of processes.
    pub processes: ProcessMap,
}

impl<'obj> Profiler<'obj> {
    /// Loads the programs. Nothing is sampled yet.
    ///
    /// # Errors
    /// If the kernel doesn't have, or refuses, something that is required.
    pub fn load(storage: &'obj mut Storage, options: &Options, opener: Opener) -> Result<Self, LoadError> {
        let refused = |doing| move |source| LoadError::Refused { doing, source };
        let cpus = online_cpus()?;
        let sampled_cpus = cpus.only(&options.sampled_cpus);
        if sampled_cpus.iter().next().is_none() {
            return Err(EventError::NoCpu.into());
        }
        let walk = options.walk.or_else(WalkMode::best_supported).ok_or(LoadError::NoLoops)?;
        let has_probes = options.kinds.probes().next().is_some();
        let way = if has_probes { AttachWay::supported() } else { AttachWay::PerfEvent };
        let prepare = |open: &mut OpenSampleSkel<'obj>| {
            if way == AttachWay::Link {
                programs::attach_by_links(&mut open.progs);
            }
        };
        let skeleton = load_object(storage, options, walk, None, prepare)?;
        let map = |what, value_bytes: usize, map: &dyn MapCore| {
            MappedArray::new(map.as_fd(), value_bytes, map.max_entries() as usize)
                .map_err(|source| LoadError::Map { map: what, source })
        };
        let maps = &skeleton.maps;
        let slots = Rc::new(map("slots", maps.slots.value_size() as usize, &maps.slots)?);
        let shared = Rc::new(map("cpus", size_of::<sw_cpu>(), &maps.cpus)?);
        let settings = Rc::new(CpuSettings::new(Rc::clone(&shared)));
        let gaps = map("gaps of the scope", size_of::<sw_scope_gaps>(), &maps.bss)?;
        let sites = map("sites of probes", size_of::<sw_probe_site>(), &maps.probe_sites)?;
        let segments = map("segments", size_of::<sw_segment>(), &maps.segments)?;
        let places = map("processes", size_of::<sw_process>(), &maps.processes)?;

        let outer = MapHandle::try_from(&maps.arena).map_err(refused("getting the arena"))?;
        let rings_map = MapHandle::try_from(&maps.rings).map_err(refused("getting the rings"))?;
        let snapshots =
            MapHandle::try_from(&maps.snapshots).map_err(refused("getting the snapshots' ring"))?;
        let rings = Rings::create(&rings_map, snapshots, &cpus, whole_pages(options.ring_bytes))
            .map_err(refused("creating ring buffers"))?;
        // Sampling has not begun.
        settings.pause_hooks(&sampled_cpus, true);
        let hooks = programs::loaded(&skeleton.progs)
            .filter(|(runs, _)| runs.is_tracepoint())
            .map(|(_, program)| program.attach())
            .collect::<Result<_, _>>()
            .map_err(refused("attaching to forks, execs, switches and wake-ups"))?;
        let wait_list = programs::loaded(&skeleton.progs)
            .find(|(runs, _)| *runs == ProgramTrigger::InIterator)
            .map(|(_, program)| WaitList::new(program))
            .transpose()
            .map_err(|source| LoadError::Map { map: "the list of waits", source })?;
        let traces_switches =
            programs::loaded(&skeleton.progs).any(|(runs, _)| runs == ProgramTrigger::AtSwitches);
        let of_rings = || wakeups(&rings).map_err(|source| LoadError::Map { map: "wakeups", source });
        let (wakeups, pressure) = (of_rings()?, of_rings()?);
        Ok(Self {
            watch: EventWatch::new(cpus, sampled_cpus, opener.clone()),
            user_probes: UserProbes::new(opener.clone(), Rc::clone(&shared), sites, way),
            _hooks: hooks,
            traces_switches,
            wait_list,
            rings,
            wakeups,
            pressure,
            cpus: shared,
            arena: Arena::new(outer, opener, Rc::clone(&slots), Rc::clone(&settings), options.arena_bytes),
            slots,
            tables: UnwindTables::new(segments, Rc::clone(&settings)),
            processes: ProcessMap::new(places),
            settings,
            gaps,
            lists_programs: options.lists_programs,
            refused: Cell::new(0),
            skeleton,
            kinds: options.kinds.clone(),
            walk,
        })
    }

    /// Opens the side band of these tasks. Call it before the first scan of /proc, so that no change is missed in
    /// between.
    ///
    /// # Errors
    /// If the kernel refuses; the receiver can continue without it, but learns late of new mappings.
    pub fn open_side_band(&mut self, audience: EventScope) -> Result<(), EventError> {
        self.settings.report_new_processes(matches!(audience, EventScope::Containers(_)));
        let side_band = self.watch.open_side_band(audience)?;
        for event in side_band.events() {
            add_to_epoll(&self.wakeups, event).map_err(|source| EventError::Map { cpu: 0, source })?;
        }
        Ok(())
    }

    /// The tasks whose events are open.
    #[must_use]
    pub fn event_scope(&self) -> &EventScope {
        self.watch.scope()
    }

    /// Starts to sample these tasks.
    ///
    /// # Errors
    /// If the kernel refuses the events.
    pub fn start(&mut self) -> Result<(), EventError> {
        self.watch.start(&SamplingPrograms::new(&self.skeleton.progs), &self.kinds)?;
        self.settings.pause_hooks(self.watch.sampled_cpus(), false);
        Ok(())
    }

    /// Opens events for one more container, if events are per container and it has none yet. Returns whether it did.
    ///
    /// # Errors
    /// If the kernel refuses them: then only events of every task are possible.
    pub fn add_container(&mut self, container: Container) -> Result<bool, EventError> {
        self.watch.add(&SamplingPrograms::new(&self.skeleton.progs), container)
    }

    /// Marks a reported container as known, so that the programs don't report it again.
    pub fn acknowledge(&self, newcomer: &Newcomer) {
        let (key, value) = (newcomer.container.to_ne_bytes(), 1u32.to_ne_bytes());
        // If the update fails, they report it once more.
        let _ = self.skeleton.maps.containers.update(&key, &value, MapFlags::ANY);
    }

    /// Closes the events of containers without processes.
    pub fn close_empty_containers(&mut self) {
        self.watch.close_empty();
    }

    /// Replaces the events of containers by events of every task.
    ///
    /// # Errors
    /// If the kernel refuses them.
    pub fn widen(&mut self) -> Result<(), EventError> {
        self.watch.widen(&SamplingPrograms::new(&self.skeleton.progs))?;
        self.open_side_band(EventScope::EveryTask)
    }

    /// Pauses sampling, or continues it. During a pause no event interrupts any CPU.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn set_paused(&mut self, is_paused: bool) -> Result<(), EventError> {
        if !is_paused {
            self.settings.begin_waits();
        }
        self.settings.pause_hooks(self.watch.sampled_cpus(), is_paused);
        self.watch.set_paused(is_paused)
    }

    /// Sets the share of each CPU's time that the samples of a probe may take, from 0 to 1. Beyond it, fewer hits are
    /// sampled.
    pub fn set_user_probe_budget(&self, probe: u8, share: f64) {
        self.user_probes.set_budget(probe, share);
    }

    /// Attaches a probe, given by its index among those of the run, to a site of a file: for a process, or for every process
    /// that maps the file. Hits of tasks out of scope are never sampled.
    ///
    /// # Errors
    /// If the kernel refuses it.
    pub fn attach_user_probe(
        &mut self,
        probe: u8,
        file: &Arc<File>,
        site: UserProbeSite,
        process: Option<u32>,
    ) -> Result<(), UserProbeError> {
        let program = programs::at_probes(&self.skeleton.progs).ok_or(UserProbeError::Attach(None))?;
        self.user_probes.attach(program, probe, file, site, process)
    }

    /// Attaches a probe, given by its index among those of the run, to a tracepoint, given by its index among the tracepoints of
    /// the run, which are in the order of their probes. Hits of tasks out of scope are never sampled.
    ///
    /// # Errors
    /// If the kernel has no such tracepoint, or refuses it.
    pub fn attach_tracepoint(
        &mut self,
        probe: u8,
        index: usize,
        name: &str,
        value: Option<NumericArgument>,
    ) -> Result<(), TracepointError> {
        let program =
            programs::at_tracepoint(&self.skeleton.progs, index).ok_or(TracepointError::NoProgram)?;
        self.user_probes.attach_tracepoint(program, probe, index, name, value)
    }

    /// Counts hits of the program where others attach it, without a cookie, for a probe. Only before any is attached here.
    pub fn await_user_probe(&mut self, probe: u8) {
        self.user_probes.await_others(probe);
    }

    /// Takes the probes out that were attached for a process.
    pub fn detach_user_probes(&mut self, process: u32) {
        self.user_probes.detach_process(process);
    }

    /// The hits of a probe since the start.
    #[must_use]
    pub fn user_probe_hits(&self, probe: u8) -> UserProbeHits {
        self.user_probes.hits(probe)
    }

    /// Ends sampling. The rings can still be drained.
    pub fn stop(&mut self) {
        self.settings.pause_hooks(self.watch.sampled_cpus(), true);
        self.user_probes.detach();
        self.watch.stop();
    }

    /// Lists a process, with the children that it forks from then on if [they are listed](Options::lists_children).
    ///
    /// `start_ns` is its start time by `CLOCK_BOOTTIME`, at the precision of /proc: a later process with the same id is
    /// not listed.
    ///
    /// # Errors
    /// If the list is full. If listed processes are the ones out of scope
    /// ([`TaskFilter::Unlisted`](crate::TaskFilter::Unlisted)), then no process that started after the programs were
    /// loaded is sampled from then on, and if this process started before that, no process at all.
    pub fn list(&self, pid: u32, start_ns: u64, from: ListedFrom) -> Result<(), LoadError> {
        let listed = &self.skeleton.maps.listed;
        let value = match from {
            ListedFrom::Now => start_ns,
            ListedFrom::NextExec => start_ns | intf::SW_LISTED_FROM_EXEC,
        };
        listed.update(&pid.to_ne_bytes(), &value.to_ne_bytes(), MapFlags::ANY).map_err(|source| {
            let loaded_ns = self.skeleton.maps.rodata_data.map_or(u64::MAX, |fixed| fixed.loaded_ns);
            let gap = match start_ns >= loaded_ns {
                true => offset_of!(sw_scope_gaps, young),
                false => offset_of!(sw_scope_gaps, any),
            };
            self.gaps.atomic_u32(0, gap).store(1, Ordering::Relaxed);
            self.refused.set(self.refused.get() + 1);
            LoadError::Refused { doing: "listing a process for the scope", source }
        })
    }

    /// Removes a process from the list; its children stay.
    pub fn unlist(&self, pid: u32) {
        // It may have exited.
        let _ = self.skeleton.maps.listed.delete(&pid.to_ne_bytes());
        self.settings.forget_listed();
    }

    /// The program that a process has executed last, if programs are listed.
    #[must_use]
    pub fn executed_program(&self, pid: u32) -> Option<ExecutedProgram> {
        if !self.lists_programs {
            return None;
        }
        let found = self.skeleton.maps.executed_programs.lookup(&pid.to_ne_bytes(), MapFlags::ANY);
        found.ok().flatten().map(ExecutedProgram)
    }

    /// Lists a program: from now on, each process that executes it is listed at once.
    pub fn list_program(&self, program: &ExecutedProgram) {
        // If the update fails, its processes are listed one by one.
        let _ = self.skeleton.maps.listed_programs.update(&program.0, &1u32.to_ne_bytes(), MapFlags::ANY);
    }

    /// Removes a program from the list; its processes stay.
    pub fn unlist_program(&self, program: &ExecutedProgram) {
        // It may not be listed.
        let _ = self.skeleton.maps.listed_programs.delete(&program.0);
    }

    /// Whether this thread may use maps through bpf(2).
    #[must_use]
    pub fn can_use_maps(&self) -> bool {
        self.skeleton.maps.listed.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).is_ok()
    }

    /// Whether a process is listed.
    #[must_use]
    pub fn is_listed(&self, pid: u32) -> bool {
        matches!(self.skeleton.maps.listed.lookup(&pid.to_ne_bytes(), MapFlags::ANY), Ok(Some(_)))
    }

    /// Whether the process with this PID is listed now, and started at `start_ns`, as in [`Self::list`].
    #[must_use]
    pub fn is_listed_since(&self, pid: u32, start_ns: u64) -> bool {
        let found = self.skeleton.maps.listed.lookup(&pid.to_ne_bytes(), MapFlags::ANY).ok().flatten();
        let listed_ns = found.and_then(|value| value.try_into().ok()).map(u64::from_ne_bytes);
        let tick = |time_ns: u64| time_ns / u64::from(intf::SW_START_TIME_TICK_NS);
        // The programs list the exact time.
        listed_ns.is_some_and(|listed_ns| tick(listed_ns) == tick(start_ns))
    }

    /// Has a descriptor end all waits while it is readable.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn end_waits_when_readable(&mut self, fd: impl AsFd) -> io::Result<()> {
        add_to_epoll(&self.wakeups, &fd)?;
        add_to_epoll(&self.pressure, fd)
    }

    /// Sleeps until the side band or a ring of samples needs draining, at most for `timeout`. Returns whether one does.
    #[must_use]
    pub fn wait(&self, timeout: Duration) -> bool {
        wait(&self.wakeups, timeout)
    }

    /// Sleeps until a ring of samples is filling up, at most for `timeout`. Returns whether one is.
    #[must_use]
    pub fn wait_for_pressure(&self, timeout: Duration) -> bool {
        wait(&self.pressure, timeout)
    }

    /// How stacks are walked.
    #[must_use]
    pub fn walk(&self) -> WalkMode {
        self.walk
    }

    /// The rings of samples.
    pub fn rings(&mut self) -> &mut Rings {
        &mut self.rings
    }

    /// The side band, if it could be opened.
    pub fn side_band(&mut self) -> Option<&mut SideBand> {
        self.watch.side_band()
    }

    /// Starts a new epoch, in which each stack is sent again. Returns its id.
    pub fn next_epoch(&self) -> u32 {
        self.settings.next_epoch()
    }

    /// The waits in progress of the threads in scope; none if off-CPU time is not sampled. A wait that has no sample gets one
    /// from now on.
    ///
    /// # Errors
    /// If the kernel refuses the iterator.
    pub fn list_waits(&self) -> io::Result<Vec<ListedWait>> {
        self.wait_list.as_ref().map_or_else(|| Ok(Vec::new()), WaitList::list)
    }
}

impl std::fmt::Debug for Profiler<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Profiler").field("watch", &self.watch).finish_non_exhaustive()
    }
}

/// Whether a descriptor becomes readable within `timeout`.
fn wait(epoll: &rustix::fd::OwnedFd, timeout: Duration) -> bool {
    let timeout = rustix::event::Timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    };
    let mut events =
        [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }; 1];
    // An interrupted sleep counts as a timeout.
    epoll::wait(epoll, &mut events[..], Some(&timeout)).is_ok_and(|ready| ready > 0)
}

fn wakeups(rings: &Rings) -> io::Result<rustix::fd::OwnedFd> {
    let wakeups = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    add_to_epoll(&wakeups, borrow(rings.epoll_fd(), rings))?;
    Ok(wakeups)
}

fn add_to_epoll(epoll: &rustix::fd::OwnedFd, fd: impl AsFd) -> io::Result<()> {
    Ok(epoll::add(epoll, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?)
}
