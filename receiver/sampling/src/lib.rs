//! Sampling: turns records from the kernel's rings into events with stacks, and publishes changes of processes to the BPF
//! maps.
//!
//! One thread, the sampling thread, owns all state and calls [`Sampler::poll`]. The work is split into three parts, which
//! share the BPF maps. Data asks and control answers: data reads a [view](ProcessView) of control's processes and files, and
//! returns [requests](Request) and what is [ready](data::Ready); [`Sampler::pass_on`] hands both to control.
//!
//! | Part            | What it owns                                                                                |
//! |-----------------|---------------------------------------------------------------------------------------------|
//! | [`control`]     | the side band, the process registry, files and their tables, publication into the BPF maps   |
//! | [`data`]        | rings, stacks, pending samples, deferred walks, the check for stale mappings                 |
//! | [`maintenance`] | epochs, ages, sweeps                                                                        |
//!
//! Input: the kernel's rings and `/proc`. Output: the BPF maps, and [messages](sidewinder_message) for the reporter, which
//! [`Sampler::take_messages`] returns.

#![forbid(unsafe_code)]

mod control;
mod data;
mod error;
#[cfg(test)]
mod live_tests;
mod maintenance;
mod options;
mod poll_interval;
mod random_pauses;
mod user_probe;
mod wakeup_jitter;

use std::io;
use std::mem;
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use sidewinder_bpf::{LoadError, Opener, Profiler, Storage, monotonic_ns};
use sidewinder_kind::SampledProbe;
use sidewinder_message::Message;
use sidewinder_tables::IncompleteTables;

pub use self::control::scope::SamplingScope;
use self::control::{Control, ControlCounts, Pod, ProcessView, Request, VmCode};
use self::data::Data;
pub use self::data::{CodeObjectLosses, FoundWaitCounts, LongWaitCounts, SamplingTally, WaitCounts};
pub use self::error::SamplingError;
use self::maintenance::Maintenance;
pub use self::options::SamplingOptions;
use self::poll_interval::{EVENT_DELAY_NS, PollInterval};
pub use self::random_pauses::RandomPauses;
pub use self::user_probe::UserProbe;
use self::wakeup_jitter::WakeupJitter;

/// How long [`Sampler::stop`] waits for the tables that deferred walks need.
const DEFERRED_WALKS_TIMEOUT: Duration = Duration::from_secs(2);

/// Owns the eBPF programs and the three parts of sampling, and runs them.
pub struct Sampler<'obj> {
    profiler: Profiler<'obj>,
    control: Control,
    data: Data,
    maintenance: Maintenance,
    poll_interval: PollInterval,
    jitter: WakeupJitter,
    /// Whether threads may have begun to wait before the start.
    lists_first_waits: bool,
    is_held: bool,
    /// The messages that have not been taken yet, in order.
    outbox: Vec<Message>,
}

impl<'obj> Sampler<'obj> {
    /// Loads the programs and publishes the running processes. Sampling begins with [`start`](Self::start).
    pub fn new(
        storage: &'obj mut Storage,
        options: SamplingOptions,
        opener: Opener,
    ) -> Result<Self, SamplingError> {
        options.check_rate()?;
        let pod = if options.scope.is_pod { Pod::find()? } else { None };
        let load_options = options.load_options(pod.as_ref().map(|pod| pod.cgroup));
        let mut profiler = Profiler::load(storage, &load_options, opener.clone())?;
        options.warn_of_walk(profiler.walk());
        let data = Data::new(&options);
        let maintenance = Maintenance::new(&options);
        let lists_first_waits = options.lists_first_waits;
        let poll_interval = PollInterval::new(options.poll_interval(), Instant::now());
        let jitter = WakeupJitter::new(options.kinds.samples_per_second());
        let mut control = Control::new(options, pod, opener, &mut profiler)?;
        control.publish_running(&mut profiler)?;
        let is_held = false;
        Ok(Self {
            profiler,
            control,
            data,
            maintenance,
            poll_interval,
            jitter,
            lists_first_waits,
            is_held,
            outbox: Vec::new(),
        })
    }

    /// Has [polls](Self::poll) follow processes, while nothing is sampled, until the [start](Self::start).
    pub fn hold(&mut self) -> Result<(), SamplingError> {
        self.is_held = true;
        self.lists_first_waits = true;
        Ok(self.profiler.set_paused(true).map_err(LoadError::from)?)
    }

    /// Starts sampling.
    pub fn start(&mut self) -> Result<(), SamplingError> {
        if mem::take(&mut self.is_held) {
            self.profiler.set_paused(false).map_err(LoadError::from)?;
        }
        self.profiler.start().map_err(LoadError::from)?;
        if self.lists_first_waits {
            self.data.charge_waits(&self.profiler);
        }
        Ok(())
    }

