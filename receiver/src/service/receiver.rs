//! One receiver: a thread that samples and one that names and reports.
//!
//! The `sample` thread owns the sampler, and starts the `report` thread, which owns the reporter. Messages pass between them
//! through the report queue; reports go to the exporters of the plan.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver as Incoming, RecvTimeoutError};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use sidewinder_base::exit::{ExitCause, Failure};
use sidewinder_base::memory::MemoryBudget;
use sidewinder_base::privilege;
use sidewinder_base::supervise::panic_message;
use sidewinder_bpf::{EventError, Opener, Spawned, Storage, VerifierLog, WalkMode, monotonic_ns};
use sidewinder_config::{CounterEvent, ErrorMode, ProfilingReceiver, SymbolMode, UnwindTrust, VmInternals};
use sidewinder_debug_files::DebugRoots;
use sidewinder_kind::{Kind, KindSet};
use sidewinder_message::Message;
use sidewinder_naming::{Namer, NamingOptions, NamingStage};
use sidewinder_otlp::Report;
use sidewinder_otlp::send::REQUEST_BYTES_MAX;
use sidewinder_report::{ReportQueue, Reporter};
use sidewinder_sampling::{RandomPauses, Sampler, SamplingOptions, SamplingScope, UserProbe};
use sidewinder_server::live::LiveView;
use sidewinder_tables::SavedTables;
use sidewinder_telemetry::stats::{Activity, ReceiverCounters, ReceiverStats, ServiceStats};
use sidewinder_text::ExternalText;
use sidewinder_unwind::validate::TrustedSide;
use sidewinder_vm::RuntimeSet;
use tracing::{debug, error, info, warn};

use super::plan::{CurrentPlan, ReceiverPlan};
use super::stop_request::StopRequest;

/// How often the rings are drained while there are few events. Rings that fill up, and a stop, wake the thread earlier.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// How often a join checks whether the receiver has ended.
const END_POLL_INTERVAL: Duration = Duration::from_millis(5);
/// How long to wait before sampling is tried again after a failure.
const RETRY_INTERVAL: Duration = Duration::from_secs(30);

/// The start: loading programs and building the tables of all running processes takes a minute on a slow machine.
const START_HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(180);
/// The longest time between two heartbeats of a working thread: sampling takes milliseconds at a time, naming takes seconds
/// if there is much new debug information.
const SAMPLING_HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(10);
const REPORTING_HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(30);
/// The stop: the last stacks are walked and named.
const STOP_HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(60);
/// The time before the deadline of a stop that is reserved for naming. Deferred walks are given up when it begins.
const NAMING_RESERVE: Duration = Duration::from_millis(300);

/// The handle of a running receiver.
#[derive(Debug)]
pub(super) struct Receiver {
    pub(super) plan: Arc<CurrentPlan>,
    stop: Arc<StopRequest>,
    thread: Spawned<Result<(), Failure>>,
}

impl Receiver {
    pub(super) fn start(
        name: String,
        config: ProfilingReceiver,
        budget: MemoryBudget,
        plan: ReceiverPlan,
        stats: Arc<ServiceStats>,
        live: Arc<LiveView>,
        opener: Opener,
    ) -> Result<Self, Failure> {
        let plan = Arc::new(CurrentPlan::new(plan));
        let stop = StopRequest::new().map(Arc::new);
        let stop = stop.map_err(|error| Failure::runtime("can't create an eventfd", error))?;
        let privileges = opener.clone();
        let run = ReceiverContext {
            name,
            config,
            budget,
            plan: Arc::clone(&plan),
            stop: Arc::clone(&stop),
            stats,
            live,
            opener,
        };
        let thread = privileges
            .spawn("sample", move || run.run_until_stopped())
            .map_err(|error| Failure::runtime("can't start the thread that samples", error))?;
        Ok(Self { plan, stop, thread })
    }

    /// Whether it has ended: by itself only in the error mode `propagate`.
    pub(super) fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Requests a stop. By the deadline its exporters have everything that it sampled, with names from the files that have
    /// been read by then.
    pub(super) fn stop(&self, deadline: Instant) {
        self.stop.request(deadline);
    }

