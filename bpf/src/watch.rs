//! The open events: those of every task, or those of some containers.
//!
//! Events of containers cost other pods of the node nothing. Those of every task interrupt all pods, and the programs
//! then find most tasks out of scope.

use std::collections::BTreeMap;
use std::io;

use sidewinder_kind::{CpuIds, KindSet};

use crate::container::Container;
use crate::counter::PerfCounter;
use crate::events::{CounterEvents, EventError, EventKind};
use crate::interrupt_check::{CpuTimes, InterruptCheck};
use crate::opener::Opener;
use crate::programs::SamplingPrograms;
use crate::sample_kind::SampleKind;
use crate::sideband::SideBand;

/// Which tasks events are opened for.
#[derive(Debug)]
pub enum EventScope {
    /// Every task.
    EveryTask,
    /// The tasks of these containers, the first of which is our own. While no other process is in ours, it has no side
    /// band, since each side band event makes all forks, exits and mappings of the node more expensive. A process that
    /// joins later is found by a sample.
    Containers(Vec<Container>),
}

/// Opens and closes events, and keeps the open ones.
#[derive(Debug)]
pub(crate) struct EventWatch {
    /// The CPUs that are online.
    cpus: CpuIds,
    /// Those of them that are sampled.
    sampled_cpus: CpuIds,
    opener: Opener,
    scope: EventScope,
    /// The events that trigger programs, by kind of sample; empty before the start and after the end.
    sampled: BTreeMap<SampleKind, CounterEvents>,
    /// The CPUs' times before the events of every task were opened.
    idle_before: Option<CpuTimes>,
    /// The same before any event was opened.
    start_times: Option<CpuTimes>,
    /// The final results of the interrupt check, after the end.
    interrupt_checks: BTreeMap<SampleKind, InterruptCheck>,
    side_band: Option<SideBand>,
    /// The CPUs' times when sampling was paused; `None` while it isn't.
    paused: Option<CpuTimes>,
}

impl EventWatch {
    pub(crate) fn new(cpus: CpuIds, sampled_cpus: CpuIds, opener: Opener) -> Self {
        Self {
            cpus,
            sampled_cpus,
            opener,
            scope: EventScope::EveryTask,
            sampled: BTreeMap::new(),
            idle_before: None,
            start_times: None,
            interrupt_checks: BTreeMap::new(),
            side_band: None,
            paused: None,
        }
    }

    pub(crate) fn cpus(&self) -> &CpuIds {
        &self.cpus
    }

    pub(crate) fn sampled_cpus(&self) -> &CpuIds {
        &self.sampled_cpus
    }

    pub(crate) fn scope(&self) -> &EventScope {
        &self.scope
    }

    pub(crate) fn side_band(&mut self) -> Option<&mut SideBand> {
        self.side_band.as_mut()
    }

    /// Opens the side band for these tasks, replacing the open one.
    pub(crate) fn open_side_band(&mut self, audience: EventScope) -> Result<&SideBand, EventError> {
        self.scope = audience;
        let open = |kind, container| self.opener.events(kind, &self.cpus, container);
        let side_band = match &self.scope {
            EventScope::EveryTask => SideBand::new(&self.cpus, open(EventKind::SideBand, None)?)?,
            EventScope::Containers(containers) => {
                let Some(own) = containers.first() else {
                    return Err(EventError::Opener(io::Error::other("there is no container to watch")));
                };
                let mut side_band = SideBand::new(&self.cpus, open(EventKind::Ring, Some(own))?)?;
                for container in containers.iter().filter(|container| !container.is_ours_alone()) {
                    side_band.add(container.id(), open(EventKind::SideBand, Some(container))?)?;
                }
                side_band
            }
        };
        Ok(self.side_band.insert(side_band))
    }

    /// Starts the counters that trigger these programs.
    pub(crate) fn start(
        &mut self,
        programs: &SamplingPrograms<'_>,
        kinds: &KindSet,
    ) -> Result<(), EventError> {
        let now = CpuTimes::read();
        if let EventScope::EveryTask = self.scope {
            self.idle_before = Some(now.clone());
        }
        self.start_times = Some(now);
        let mut sampled = BTreeMap::new();
        for profile in kinds.iter() {
            let Some(kind) = SampleKind::of(profile, kinds) else { continue };
            // Off-CPU time and waits for locks come from the same samples.
            if sampled.contains_key(&kind) {
                continue;
            }
            let (Some(program), Some(counter)) = (programs.get(kind), PerfCounter::of(profile)) else {
                continue;
            };
            let mut events = CounterEvents::new(counter.of_samples(kind));
            let mut attach = |container: Option<&Container>| {
                let opened = self.opener.events(events.kind(), &self.sampled_cpus, container)?;
                events.attach(program, &self.sampled_cpus, container.map(Container::id), opened)
            };
            match &self.scope {
                EventScope::EveryTask => attach(None)?,
                EventScope::Containers(containers) => {
                    containers.iter().try_for_each(|container| attach(Some(container)))?;
                }
            }
            sampled.insert(kind, events);
        }
        self.sampled = sampled;
        Ok(())
    }

