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
mod file_watcher;
mod plan;
mod receiver;
mod signals;
mod ui;

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sidewinder_bpf::{CpuList, Opener, Support, measure_run_time, probe};
use sidewinder_config::{
    ComponentId, Config, LoadedConfig, MetricLevel, ProfilingReceiver, Reload, reload_for_change,
};
use tokio::runtime::{Handle, Runtime};
use tracing::{error, info, warn};

use crate::cli::ConfigArgs;
use crate::configuration;
use crate::exit::{ExitCause, Failure};
use crate::memory::MemoryBudget;
use crate::privilege;
use crate::stats::{DegradedFeature, ServiceStats};
use crate::supervise;
use crate::telemetry::Telemetry;
use crate::terminal::print_notice;
use destinations::Destinations;
use file_watcher::FileWatcher;
use plan::ReceiverPlan;
use receiver::Receiver;
pub(crate) use signals::Signals;
use ui::UiServer;

/// How often files and receivers are looked at.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// How long receivers may take to end what they have begun, when we are told to stop or a configuration takes them away.
/// A thread that hangs then can't be ended but with the process.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// Of that, what they have to name what they sampled: a configuration that is read again waits, and so do names.
const NAMING_TIMEOUT: Duration = Duration::from_secs(8);
/// The same when we are told to stop, of the two seconds that there are altogether.
const FINAL_NAMING_TIMEOUT: Duration = Duration::from_millis(700);
/// How long telemetry may take after that.
const TELEMETRY_SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(3);