    /// Waits for it to end, and returns its result. `None`: it has not ended by the deadline, and its thread is detached.
    pub(super) fn join_by(self, deadline: Instant) -> Option<Result<(), Failure>> {
        while !self.thread.is_finished() {
            if Instant::now() >= deadline {
                return None;
            }
            thread::sleep(END_POLL_INTERVAL);
        }
        let panicked = || Err(Failure::new(ExitCause::Runtime, "a receiver's thread has panicked"));
        Some(self.thread.join().unwrap_or_else(panicked))
    }
}

/// The data that the threads of a receiver share.
struct ReceiverContext {
    name: String,
    config: ProfilingReceiver,
    budget: MemoryBudget,
    plan: Arc<CurrentPlan>,
    stop: Arc<StopRequest>,
    stats: Arc<ServiceStats>,
    live: Arc<LiveView>,
    opener: Opener,
}

impl ReceiverContext {
    /// Samples until a stop is requested. Depending on the error mode, ends at a failure or tries again.
    fn run_until_stopped(&self) -> Result<(), Failure> {
        let ended = loop {
            self.stats.set_activity(&self.name, Activity::Starting);
            let failure = match catch_unwind(AssertUnwindSafe(|| self.sample())) {
                Ok(Ok(())) => break Ok(()),
                Ok(Err(failure)) => failure,
                Err(panic) => panic_failure("sample", &*panic),
            };
            self.stats.record_receiver_end(&self.name);
            self.stats.set_activity(&self.name, Activity::Failed(failure.report()));
            if self.plan.get().error_mode == ErrorMode::Propagate {
                break Err(failure);
            }
            error!(receiver = self.name, "{failure:#}; trying again in {} s", RETRY_INTERVAL.as_secs());
            if self.stop.wait(RETRY_INTERVAL) {
                break Ok(());
            }
        };
        if ended.is_ok() {
            self.stats.set_activity(&self.name, Activity::Stopped);
        }
        ended
    }

