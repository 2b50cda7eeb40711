//! The profiler as a service: what a configuration says, kept up until told to stop, and changed while it runs.
//!
//! | Module         | Holds                                                        |
//! |----------------|--------------------------------------------------------------|
//! | `receiver`     | one receiver's threads                                       |
//! | `plan`         | what of a receiver changes while it samples                  |
//! | `destinations` | the exporters                                                |
//! | `ui`           | the page that follows what is profiled                       |
//! | `signals`      | what the outside tells us                                    |
//! | `watch`        | whether the files of the configuration have changed          |

mod destinations;
mod plan;
mod receiver;
mod signals;
mod ui;
mod watch;

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sidewinder_bpf::{CpuList, Opener, Support, measure_run_time, probe};
use sidewinder_config::{ComponentId, Config, Loaded, MetricLevel, ProfilingReceiver, Reload, change_takes};
use tokio::runtime::{Handle, Runtime};
use tracing::{error, info, warn};

use crate::cli::ConfigArgs;
use crate::configuration;
use crate::exit::{Cause, Failure};
use crate::memory::Budget;
use crate::privilege;
use crate::stats::{Degraded, ServiceStats};
use crate::supervise;
use crate::telemetry::Telemetry;
use crate::terminal::tell;
use destinations::Destinations;
use plan::Plan;
use receiver::Receiver;
pub(crate) use signals::Signals;
use ui::Ui;
use watch::Watch;

/// How often files and receivers are looked at.
const LOOK: Duration = Duration::from_secs(1);

/// How long receivers may take to end what they have begun, when we are told to stop or a configuration takes them away.
/// A thread that hangs then can't be ended but with the process.
const END_DEADLINE: Duration = Duration::from_secs(10);
/// Of that, what they have to name what they sampled: a configuration that is read again waits, and so do names.
const NAMING_DEADLINE: Duration = Duration::from_secs(8);
/// The same when we are told to stop, of the two seconds that there are altogether.
const LAST_NAMING_DEADLINE: Duration = Duration::from_millis(700);
/// How long telemetry may take after that.
const TELEMETRY_DEADLINE: Duration = Duration::from_secs(3);

/// Runs what the command line's configuration says until told to stop. `opener` does what takes privileges.
pub(crate) fn run(args: &ConfigArgs, signals: &Signals, opener: Opener) -> Result<ExitCode, Failure> {
    let loaded = configuration::read(args)?;
    for warning in &loaded.warnings {
        tell(format_args!("warning: {warning}\n"));
    }
    let runtime = runtime()?;
    let mut service = Service::start(loaded, runtime.handle(), opener)?;
    supervise::log_panics();
    while !signals.is_to_stop() && !service.has_ended() && service.hang.is_none() {
        if signals.is_to_reload() || service.watch.has_changed() {
            service.reload(args);
        }
        service.follow_cpus();
        service.destinations.end_retired();
        signals.wait(LOOK);
    }
    let ended = service.shutdown();
    runtime.shutdown_background();
    ended.map(|()| ExitCode::SUCCESS)
}

fn runtime() -> Result<Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("telemetry")
        .enable_all()
        .build()
        .map_err(|error| Failure::runtime("can't start the thread of telemetry", error))
}

/// Everything that a configuration made.
struct Service {
    config: Arc<Config>,
    stats: Arc<ServiceStats>,
    telemetry: Telemetry,
    destinations: Destinations,
    ui: Ui,
    receivers: BTreeMap<ComponentId, Receiver>,
    opener: Opener,
    watch: Watch,
    /// Those that were online before the receivers started: events are open on each CPU of then, and end with it for good.
    cpus: Option<CpuList>,
    /// While it is there the kernel measures the time of our programs.
    measuring: Option<OwnedFd>,
    /// Threads that did not end in time: the process has to.
    hang: Option<Failure>,
}

