//! The events that are open: those of every task, or those of some containers.
//!
//! Events of containers cost other pods of a node nothing; those of every task interrupt all of them, for the programs to
//! find them out of scope.

use std::io;

use libbpf_rs::ProgramMut;

use crate::container::Container;
use crate::events::{ClockEvents, CpuList, EventError, EventKind};
use crate::opener::Opener;
use crate::sideband::SideBand;
use crate::witness::{Sleep, Witness};

/// Whose events are opened.
#[derive(Debug)]
pub enum Audience {
    /// Those of every task.
    EveryTask,
    /// Those of containers, of which the first is our own. While nobody else is in that one, it has no side band: each
    /// event of a side band costs all forks, exits and mappings of the node a look at it. Who comes later is met by a
    /// sample.
    Containers(Vec<Container>),
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Watch {
    cpus: CpuList,
    opener: Opener,
    audience: Audience,
    clock: Option<ClockEvents>,
    /// The CPUs' sleep before the events of every task began.
    slept_before: Option<Sleep>,
    /// What the witness said last: what it says at the end.
    witness: Option<Witness>,
    side_band: Option<SideBand>,
}

impl Watch {
    pub(crate) fn new(cpus: CpuList, opener: Opener) -> Self {
        Self {
            cpus,
            opener,
            audience: Audience::EveryTask,
            clock: None,
            slept_before: None,
            witness: None,
            side_band: None,
        }
    }

    pub(crate) fn cpus(&self) -> &CpuList {
        &self.cpus
    }

    pub(crate) fn audience(&self) -> &Audience {
        &self.audience
    }

    pub(crate) fn side_band(&mut self) -> Option<&mut SideBand> {
        self.side_band.as_mut()
    }

    /// Opens the side band of these, instead of what is open.
    pub(crate) fn open_side_band(&mut self, audience: Audience) -> Result<&SideBand, EventError> {
        self.audience = audience;
        let open = |kind, container| self.opener.events(kind, &self.cpus, container);
        let side_band = match &self.audience {
            Audience::EveryTask => SideBand::new(&self.cpus, open(EventKind::SideBand, None)?)?,
            Audience::Containers(containers) => {
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

    /// Starts the clocks.
    pub(crate) fn start(
        &mut self,
        program: &ProgramMut<'_>,
        samples_per_second: u32,
    ) -> Result<(), EventError> {
        let mut clock = ClockEvents::new(samples_per_second);
        let kind = clock.kind();
        let mut attach = |container: Option<&Container>| {
            let events = self.opener.events(kind, &self.cpus, container)?;
            clock.attach(program, &self.cpus, container.map(Container::id), events)
        };
        match &self.audience {
            Audience::EveryTask => {
                self.slept_before = Some(Sleep::of_each_cpu());
                attach(None)?;
            }
            Audience::Containers(containers) => {
                containers.iter().try_for_each(|container| attach(Some(container)))?;
            }
        }
        self.clock = Some(clock);
        Ok(())
    }

    /// Opens the events of one more container, where containers are watched and this one isn't yet. Whether that is so.
    pub(crate) fn add(&mut self, program: &ProgramMut<'_>, container: Container) -> Result<bool, EventError> {
        let Audience::Containers(containers) = &mut self.audience else { return Ok(false) };
        if containers.iter().any(|known| known.id() == container.id()) {
            return Ok(false);
        }
        if let Some(side_band) = &mut self.side_band {
            let events = self.opener.events(EventKind::SideBand, &self.cpus, Some(&container))?;
            side_band.add(container.id(), events)?;
        }
        if let Some(clock) = &mut self.clock {
            let events = self.opener.events(clock.kind(), &self.cpus, Some(&container))?;
            clock.attach(program, &self.cpus, Some(container.id()), events)?;
        }
        containers.push(container);
        Ok(true)
    }

    /// Closes the events of containers in which no process is left.
    pub(crate) fn close_empty(&mut self) {
        let Audience::Containers(containers) = &mut self.audience else { return };
        // Our own has the rings.
        for index in (1..containers.len()).rev() {
            if !containers[index].is_populated() {
                let id = containers.swap_remove(index).id();
                self.clock.iter_mut().for_each(|clock| clock.close(Some(id)));
                self.side_band.iter_mut().for_each(|side_band| side_band.close(id));
            }
        }
    }

    /// Has the clock events of every task take the place of those of containers.
    pub(crate) fn widen(&mut self, program: &ProgramMut<'_>) -> Result<(), EventError> {
        let Some(clock) = &mut self.clock else { return Ok(()) };
        let events = self.opener.events(clock.kind(), &self.cpus, None)?;
        if let Audience::Containers(containers) = std::mem::replace(&mut self.audience, Audience::EveryTask) {
            containers.iter().for_each(|container| clock.close(Some(container.id())));
        }
        self.slept_before = Some(Sleep::of_each_cpu());
        clock.attach(program, &self.cpus, None, events)
    }

    /// Ends sampling.
    pub(crate) fn stop(&mut self) {
        self.witness = self.ask_witness();
        self.clock = None;
    }

    pub(crate) fn ask_witness(&self) -> Option<Witness> {
        match &self.clock {
            Some(clock) => Witness::of(clock, self.slept_before.as_ref()).ok(),
            None => self.witness.clone(),
        }
    }
}