    /// Samples until a stop is requested. If all processes in scope have ended before that, sends the last events and waits
    /// for the request.
    fn sample(&self) -> Result<(), Failure> {
        let heartbeat = self.stats.threads().register("sample", START_HEARTBEAT_TIMEOUT);
        let mut storage = Storage::uninit();
        let symbolize = &self.config.symbolize;
        let debug_roots = Arc::new(DebugRoots::open(&symbolize.debug_directories));
        let kinds = self.kinds();
        let options = self.options(kinds.clone(), Arc::clone(&debug_roots));
        let runtimes = options.runtimes;
        let mut sampler = Sampler::new(&mut storage, options, self.opener.clone())?;
        self.stats.record_unattached_probes(&self.name, sampler.unattached_probes());
        let stage = NamingStage::new(Namer::new(NamingOptions {
            native: symbolize.mode == SymbolMode::Local,
            kernel: symbolize.kernel,
            lines: symbolize.lines,
            inlines: symbolize.inlines,
            hides_vm_internals: symbolize.vm_internals == VmInternals::Hide,
            runtimes,
            source_maps: symbolize.source_maps,
            budget_bytes: self.budget.names_bytes,
            has_no_time_limit: false,
            debug_roots,
            opener: Some(self.opener.clone()),
        }));

        let sampling_end_ns = OnceLock::new();
        thread::scope(|threads| {
            let (mut queue, incoming) = ReportQueue::new();
            let start_ns = monotonic_ns();
            sampler.start()?;
            sampler
                .end_waits_when_readable(self.stop.readable_when_requested())
                .map_err(|error| Failure::runtime("can't wait for a stop", error))?;
            let sampling_end_ns = &sampling_end_ns;
            let report = move || {
                // Perf maps, in which runtimes name their code, and source maps are in the roots of processes.
                privilege::drop_all_but(privilege::KERNEL_SYMBOLS | privilege::PROCESS_ACCESS);
                lower_priority();
                self.report(stage, &kinds, &incoming, start_ns, sampling_end_ns);
            };
            let report = thread::Builder::new()
                .name("report".to_owned())
                .spawn_scoped(threads, report)
                .map_err(|error| Failure::runtime("can't start the thread that reports", error))?;
            let kept = privilege::PROCESS_ACCESS | privilege::MAP_FILES;
            privilege::drop_all_but_while(kept, || sampler.profiler().can_use_maps());
            info!(
                receiver = self.name,
                samples_per_second = self.config.samples_per_second.get(),
                memory_limit_mib = self.budget.total.get(),
                maps_bytes = sampler.profiler().map_bytes(),
                "profiling"
            );
            self.stats.set_activity(&self.name, Activity::Profiling);
            let mut counted_at = Instant::now();
            while !self.stop.is_requested() && !sampler.is_finished() && !report.is_finished() {
                heartbeat.beat(SAMPLING_HEARTBEAT_TIMEOUT);
                sampler.poll(POLL_INTERVAL);
                queue.add(sampler.take_messages());
                queue.flush(&self.name);
                if self.plan.try_get().is_some_and(|plan| counted_at.elapsed() >= plan.monitor_interval) {
                    counted_at = Instant::now();
                    let counters = self.publish_counters(&sampler, queue.dropped());
                    let (outcomes, counters) = (counters.outcomes_field(), counters.counters_field());
                    debug!(receiver = self.name, outcomes, counters, "so far");
                }
            }
            heartbeat.beat(STOP_HEARTBEAT_TIMEOUT);
            let is_over = sampler.is_finished();
            let walk_until = self.stop.deadline().and_then(|deadline| deadline.checked_sub(NAMING_RESERVE));
            let end_ns = sampler.stop(walk_until);
            queue.add(sampler.take_messages());
            sampling_end_ns.get_or_init(|| end_ns);
            let dropped = queue.dropped();
            queue.close();
            let reported = report.join();
            // With the look-ups of the last report.
            let counters = self.publish_counters(&sampler, dropped);
            if let Err(panic) = reported {
                return Err(panic_failure("report", &*panic));
            }
            let (outcomes, counters) = (counters.outcomes_field(), counters.counters_field());
            info!(receiver = self.name, outcomes, counters, "profiling ended");
            if is_over {
                self.stats.set_activity(&self.name, Activity::OutOfScope);
            }
            Ok::<_, Failure>(())
        })?;
        // Free the maps before the wait.
        drop(sampler);
        drop(heartbeat);
        self.stats.record_receiver_end(&self.name);
        while !self.stop.wait(RETRY_INTERVAL) {}
        Ok(())
    }

    /// Publishes the counters of this run, and returns the totals of all runs of this receiver.
    fn publish_counters(&self, sampler: &Sampler<'_>, dropped: u64) -> ReceiverStats {
        self.stats.record_incomplete_tables(&self.name, sampler.incomplete_tables());
        self.stats.record_unattached_probes(&self.name, sampler.unattached_probes());
        self.stats.record_counters(&self.name, ReceiverCounters::from_sampler(sampler, dropped))
    }

