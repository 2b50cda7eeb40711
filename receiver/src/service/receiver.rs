//! One receiver: a thread that samples and one that names and reports.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver as Incoming, RecvTimeoutError};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use sidewinder_bpf::{Opener, Spawned, Storage, monotonic_ns};
use sidewinder_config::{ErrorMode, ProfilingReceiver, SymbolMode, UnwindTrust};
use sidewinder_kind::Kind;
use sidewinder_otlp::Report;
use sidewinder_unwind::validate::Trust;
use tracing::{debug, error, info};

use super::plan::{CurrentPlan, Plan};
use crate::exit::{Cause, Failure};
use crate::live::Live;
use crate::memory::Budget;
use crate::naming::{Namer, NamingOptions};
use crate::privilege;
use crate::report::Reporter;
use crate::report_queue::ReportQueue;
use crate::sampling::Sampler;
use crate::sampling::debug_file::DebugRoots;
use crate::sampling::feed::Message;
use crate::sampling::options::SamplingOptions;
use crate::sampling::scope::Scope;
use crate::stats::{Activity, Counted, ReceiverStats, ServiceStats};
use crate::supervise::panic_message;

/// How often the rings are drained while little happens, and how late we hear that we are to stop. They wake us when they
/// fill up.
const POLL: Duration = Duration::from_millis(500);
/// How often it is looked whether a receiver has ended.
const END_POLL: Duration = Duration::from_millis(5);
/// How long to wait before trying again what a privilege or the kernel refused.
const RETRY: Duration = Duration::from_secs(30);

/// Loading programs and building the tables of all that runs takes a minute on a slow machine.
const STARTING_MAX: Duration = Duration::from_secs(180);
/// How long a thread may be silent while it is at work: sampling takes milliseconds at a time, naming seconds where much
/// debug information is new.
const SAMPLING_SILENT_MAX: Duration = Duration::from_secs(10);
const REPORTING_SILENT_MAX: Duration = Duration::from_secs(30);
/// The last stacks are walked and named.
const ENDING_MAX: Duration = Duration::from_secs(60);
/// Of the time until the deadline of a stop, what is left for naming once deferred walks are given up.
const NAMING_RESERVE: Duration = Duration::from_millis(300);

/// Whether a receiver is to stop, and the deadline by which all that it sampled is to be with its exporters.
#[derive(Clone, Default, Debug)]
struct Stop(Arc<OnceLock<Instant>>);

impl Stop {
    /// The first deadline holds.
    fn request(&self, deadline: Instant) {
        self.0.get_or_init(|| deadline);
    }

    fn deadline(&self) -> Option<Instant> {
        self.0.get().copied()
    }

    fn is_requested(&self) -> bool {
        self.deadline().is_some()
    }

    fn is_overdue(&self) -> bool {
        self.deadline().is_some_and(|deadline| Instant::now() >= deadline)
    }
}

/// A receiver that runs.
#[derive(Debug)]
pub(super) struct Receiver {
    pub(super) plan: Arc<CurrentPlan>,
    stop: Stop,
    thread: Spawned<Result<(), Failure>>,
}

impl Receiver {
    pub(super) fn start(
        name: String,
        config: ProfilingReceiver,
        budget: Budget,
        plan: Plan,
        stats: Arc<ServiceStats>,
        live: Arc<Live>,
        opener: Opener,
    ) -> Result<Self, Failure> {
        let plan = Arc::new(CurrentPlan::new(plan));
        let stop = Stop::default();
        let privileges = opener.clone();
        let run =
            Run { name, config, budget, plan: Arc::clone(&plan), stop: stop.clone(), stats, live, opener };
        let thread = privileges
            .spawn("sample", move || run.until_stopped())
            .map_err(|error| Failure::runtime("can't start the thread that samples", error))?;
        Ok(Self { plan, stop, thread })
    }

    /// Whether it has ended by itself, which it does where its errors are to be propagated.
    pub(super) fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Tells it to stop. By the deadline everything that it sampled is with its exporters, named from what has been read
    /// until then.
    pub(super) fn stop(&self, deadline: Instant) {
        self.stop.request(deadline);
    }

    /// How it ended; `None`: it has not by the deadline, and goes on without anybody who waits for it.
    pub(super) fn join_by(self, deadline: Instant) -> Option<Result<(), Failure>> {
        while !self.thread.is_finished() {
            if Instant::now() >= deadline {
                return None;
            }
            thread::sleep(END_POLL);
        }
        let panicked = || Err(Failure::new(Cause::Runtime, "a receiver's thread has panicked"));
        Some(self.thread.join().unwrap_or_else(panicked))
    }
}