impl Service {
    fn start(loaded: Loaded, runtime: &Handle, opener: Opener) -> Result<Self, Failure> {
        let config = Arc::new(loaded.config);
        let stats = Arc::new(ServiceStats::new(Arc::clone(&config)));
        let telemetry = Telemetry::start(&config, Arc::clone(&stats), runtime)
            .map_err(|error| Failure::new(Cause::Usage, "can't set up telemetry").because(error))?;
        let destinations = Destinations::open(&config, &stats)?;
        let ui = Ui::start(&config.ui, &stats, runtime);
        let mut service = Self {
            config: Arc::clone(&config),
            stats,
            telemetry,
            destinations,
            ui,
            receivers: BTreeMap::new(),
            opener,
            watch: Watch::new(loaded.files),
            cpus: CpuList::online().ok(),
            measuring: None,
            hang: None,
        };
        service.measure_run_time();
        // From here on nothing takes more.
        privilege::narrow(&service.opener)
            .map_err(|error| Failure::runtime("can't give up privileges", error))?;
        service.stats.set_degraded(degraded(&service.opener));
        service.start_missing_receivers()?;
        service.stats.set_up(true);
        Ok(service)
    }

    /// Starts a receiver that a pipeline uses.
    fn start_receiver(&mut self, id: &ComponentId, receiver: &ProfilingReceiver) -> Result<(), Failure> {
        let Some(plan) = Plan::of(id, receiver, &self.config, &self.destinations) else { return Ok(()) };
        let budget = Budget::of(receiver);
        let (stats, live, opener) = (Arc::clone(&self.stats), self.ui.live(), self.opener.clone());
        let started = Receiver::start(id.to_string(), receiver.clone(), budget, plan, stats, live, opener)?;
        self.receivers.insert(id.clone(), started);
        Ok(())
    }

    /// Takes `CAP_SYS_ADMIN`, which there is at the start alone.
    fn measure_run_time(&mut self) {
        let is_wanted = self.config.telemetry.metrics.level == MetricLevel::Detailed;
        if is_wanted && self.measuring.is_none() {
            self.measuring = privileged(&self.opener, measure_run_time)
                .and_then(|measured| measured)
                .inspect_err(|error| {
                    warn!(
                        error = error as &dyn std::error::Error,
                        "the time in eBPF programs is not measured"
                    );
                })
                .ok();
        } else if !is_wanted {
            self.measuring = None;
        }
    }

    /// Whether a receiver has ended by itself.
    fn has_ended(&self) -> bool {
        self.receivers.values().any(Receiver::has_ended)
    }

    /// Reads the configuration again and takes it over, or goes on with the old one and says why.
    fn reload(&mut self, args: &ConfigArgs) {
        let taken_over = configuration::read(args).and_then(|loaded| {
            for warning in &loaded.warnings {
                warn!("{warning}");
            }
            self.watch = Watch::new(loaded.files);
            self.take_over(loaded.config)
        });
        match taken_over {
            Ok(()) => info!("the configuration was reloaded"),
            Err(failure) => {
                error!("the changed configuration is refused, and the old one stays in use: {failure}");
                self.stats.reload_refused(failure.to_string());
            }
        }
    }

    /// What can fail comes first, and leaves everything as it was.
    fn take_over(&mut self, next: Config) -> Result<(), Failure> {
        let opened = self.destinations.prepare(&self.config, &next)?;
        self.telemetry
            .change(&next)
            .map_err(|error| Failure::new(Cause::Usage, "can't set up telemetry").because(error))?;
        let before = std::mem::replace(&mut self.config, Arc::new(next));
        let next = Arc::clone(&self.config);

        // Those that go on wait with their next report until it is known where it goes.
        let restarted: Vec<ComponentId> =
            self.receivers.keys().filter(|id| must_restart(id, &before, &next)).cloned().collect();
        self.end_receivers(&restarted);
        let deadline = Instant::now() + END_DEADLINE;
        let all_paused = self.receivers.values().fold(true, |all_paused, receiver| {
            let is_paused = receiver.plan.take_away(deadline);
            all_paused && is_paused
        });
        if !all_paused {
            self.hang = Some(hang(&self.stats, "a receiver did not send its report in time"));
            return Err(Failure::new(Cause::Runtime, "a receiver does not let the configuration be changed"));
        }
        self.destinations.change(&before, &next, opened);
        for (id, receiver) in &self.receivers {
            let config = next.receivers.get(id);
            let plan = config.and_then(|config| Plan::of(id, config, &next, &self.destinations));
            if let Some(plan) = plan {
                receiver.plan.put(plan);
            }
        }
        self.start_missing_receivers()?;
        self.measure_run_time();
        self.ui.change(&next.ui);
        self.stats.reloaded(next);
        Ok(())
    }