    /// What is sampled. A counter that this machine does not have is left out if errors are ignored, and otherwise an error
    /// when sampling starts.
    fn kinds(&self) -> KindSet {
        let samples_per_second = self.config.samples_per_second.get();
        let is_missing =
            |counter| matches!(self.opener.probe_counter(counter), Err(EventError::NoCounter { .. }));
        let ignores_errors = self.plan.get().error_mode == ErrorMode::Ignore;
        let is_left_out = |event: &&CounterEvent| ignores_errors && is_missing(event.counter);
        let (left_out, sampled): (Vec<&CounterEvent>, Vec<&CounterEvent>) =
            self.config.events.iter().partition(is_left_out);
        let left_out: Vec<_> = left_out.into_iter().map(|event| event.counter).collect();
        for counter in &left_out {
            warn!(
                receiver = self.name,
                "degraded: this machine does not have the counter {counter}, so it is not sampled; `sidewinder check` \
                 lists those that it has"
            );
        }
        self.stats.record_missing_counters(&self.name, left_out);
        let counters = sampled.into_iter().map(|event| Kind::Counter(event.sampled(samples_per_second)));
        let off_cpu = (self.config.off_cpu_threshold.get() > 0.0).then_some(Kind::OffCpu);
        let cpu = KindSet::new(Kind::Cpu { samples_per_second });
        let wall = (self.config.wall_threshold.get() > 0.0).then_some(Kind::Wall { samples_per_second });
        let probes = self.probes().into_iter().map(|probe| Kind::Probe(probe.sampled));
        let kinds = off_cpu.into_iter().chain(wall).chain(counters).chain(probes).fold(cpu, KindSet::with);
        if self.config.lock_threshold.get() == 0.0 {
            return kinds;
        }
        if self.config.lock_wakers && ignores_errors && !WalkMode::any_samples_wakers() {
            warn!(
                receiver = self.name,
                "degraded: sampling the threads that end lock waits needs Linux 5.17"
            );
            return kinds.with_locks();
        }
        if self.config.lock_wakers { kinds.with_lock_wakers() } else { kinds.with_locks() }
    }

    fn probes(&self) -> Vec<UserProbe> {
        let specs = self.config.probes.iter().chain(&self.config.probe_links);
        UserProbe::list(specs, self.config.load_probe)
    }

    fn options(&self, kinds: KindSet, debug_roots: Arc<DebugRoots>) -> SamplingOptions {
        let receiver = &self.config;
        let unwind_trust = match receiver.unwind.trust {
            UnwindTrust::Rows => TrustedSide::Rows,
            UnwindTrust::Code => TrustedSide::Code,
        };
        SamplingOptions {
            scope: SamplingScope::from_config(&receiver.scope),
            kinds,
            off_cpu_threshold: receiver.off_cpu_threshold.get().max(receiver.wall_threshold.get()),
            lists_first_waits: true,
            report_interval: receiver.reporter_interval,
            lock_threshold: receiver.lock_threshold.get(),
            probes: self.probes(),
            requires_probes: self.plan.get().error_mode == ErrorMode::Propagate,
            walk: None,
            frame_limit: receiver.unwind.max_frames.get(),
            kernel_frames: receiver.unwind.kernel,
            runtimes: RuntimeSet::without_keys(receiver.interpreters.disabled_keys()),
            unwind_mode: receiver.unwind.mode,
            unwind_overrides: receiver.unwind.overrides.clone(),
            unwind_trust,
            saved_tables: self.saved_tables(unwind_trust),
            trace_context: receiver.trace_context.clone(),
            sampled_cpus: receiver.pin_cpu_ids.clone(),
            pauses: RandomPauses::new(receiver.probabilistic_interval, receiver.probabilistic_threshold),
            verifier_log: match receiver.bpf_verifier_log_level.get() {
                0 => VerifierLog::Nothing,
                1 => VerifierLog::Refusals,
                _ => VerifierLog::Statistics,
            },
            min_process_age: receiver.filter_min_process_age,
            include_env_vars: receiver.include_env_vars.iter().map(|name| name.as_str().into()).collect(),
            budget: self.budget.sampling,
            debug_roots,
            threads: self.stats.threads().clone(),
        }
    }

    fn saved_tables(&self, trust: TrustedSide) -> Option<Arc<SavedTables>> {
        let unwind = &self.config.unwind;
        let directory = unwind.tables_directory.as_deref()?;
        let bytes_max = u64::from(unwind.tables_directory_mib.get()) << 20;
        match SavedTables::open(directory, bytes_max, trust) {
            Ok(tables) => Some(Arc::new(tables)),
            Err(error) => {
                let directory = ExternalText::new(directory);
                warn!(receiver = self.name, %directory, %error, "degraded: unwind tables are not saved");
                None
            }
        }
    }