/// What the threads of a receiver share.
struct Run {
    name: String,
    config: ProfilingReceiver,
    budget: Budget,
    plan: Arc<CurrentPlan>,
    stop: Stop,
    stats: Arc<ServiceStats>,
    live: Arc<Live>,
    opener: Opener,
}

impl Run {
    /// Samples until told to stop, as the error mode says also through failures.
    fn until_stopped(&self) -> Result<(), Failure> {
        let ended = loop {
            self.stats.receiver_does(&self.name, Activity::Starting);
            let failure = match catch_unwind(AssertUnwindSafe(|| self.sample())) {
                Ok(Ok(())) => break Ok(()),
                Ok(Err(failure)) => failure,
                Err(panic) => has_panicked("sample", &*panic),
            };
            self.stats.receiver_ended(&self.name);
            self.stats.receiver_does(&self.name, Activity::Failed(failure.to_string()));
            if self.plan.get().error_mode == ErrorMode::Propagate {
                break Err(failure);
            }
            error!(receiver = self.name, "{failure}; trying again in {} s", RETRY.as_secs());
            if self.wait_for_stop(RETRY) {
                break Ok(());
            }
        };
        if ended.is_ok() {
            self.stats.receiver_does(&self.name, Activity::Stopped);
        }
        ended
    }

    /// Waits until told to stop, at the longest for `timeout`, and returns whether it was.
    fn wait_for_stop(&self, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        while !self.is_stopped() && Instant::now() < deadline {
            thread::sleep(POLL);
        }
        self.is_stopped()
    }

    fn is_stopped(&self) -> bool {
        self.stop.is_requested()
    }

    /// Samples once, until told to stop. Where everything that was to be sampled has ended, what it left is sent, and
    /// there is nothing more to do until then.
    fn sample(&self) -> Result<(), Failure> {
        let heartbeat = self.stats.threads().watch("sample", STARTING_MAX);
        let mut storage = Storage::uninit();
        let symbolize = &self.config.symbolize;
        let debug_roots = Arc::new(DebugRoots::open(&symbolize.debug_directories));
        let options = self.options(Arc::clone(&debug_roots));
        let mut sampler = Sampler::new(&mut storage, options, self.opener.clone())?;
        let namer = Namer::new(NamingOptions {
            native: symbolize.mode == SymbolMode::Local,
            kernel: symbolize.kernel,
            lines: symbolize.lines,
            inlines: symbolize.inlines,
            budget_bytes: self.budget.names_bytes,
            is_patient: false,
            debug_roots,
            opener: Some(self.opener.clone()),
        });

        thread::scope(|threads| {
            let (mut queue, incoming) = ReportQueue::new();
            let start_ns = monotonic_ns();
            sampler.start()?;
            let report = move || {
                // Files in which runtimes name their code are in the roots of processes.
                privilege::keep(privilege::KERNEL_SYMBOLS | privilege::LOOKING);
                yield_to_others();
                self.report(namer, &incoming, start_ns);
            };
            let report = thread::Builder::new()
                .name("report".to_owned())
                .spawn_scoped(threads, report)
                .map_err(|error| Failure::runtime("can't start the thread that reports", error))?;
            let kept = privilege::LOOKING | privilege::NAMELESS_FILES;
            privilege::keep_while(kept, || sampler.profiler().can_use_maps());
            info!(
                receiver = self.name,
                samples_per_second = self.config.samples_per_second.get(),
                memory_limit_mib = self.budget.whole.get(),
                map_bytes = sampler.profiler().map_bytes(),
                "profiling"
            );
            self.stats.receiver_does(&self.name, Activity::Profiling);
            let mut counted_at = Instant::now();
            while !self.is_stopped() && !sampler.is_over() && !report.is_finished() {
                heartbeat.beat(SAMPLING_SILENT_MAX);
                sampler.poll(POLL, &mut queue.pending);
                queue.flush(&self.name);
                if self.plan.peek().is_some_and(|plan| counted_at.elapsed() >= plan.monitor_interval) {
                    counted_at = Instant::now();
                    let counted = self.count(&sampler, queue.dropped());
                    debug!(receiver = self.name, "so far: {counted}");
                }
            }
            heartbeat.beat(ENDING_MAX);
            let is_over = sampler.is_over();
            let walk_until = self.stop.deadline().and_then(|deadline| deadline.checked_sub(NAMING_RESERVE));
            sampler.stop(walk_until, &mut queue.pending);
            let counted = self.count(&sampler, queue.dropped());
            queue.close();
            if let Err(panic) = report.join() {
                return Err(has_panicked("report", &*panic));
            }
            info!(receiver = self.name, "profiling ended: {counted}");
            if is_over {
                self.stats.receiver_does(&self.name, Activity::OutOfScope);
            }
            Ok::<_, Failure>(())
        })?;
        // The maps are of no more use.
        drop(sampler);
        drop(heartbeat);
        self.stats.receiver_ended(&self.name);
        while !self.wait_for_stop(RETRY) {}
        Ok(())
    }