/// Runs what the command line's configuration says until told to stop. `opener` does what takes privileges.
pub(crate) fn run(args: &ConfigArgs, signals: &Signals, opener: Opener) -> Result<ExitCode, Failure> {
    let loaded = configuration::read(args)?;
    for warning in &loaded.warnings {
        print_notice(format_args!("warning: {warning}\n"));
    }
    let runtime = runtime()?;
    let mut service = Service::start(loaded, runtime.handle(), opener)?;
    supervise::log_panics();
    while !signals.is_stop_requested() && !service.has_ended() && service.hung_threads.is_none() {
        if signals.take_reload_request() || service.file_watcher.has_changed() {
            service.reload(args);
        }
        service.restart_on_cpu_change();
        service.destinations.reap_retired();
        signals.wait(CHECK_INTERVAL);
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
    ui: UiServer,
    receivers: BTreeMap<ComponentId, Receiver>,
    opener: Opener,
    file_watcher: FileWatcher,
    /// Those that were online before the receivers started: events are open on each CPU of then, and end with it for good.
    cpus: Option<CpuList>,
    /// While it is there the kernel measures the time of our programs.
    bpf_stats: Option<OwnedFd>,
    /// Threads that did not end in time: the process has to.
    hung_threads: Option<Failure>,
}

impl Service {
    fn start(loaded: LoadedConfig, runtime: &Handle, opener: Opener) -> Result<Self, Failure> {
        let config = Arc::new(loaded.config);
        let stats = Arc::new(ServiceStats::new(Arc::clone(&config)));
        let telemetry = Telemetry::start(&config, Arc::clone(&stats), runtime)
            .map_err(|error| Failure::new(ExitCause::Usage, "can't set up telemetry").with_source(error))?;
        let destinations = Destinations::open(&config, &stats)?;
        let ui = UiServer::start(&config.ui, &stats, runtime);
        let mut service = Self {
            config: Arc::clone(&config),
            stats,
            telemetry,
            destinations,
            ui,
            receivers: BTreeMap::new(),
            opener,
            file_watcher: FileWatcher::new(loaded.files),
            cpus: CpuList::online().ok(),
            bpf_stats: None,
            hung_threads: None,
        };
        service.enable_bpf_stats();
        // From here on nothing takes more.
        privilege::restrict_opener(&service.opener)
            .map_err(|error| Failure::runtime("can't give up privileges", error))?;
        service.stats.set_degraded(degraded_features(&service.opener));
        service.start_missing_receivers()?;
        service.stats.set_is_up(true);
        Ok(service)
    }

    /// Starts a receiver that a pipeline uses.
    fn start_receiver(&mut self, id: &ComponentId, receiver: &ProfilingReceiver) -> Result<(), Failure> {
        let Some(plan) = ReceiverPlan::from_config(id, receiver, &self.config, &self.destinations) else {
            return Ok(());
        };
        let budget = MemoryBudget::from_config(receiver);
        let (stats, live, opener) = (Arc::clone(&self.stats), self.ui.live(), self.opener.clone());
        let started = Receiver::start(id.to_string(), receiver.clone(), budget, plan, stats, live, opener)?;
        self.receivers.insert(id.clone(), started);
        Ok(())
    }

    /// Takes `CAP_SYS_ADMIN`, which there is at the start alone.
    fn enable_bpf_stats(&mut self) {
        let is_wanted = self.config.telemetry.metrics.level == MetricLevel::Detailed;
        if is_wanted && self.bpf_stats.is_none() {
            self.bpf_stats = run_privileged(&self.opener, measure_run_time)
                .and_then(|measured| measured)
                .inspect_err(|error| {
                    warn!(
                        error = error as &dyn std::error::Error,
                        "the time in eBPF programs is not measured"
                    );
                })
                .ok();
        } else if !is_wanted {
            self.bpf_stats = None;
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
            self.file_watcher = FileWatcher::new(loaded.files);
            self.apply_config(loaded.config)
        });
        match taken_over {
            Ok(()) => info!("the configuration was reloaded"),
            Err(failure) => {
                error!("the changed configuration is refused, and the old one stays in use: {failure}");
                self.stats.record_refused_reload(failure.to_string());
            }
        }
    }

    /// What can fail comes first, and leaves everything as it was.
    fn apply_config(&mut self, next: Config) -> Result<(), Failure> {
        let opened = self.destinations.prepare(&self.config, &next)?;
        self.telemetry
            .reconfigure(&next)
            .map_err(|error| Failure::new(ExitCause::Usage, "can't set up telemetry").with_source(error))?;
        let before = std::mem::replace(&mut self.config, Arc::new(next));
        let next = Arc::clone(&self.config);

        // Those that go on wait with their next report until it is known where it goes.
        let restarted: Vec<ComponentId> =
            self.receivers.keys().filter(|id| must_restart(id, &before, &next)).cloned().collect();
        self.stop_receivers(&restarted);
        let deadline = Instant::now() + STOP_TIMEOUT;
        let all_paused = self.receivers.values().fold(true, |all_paused, receiver| {
            let is_paused = receiver.plan.withdraw(deadline);
            all_paused && is_paused
        });
        if !all_paused {
            self.hung_threads =
                Some(hung_threads_failure(&self.stats, "a receiver did not send its report in time"));
            return Err(Failure::new(
                ExitCause::Runtime,
                "a receiver does not let the configuration be changed",
            ));
        }
        self.destinations.replace(&before, &next, opened);
        for (id, receiver) in &self.receivers {
            let config = next.receivers.get(id);
            let plan =
                config.and_then(|config| ReceiverPlan::from_config(id, config, &next, &self.destinations));
            if let Some(plan) = plan {
                receiver.plan.set(plan);
            }
        }
        self.start_missing_receivers()?;
        self.enable_bpf_stats();
        self.ui.reconfigure(&next.ui);
        self.stats.record_reload(next);
        Ok(())
    }

    /// Starts every receiver anew where other CPUs are online than those that it samples.
    fn restart_on_cpu_change(&mut self) {
        let Ok(online) = CpuList::online() else { return };
        if self.cpus.as_ref() == Some(&online) {
            return;
        }
        info!(cpus = online.iter().count(), "the machine has other CPUs now: profiling starts anew");
        let running: Vec<ComponentId> = self.receivers.keys().cloned().collect();
        self.stop_receivers(&running);
        match self.start_missing_receivers() {
            Ok(()) => self.cpus = Some(online),
            Err(failure) => error!("profiling can't start anew, it will be tried again: {failure}"),
        }
    }

    /// Ends these; what they have sampled is sent.
    fn stop_receivers(&mut self, ids: &[ComponentId]) {
        let leaving: Vec<Receiver> = ids.iter().filter_map(|id| self.receivers.remove(id)).collect();
        let now = Instant::now();
        leaving.iter().for_each(|receiver| receiver.stop(now + NAMING_TIMEOUT));
        let deadline = now + STOP_TIMEOUT;
        for receiver in leaving {
            match receiver.join_by(deadline) {
                Some(Ok(())) => {}
                Some(Err(failure)) => error!("a receiver ended by itself, another one follows: {failure}"),
                None => {
                    self.hung_threads =
                        Some(hung_threads_failure(&self.stats, "a receiver did not end in time"));
                }
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
        self.stats.set_is_up(false);
        let told_at = Instant::now();
        self.receivers.values().for_each(|receiver| receiver.stop(told_at + FINAL_NAMING_TIMEOUT));
        let deadline = told_at + STOP_TIMEOUT;
        let mut ended = self.hung_threads.map_or(Ok(()), Err);
        for receiver in self.receivers.into_values() {
            let of_this = receiver
                .join_by(deadline)
                .unwrap_or_else(|| Err(hung_threads_failure(&self.stats, "a receiver did not end in time")));
            ended = ended.and(of_this);
        }
        if !self.destinations.shutdown(told_at) {
            ended = ended.and(Err(Failure::new(ExitCause::Runtime, "the thread of an exporter hangs")));
        }
        let telemetry = self.telemetry;
        // A reader of metrics that hangs is told of nowhere any more.
        let _ = supervise::run_with_deadline(
            Instant::now() + TELEMETRY_SHUTDOWN_TIMEOUT,
            "end-telemetry",
            || telemetry.shutdown(),
        );
        ended
    }
}

/// Why the process ends though threads go on.
fn hung_threads_failure(stats: &ServiceStats, what: &str) -> Failure {
    let threads = stats.threads().describe_active();
    error!(threads, "{what}: the process ends without these threads");
    Failure::new(ExitCause::Runtime, format!("{what}: threads that have not ended: {threads}"))
}

/// Whether a receiver can't go on under the next configuration as it is.
fn must_restart(id: &ComponentId, before: &Config, next: &Config) -> bool {
    let is_used = next.pipelines.values().any(|pipeline| pipeline.receivers.contains(id));
    match (before.receivers.get(id), next.receivers.get(id)) {
        (Some(old), Some(new)) if is_used => {
            reload_for_change(old, new) == Reload::Restarts
                || MemoryBudget::from_config(old) != MemoryBudget::from_config(new)
        }
        _ => true,
    }
}

/// What works less well here than it could.
fn degraded_features(opener: &Opener) -> Vec<DegradedFeature> {
    let found = run_privileged(opener, probe).unwrap_or_default().into_iter().filter_map(|probe| {
        let Support::No { why } = &probe.support else { return None };
        let refused = ["not permitted", "ermission denied"].iter().any(|words| why.contains(words));
        let reason = if refused { "privilege" } else { "kernel" };
        Some(DegradedFeature { feature: probe.name, cost: probe.cost, reason })
    });
    found.collect()
}

/// Does something that takes privileges, on a thread that has them.
fn run_privileged<T: Send + 'static>(
    opener: &Opener,
    run: impl FnOnce() -> T + Send + 'static,
) -> std::io::Result<T> {
    let panicked = || std::io::Error::other("a thread has panicked");
    opener.spawn("probe", run)?.join().ok_or_else(panicked)
}