    /// Names events and sends reports at the interval of the plan, until the queue is closed. The last report ends when sampling
    /// did, however long naming takes after that.
    fn report(
        &self,
        mut stage: NamingStage,
        kinds: &KindSet,
        incoming: &Incoming<Vec<Message>>,
        mut start_ns: u64,
        sampling_end_ns: &OnceLock<u64>,
    ) {
        let heartbeat = self.stats.threads().register("report", REPORTING_HEARTBEAT_TIMEOUT);
        let mut plan = self.plan.get();
        let mut reporter = Reporter::new(&plan.processors(), self.budget.interned_bytes, REQUEST_BYTES_MAX);
        let feeds = self.live.add_receiver(&self.name, &self.name, kinds);
        let mut due = Instant::now() + plan.next_interval();
        loop {
            let received =
                incoming.recv_timeout(due.saturating_duration_since(Instant::now()).min(POLL_INTERVAL));
            let is_over = matches!(received, Err(RecvTimeoutError::Disconnected));
            heartbeat.beat(REPORTING_HEARTBEAT_TIMEOUT);
            let messages = received.unwrap_or_default();
            stage.read_functions_of(&messages);
            for message in messages {
                heartbeat.beat(REPORTING_HEARTBEAT_TIMEOUT);
                if self.stop.is_overdue() {
                    stage.namer.stop_reading();
                }
                let Some(update) = stage.read(message) else { continue };
                feeds.tee(&update, &mut stage);
                reporter.handle(update, &mut stage);
            }
            self.stats.record_name_counts(&self.name, stage.name_counts());
            let is_outdated = !self.plan.is_current(&plan);
            let sampling_end_ns = sampling_end_ns.get();
            let is_last = self.stop.is_requested() || sampling_end_ns.is_some();
            let is_due = Instant::now() >= due && !is_last;
            if is_over || is_outdated || reporter.is_full() || is_due {
                let end_ns = sampling_end_ns.map_or_else(monotonic_ns, |end_ns| start_ns.max(*end_ns));
                self.send(reporter.drain(start_ns..end_ns, &mut stage), &plan);
                start_ns = end_ns;
                if is_over {
                    feeds.close();
                    return;
                }
                if is_outdated {
                    drop(plan);
                    plan = self.plan.get();
                    reporter.change_processors(&plan.processors());
                }
                due = Instant::now() + plan.next_interval();
            }
        }
    }

    /// Sends the reports of each route to its exporters. Those of all routes have the same events.
    fn send(&self, reports: Vec<Vec<Report>>, plan: &ReceiverPlan) {
        for (index, (reports, route)) in reports.into_iter().zip(&plan.routes).enumerate() {
            for report in reports {
                if index == 0 {
                    self.stats.record_accepted(&self.name, report.tally());
                }
                for destination in &route.exporters {
                    destination.send(&report);
                }
            }
        }
    }
}

fn panic_failure(thread: &str, panic: &(dyn std::any::Any + Send)) -> Failure {
    Failure::new(ExitCause::Runtime, format!("thread {thread} has panicked: {}", panic_message(panic)))
}

/// Lowers the priority of this thread: naming may wait for the profiled processes. On Linux, niceness belongs to a thread.
fn lower_priority() {
    const NICENESS: i32 = 10;
    if let Err(error) = rustix::process::setpriority_process(None, NICENESS) {
        debug!(%error, "names are looked up at normal priority");
    }
}

#[cfg(test)]
mod tests {
    use sidewinder_config::{Interpreter, Interpreters};

    use super::*;

    #[test]
    fn each_runtime_that_is_walked_has_its_key() {
        let of = |interpreters: &Interpreters| RuntimeSet::without_keys(interpreters.disabled_keys());
        let disabled = Interpreter { disabled: true };
        let [python, hotspot, v8] = [disabled.clone(), disabled.clone(), disabled];
        assert_eq!(of(&Interpreters::default()), RuntimeSet::ALL);
        assert_eq!(of(&Interpreters { python, hotspot, v8 }), RuntimeSet::NONE);
    }
}