    /// Tells what this run has counted, and returns what all of them have.
    fn count(&self, sampler: &Sampler<'_>, dropped: u64) -> ReceiverStats {
        self.stats.receiver_counted(&self.name, Counted::of(sampler, dropped))
    }

    fn options(&self, debug_roots: Arc<DebugRoots>) -> SamplingOptions {
        let receiver = &self.config;
        SamplingOptions {
            scope: Scope::from_config(&receiver.scope),
            samples_per_second: receiver.samples_per_second.get(),
            walk: None,
            #[cfg(test)]
            test_programs: false,
            frame_limit: receiver.unwind.max_frames.get(),
            kernel_frames: receiver.unwind.kernel,
            unwind_mode: receiver.unwind.mode,
            unwind_overrides: receiver.unwind.overrides.clone(),
            unwind_trust: match receiver.unwind.trust {
                UnwindTrust::Rows => Trust::Rows,
                UnwindTrust::Code => Trust::Code,
            },
            trace_context: receiver.trace_context.clone(),
            budget: self.budget.sampling,
            debug_roots,
            threads: self.stats.threads().clone(),
        }
    }

    /// Names events and sends a report of them every so often, until no more come.
    fn report(&self, namer: Namer, incoming: &Incoming<Vec<Message>>, mut start_ns: u64) {
        let heartbeat = self.stats.threads().watch("report", REPORTING_SILENT_MAX);
        let mut plan = self.plan.get();
        let mut reporter = Reporter::new(namer, &plan.processors(), self.budget.interned_bytes);
        let kind = Kind::Cpu { samples_per_second: self.config.samples_per_second.get() };
        let shown = self.live.begin(&self.name, self.name.clone(), kind);
        let mut due = Instant::now() + plan.next_interval();
        loop {
            let received = incoming.recv_timeout(due.saturating_duration_since(Instant::now()).min(POLL));
            let is_over = matches!(received, Err(RecvTimeoutError::Disconnected));
            heartbeat.beat(REPORTING_SILENT_MAX);
            for message in received.into_iter().flatten() {
                heartbeat.beat(REPORTING_SILENT_MAX);
                if self.stop.is_overdue() {
                    reporter.read_no_more();
                }
                shown.tee(&message, reporter.naming());
                reporter.take(message);
            }
            self.stats.receiver_named(&self.name, reporter.name_counts());
            let is_outdated = !self.plan.holds(&plan);
            if is_over || is_outdated || reporter.is_full() || Instant::now() >= due {
                let end_ns = monotonic_ns();
                self.send(reporter.drain(start_ns..end_ns), &plan);
                start_ns = end_ns;
                if is_over {
                    shown.end();
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

    /// Sends the report of each route to its exporters. All reports are of the same events.
    fn send(&self, reports: Vec<Option<Report>>, plan: &Plan) {
        for (index, (report, route)) in reports.into_iter().zip(&plan.routes).enumerate() {
            let Some(report) = report else { continue };
            if index == 0 {
                self.stats.receiver_handed_on(&self.name, report.tally());
            }
            for destination in &route.exporters {
                destination.send(&report);
            }
        }
    }
}

fn has_panicked(thread: &str, panic: &(dyn std::any::Any + Send)) -> Failure {
    Failure::new(Cause::Runtime, format!("thread {thread} has panicked: {}", panic_message(panic)))
}

/// Lets what is profiled go first: names can wait. It is the thread's own niceness, as Linux has it.
fn yield_to_others() {
    const NICENESS: i32 = 10;
    if let Err(error) = rustix::process::setpriority_process(None, NICENESS) {
        debug!(%error, "names are sought at the usual priority");
    }
}