    /// Starts every receiver anew where other CPUs are online than those that it samples.
    fn follow_cpus(&mut self) {
        let Ok(online) = CpuList::online() else { return };
        if self.cpus.as_ref() == Some(&online) {
            return;
        }
        info!(cpus = online.iter().count(), "the machine has other CPUs now: profiling starts anew");
        let running: Vec<ComponentId> = self.receivers.keys().cloned().collect();
        self.end_receivers(&running);
        match self.start_missing_receivers() {
            Ok(()) => self.cpus = Some(online),
            Err(failure) => error!("profiling can't start anew, it will be tried again: {failure}"),
        }
    }

    /// Ends these; what they have sampled is sent.
    fn end_receivers(&mut self, ids: &[ComponentId]) {
        let leaving: Vec<Receiver> = ids.iter().filter_map(|id| self.receivers.remove(id)).collect();
        let now = Instant::now();
        leaving.iter().for_each(|receiver| receiver.stop(now + NAMING_DEADLINE));
        let deadline = now + END_DEADLINE;
        for receiver in leaving {
            match receiver.join_by(deadline) {
                Some(Ok(())) => {}
                Some(Err(failure)) => error!("a receiver ended by itself, another one follows: {failure}"),
                None => self.hang = Some(hang(&self.stats, "a receiver did not end in time")),
            }
        }
    }

    fn start_missing_receivers(&mut self) -> Result<(), Failure> {
        let config = Arc::clone(&self.config);
        for (id, receiver) in &config.receivers {
            if !self.receivers.contains_key(id) {
                self.start_receiver(id, receiver)?;
            }
        }
        Ok(())
    }

    /// Samples no more, sends what is left, and ends.
    fn shutdown(self) -> Result<(), Failure> {
        self.stats.set_up(false);
        let told_at = Instant::now();
        self.receivers.values().for_each(|receiver| receiver.stop(told_at + LAST_NAMING_DEADLINE));
        let deadline = told_at + END_DEADLINE;
        let mut ended = self.hang.map_or(Ok(()), Err);
        for receiver in self.receivers.into_values() {
            let of_this = receiver
                .join_by(deadline)
                .unwrap_or_else(|| Err(hang(&self.stats, "a receiver did not end in time")));
            ended = ended.and(of_this);
        }
        if !self.destinations.shutdown(told_at) {
            ended = ended.and(Err(Failure::new(Cause::Runtime, "the thread of an exporter hangs")));
        }
        let telemetry = self.telemetry;
        // A reader of metrics that hangs is told of nowhere any more.
        let _ =
            supervise::until(Instant::now() + TELEMETRY_DEADLINE, "end-telemetry", || telemetry.shutdown());
        ended
    }
}

/// Why the process ends though threads go on.
fn hang(stats: &ServiceStats, what: &str) -> Failure {
    let threads = stats.threads().at_work();
    error!(threads, "{what}: the process ends without these threads");
    Failure::new(Cause::Runtime, format!("{what}: threads that have not ended: {threads}"))
}

/// Whether a receiver can't go on under the next configuration as it is.
fn must_restart(id: &ComponentId, before: &Config, next: &Config) -> bool {
    let is_used = next.pipelines.values().any(|pipeline| pipeline.receivers.contains(id));
    match (before.receivers.get(id), next.receivers.get(id)) {
        (Some(old), Some(new)) if is_used => {
            change_takes(old, new) == Reload::Restarts || Budget::of(old) != Budget::of(new)
        }
        _ => true,
    }
}

/// What works less well here than it could.
fn degraded(opener: &Opener) -> Vec<Degraded> {
    let found = privileged(opener, probe).unwrap_or_default().into_iter().filter_map(|probe| {
        let Support::No { why } = &probe.support else { return None };
        let refused = ["not permitted", "ermission denied"].iter().any(|words| why.contains(words));
        let reason = if refused { "privilege" } else { "kernel" };
        Some(Degraded { feature: probe.name, cost: probe.cost, reason })
    });
    found.collect()
}

/// Does something that takes privileges, on a thread that has them.
fn privileged<T: Send + 'static>(
    opener: &Opener,
    run: impl FnOnce() -> T + Send + 'static,
) -> std::io::Result<T> {
    let panicked = || std::io::Error::other("a thread has panicked");
    opener.spawn("probe", run)?.join().ok_or_else(panicked)
}