    /// Opens events for one more container, if events are per container and it has none yet. Returns whether it did.
    pub(crate) fn add(
        &mut self,
        programs: &SamplingPrograms<'_>,
        container: Container,
    ) -> Result<bool, EventError> {
        let EventScope::Containers(containers) = &mut self.scope else { return Ok(false) };
        if containers.iter().any(|known| known.id() == container.id()) {
            return Ok(false);
        }
        if let Some(side_band) = &mut self.side_band {
            let events = self.opener.events(EventKind::SideBand, &self.cpus, Some(&container))?;
            side_band.add(container.id(), events)?;
        }
        for (kind, events) in &mut self.sampled {
            let Some(program) = programs.get(*kind) else { continue };
            let opened = self.opener.events(events.kind(), &self.sampled_cpus, Some(&container))?;
            events.attach(program, &self.sampled_cpus, Some(container.id()), opened)?;
        }
        containers.push(container);
        self.pause_new_events()?;
        Ok(true)
    }

    /// Closes the events of containers without processes.
    pub(crate) fn close_empty(&mut self) {
        let EventScope::Containers(containers) = &mut self.scope else { return };
        // Ours has the rings.
        for index in (1..containers.len()).rev() {
            if !containers[index].is_populated() {
                let id = containers.swap_remove(index).id();
                self.sampled.values_mut().for_each(|events| events.close(Some(id)));
                self.side_band.iter_mut().for_each(|side_band| side_band.close(id));
            }
        }
    }

    /// Replaces the counters of containers by those of every task.
    pub(crate) fn widen(&mut self, programs: &SamplingPrograms<'_>) -> Result<(), EventError> {
        let mut opened = Vec::new();
        for (kind, events) in &self.sampled {
            let Some(program) = programs.get(*kind) else { continue };
            opened.push((*kind, program, self.opener.events(events.kind(), &self.sampled_cpus, None)?));
        }
        if opened.is_empty() {
            return Ok(());
        }
        if let EventScope::Containers(containers) = std::mem::replace(&mut self.scope, EventScope::EveryTask)
        {
            for container in &containers {
                self.sampled.values_mut().for_each(|events| events.close(Some(container.id())));
            }
        }
        self.idle_before = Some(CpuTimes::read());
        for (kind, program, opened) in opened {
            let Some(events) = self.sampled.get_mut(&kind) else { continue };
            events.attach(program, &self.sampled_cpus, None, opened)?;
        }
        self.pause_new_events()
    }

    /// Pauses sampling, or continues it. During a pause nothing interrupts; processes are still followed.
    pub(crate) fn set_paused(&mut self, is_paused: bool) -> Result<(), EventError> {
        match self.paused.take() {
            None if is_paused => self.paused = Some(CpuTimes::read()),
            Some(since) if !is_paused => {
                let now = CpuTimes::read();
                for before in [&mut self.idle_before, &mut self.start_times].into_iter().flatten() {
                    before.delay(&since, &now);
                }
            }
            unchanged => self.paused = unchanged,
        }
        self.sampled
            .values()
            .try_for_each(|events| events.set_counting(!is_paused))
            .map_err(EventError::Pause)
    }

    /// Attached events count at once.
    fn pause_new_events(&mut self) -> Result<(), EventError> {
        if self.paused.is_some() { self.set_paused(true) } else { Ok(()) }
    }

    /// Ends sampling.
    pub(crate) fn stop(&mut self) {
        let check = |kind: &SampleKind| Some((*kind, self.interrupt_check(*kind)?));
        let checks: Vec<_> = self.sampled.keys().filter_map(check).collect();
        self.interrupt_checks.extend(checks);
        self.sampled.clear();
    }

    pub(crate) fn interrupt_check(&self, kind: SampleKind) -> Option<InterruptCheck> {
        // Only the clock of an idle CPU may lose interrupts.
        let idle_before = self.idle_before.as_ref().filter(|_| kind == SampleKind::Cpu);
        let now = self.paused.clone().unwrap_or_else(CpuTimes::read);
        match self.sampled.get(&kind) {
            Some(events) => {
                let check = InterruptCheck::new(events, idle_before, &now).ok()?;
                let start = self.start_times.as_ref().filter(|_| kind == SampleKind::Cpu);
                let steal = start.map(|start| now.steal_since(start, &self.sampled_cpus));
                Some(check.with_steal(steal.unwrap_or_default()))
            }
            None => self.interrupt_checks.get(&kind).cloned(),
        }
    }
}