    /// Has a descriptor end the waits of all [polls](Self::poll) while it is readable.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn end_waits_when_readable(&mut self, fd: impl AsFd) -> io::Result<()> {
        self.profiler.end_waits_when_readable(fd)
    }

    /// Waits for records or events, at most for `timeout`, and processes them.
    pub fn poll(&mut self, timeout: Duration) {
        self.wait(timeout);
        // Read before the rings: all records and events up to this time are already in them.
        let watermark_ns = monotonic_ns().saturating_sub(EVENT_DELAY_NS);
        self.control.files.table.invalidate_confirmed();
        self.data.take_records(&self.control.view(), &mut self.profiler);
        self.pass_on();
        if let Some(filled) = self.control.take_side_band(&mut self.profiler) {
            self.poll_interval.record_poll(Instant::now(), filled);
        }
        // Samples and process events are merged by time, so that each sample sees its process as it was at that time.
        while let Some(event) = self.control.next_event(watermark_ns) {
            self.release(event.time_ns);
            self.control.apply(event, &self.profiler);
        }
        self.release(watermark_ns);
        self.data.update_deferred(&self.control.view());
        self.control.publish(watermark_ns, &mut self.profiler);
        self.data.walk_deferred(&mut self.control.view(), &self.profiler);
        self.pass_on();
        self.maintenance.run(&mut self.data, &mut self.profiler);
        self.pass_on();
        self.maintenance.sweep(&mut self.control, &mut self.data, &mut self.profiler);
        self.control.update_descriptions(&mut self.profiler);
        self.outbox.extend(self.control.take_announcements());
    }

    fn release(&mut self, before_ns: u64) {
        self.data.release(before_ns, &mut self.control.view());
        self.pass_on();
    }

    /// Has control answer what data has asked for, and makes messages of what is ready: first what control announces, then the
    /// events that refer to it.
    fn pass_on(&mut self) {
        for request in self.data.take_requests() {
            self.control.answer(request, &mut self.profiler);
        }
        for mut ready in self.data.take_ready() {
            let process = ready.process();
            self.control.announce(process, &ready.comm(), ready.new_stack());
            self.outbox.extend(self.control.take_announcements());
            let functions = ready.take_functions().into_iter();
            self.outbox.extend(functions.map(|function| Message::CodeObject(process, Box::new(function))));
            let events = self.data.events_of(ready, self.control.attribute_keys(process));
            self.outbox.extend(events.into_iter().map(Message::Event));
        }
    }

    /// Takes the messages since the last call, in order.
    pub fn take_messages(&mut self) -> Vec<Message> {
        mem::take(&mut self.outbox)
    }

    fn wait(&mut self, timeout: Duration) {
        let wait_timeout = if self.control.has_work_soon() {
            PollInterval::SHORTEST
        } else if self.control.needs_polling() || self.data.has_deferred() {
            self.poll_interval.average()
        } else {
            timeout
        };
        let is_woken = self.profiler.wait(wait_timeout.min(timeout));
        if self.profiler.wait_for_pressure(Duration::ZERO)
            || is_woken
                && self.profiler.wait_for_pressure(self.poll_interval.next_wait(Instant::now()).min(timeout))
        {
            thread::sleep(self.jitter.next_delay());
        }
    }

    /// Stops sampling, and processes what is still in the rings. Waits for deferred walks until `walk_until` at the latest.
    /// Returns when sampling ended, by `CLOCK_MONOTONIC`.
    pub fn stop(&mut self, walk_until: Option<Instant>) -> u64 {
        self.profiler.stop();
        let end_ns = monotonic_ns();
        let waits_so_far = self.data.waits_so_far(&self.profiler);
        // The polls apply all process events up to the end: a command may have run for less than this.
        thread::sleep(Duration::from_nanos(EVENT_DELAY_NS));
        for _ in 0..=data::STACK_TIMEOUT_POLLS {
            self.poll(Duration::ZERO);
        }
        self.release(u64::MAX);
        let latest = Instant::now() + DEFERRED_WALKS_TIMEOUT;
        let walk_until = walk_until.map_or(latest, |until| until.min(latest));
        while self.data.has_deferred() && Instant::now() < walk_until {
            self.poll(self.poll_interval.average());
        }
        self.data.abandon_deferred();
        self.pass_on();
        self.data.end_waits(waits_so_far);
        self.pass_on();
        end_ns
    }

    /// The outcomes of all interrupts since the start.
    pub fn tally(&self) -> SamplingTally {
        self.data.tally(&self.profiler)
    }

    /// The counters of the control part.
    pub fn control_counts(&self) -> ControlCounts {
        self.control.counts()
    }

    /// The processes whose runtime's state we may not read, so that their stacks have none of its frames.
    pub fn denied_runtimes(&self) -> Vec<sidewinder_process::ProcessKey> {
        self.control.denied_runtimes()
    }

    /// The probes that are attached nowhere.
    pub fn unattached_probes(&self) -> Vec<SampledProbe> {
        self.control.probes.unattached().collect()
    }

    /// The files that have no whole unwind table now, for lack of memory.
    pub fn incomplete_tables(&self) -> IncompleteTables {
        self.control.incomplete_tables(&self.profiler)
    }

    /// The profiler, for its counters.
    pub fn profiler(&self) -> &Profiler<'obj> {
        &self.profiler
    }

    /// Whether the scope is the profiler's own pod.
    pub fn is_pod_scope(&self) -> bool {
        self.control.membership.scope.is_pod
    }

    /// Whether every process in scope has exited, and none can come into scope.
    pub fn is_finished(&self) -> bool {
        self.control.membership.scope.is_empty()
    }

    /// What the user loses if the eBPF programs' list of processes was full; `None` if it never was.
    pub fn scope_list_full_cost(&self) -> Option<&'static str> {
        self.control.membership.full_list_cost(&self.profiler)
    }
}
