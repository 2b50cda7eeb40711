//! The profiler as a service: runs what a configuration describes until it is stopped, and applies changes while it runs.
//!
//! Owner: the main thread. Inputs: the configuration, its changes, and signals. Each receiver samples and reports on threads
//! of its own; the reports go to the exporters.
//!
//! | Module         | Contents                                                     |
//! |----------------|--------------------------------------------------------------|
//! | `receiver`     | the threads of one receiver                                  |
//! | `stop_request` | the request that a receiver stops                            |
//! | `plan`         | the settings of a receiver that change while it samples      |
//! | `destinations` | the exporters                                                |
//! | `ui`           | the server of the live page                                  |
//! | `signals`      | the signals that stop or reload the service                  |
//! | `file_watcher` | whether the files of the configuration have changed          |

mod destinations;
mod file_watcher;
mod plan;
mod receiver;
mod signals;
mod stop_request;
mod ui;

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sidewinder_base::exit::{ExitCause, Failure};
use sidewinder_base::memory::MemoryBudget;
use sidewinder_base::terminal::print_notice;
use sidewinder_base::{privilege, supervise};
use sidewinder_bpf::{Opener, Requirement, Support, measure_run_time, online_cpus, probe};
use sidewinder_config::{
    ComponentId, Config, ExporterConfig, LoadedConfig, MetricLevel, ProfilingReceiver, Reload,
    reload_for_change,
};
use sidewinder_kind::CpuIds;
use sidewinder_telemetry::RunningTelemetry;
use sidewinder_telemetry::stats::{DegradedFeature, DegradedReason, ServiceStats};
use sidewinder_text::ExternalText;
use tokio::runtime::{Handle, Runtime};
use tracing::{error, info, warn};

use crate::cli::ConfigArgs;
use crate::configuration;
use destinations::Destinations;
use file_watcher::FileWatcher;
use plan::ReceiverPlan;
use receiver::Receiver;
pub(crate) use signals::Signals;
use ui::UiServer;

/// How often files and receivers are checked.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// How long receivers may take to end when the service stops, or when a reload removes or restarts them. A thread that hangs
/// longer can only be ended with the process.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// The part of that for naming what they sampled, in a reload.
const NAMING_TIMEOUT: Duration = Duration::from_secs(8);
/// The same when the service stops, out of two seconds in total.
const FINAL_NAMING_TIMEOUT: Duration = Duration::from_millis(700);
/// How long the shutdown of telemetry may take after that.
const TELEMETRY_SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(3);

/// Runs the service until a signal stops it, or a receiver ends by itself or hangs. `opener` runs operations that need
/// privileges.
pub(crate) fn run(args: &ConfigArgs, signals: &Signals, opener: Opener) -> Result<ExitCode, Failure> {
    let loaded = configuration::read(args)?;
    for warning in &loaded.warnings {
        print_notice(format_args!("warning: {warning}\n"));
    }
    if let Some(path) = default_output(args, &loaded.config) {
        print_notice(format_args!(
            "warning: there is no configuration: profiles are written to {}; name one with --config, or a Collector in \
             OTEL_EXPORTER_OTLP_ENDPOINT\n",
            ExternalText::new(path)
        ));
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

/// The file that profiles are written to because no configuration says where to.
fn default_output<'a>(args: &ConfigArgs, config: &'a Config) -> Option<&'a Path> {
    let mut files = config.used_exporters().filter_map(|(_, exporter)| match exporter {
        ExporterConfig::File(file) => Some(&*file.path),
        ExporterConfig::OtlpGrpc(_) | ExporterConfig::OtlpHttp(_) | ExporterConfig::Debug(_) => None,
    });
    files.next().filter(|_| args.config.is_empty())
}

fn runtime() -> Result<Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("telemetry")
        .enable_all()
        .build()
        .map_err(|error| Failure::runtime("can't start the thread of telemetry", error))
}

/// The running service: everything that is set up from the configuration.
struct Service {
    config: Arc<Config>,
    stats: Arc<ServiceStats>,
    telemetry: RunningTelemetry,
    destinations: Destinations,
    ui: UiServer,
    receivers: BTreeMap<ComponentId, Receiver>,
    opener: Opener,
    file_watcher: FileWatcher,
    /// The CPUs that were online before the receivers started. Perf events are open on each of them; those of a CPU that
    /// goes offline don't come back.
    cpus: Option<CpuIds>,
    /// While this is open, the kernel measures the run time of eBPF programs.
    bpf_stats: Option<OwnedFd>,
    /// Set when threads did not end in time: the process has to end.
    hung_threads: Option<Failure>,
}

impl Service {
    fn start(loaded: LoadedConfig, runtime: &Handle, opener: Opener) -> Result<Self, Failure> {
        let config = Arc::new(loaded.config);
        let stats = Arc::new(ServiceStats::new(Arc::clone(&config)));
        let telemetry = RunningTelemetry::start(&config, Arc::clone(&stats), runtime)
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
            cpus: online_cpus().ok(),
            bpf_stats: None,
            hung_threads: None,
        };
        service.enable_bpf_stats();
        // Nothing after this needs more privileges.
        privilege::restrict_opener(&service.opener)
            .map_err(|error| Failure::runtime("can't give up privileges", error))?;
        service.stats.set_degraded(degraded_features(&service.opener));
        service.start_missing_receivers()?;
        service.stats.set_is_up(true);
        Ok(service)
    }

    /// Starts a receiver, if a pipeline uses it.
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

    /// Enables the kernel's run time statistics if metrics are detailed, else disables them. Enabling needs `CAP_SYS_ADMIN`,
    /// which is only available at the start.
    fn enable_bpf_stats(&mut self) {
        let is_enabled = self.config.telemetry.metrics.level == MetricLevel::Detailed;
        if is_enabled && self.bpf_stats.is_none() {
            self.bpf_stats = run_privileged(&self.opener, measure_run_time)
                .and_then(|result| result)
                .inspect_err(|error| {
                    warn!(
                        error = error as &dyn std::error::Error,
                        "the run time of eBPF programs is not measured"
                    );
                })
                .ok();
        } else if !is_enabled {
            self.bpf_stats = None;
        }
    }

    /// Whether a receiver has ended by itself.
    fn has_ended(&self) -> bool {
        self.receivers.values().any(Receiver::has_ended)
    }

    /// Reads the configuration again and applies it. If that fails, logs why and keeps the old one.
    fn reload(&mut self, args: &ConfigArgs) {
        let applied = configuration::read(args).and_then(|loaded| {
            for warning in &loaded.warnings {
                warn!("{warning}");
            }
            self.file_watcher = FileWatcher::new(loaded.files);
            self.apply_config(loaded.config)
        });
        match applied {
            Ok(()) => info!("the configuration was reloaded"),
            Err(failure) => {
                error!("the changed configuration was refused, so the old one stays in use: {failure:#}");
                self.stats.record_refused_reload(failure.report());
            }
        }
    }

    /// Applies a configuration. The steps before the configuration is replaced may fail, and then leave everything
    /// unchanged.
    fn apply_config(&mut self, next: Config) -> Result<(), Failure> {
        let opened = self.destinations.prepare(&self.config, &next)?;
        self.telemetry
            .reconfigure(&next)
            .map_err(|error| Failure::new(ExitCause::Usage, "can't set up telemetry").with_source(error))?;
        let before = std::mem::replace(&mut self.config, Arc::new(next));
        let next = Arc::clone(&self.config);

        // The receivers that are not restarted hold back their next report until they have a new plan.
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

    /// Restarts every receiver if the set of online CPUs has changed.
    fn restart_on_cpu_change(&mut self) {
        let Ok(online) = online_cpus() else { return };
        if self.cpus.as_ref() == Some(&online) {
            return;
        }
        info!(cpus = online.iter().count(), "the set of online CPUs has changed: restarting profiling");
        let running: Vec<ComponentId> = self.receivers.keys().cloned().collect();
        self.stop_receivers(&running);
        match self.start_missing_receivers() {
            Ok(()) => self.cpus = Some(online),
            Err(failure) => error!("profiling can't restart, retrying: {failure:#}"),
        }
    }

    /// Stops these receivers, which send what they have sampled.
    fn stop_receivers(&mut self, ids: &[ComponentId]) {
        let stopping: Vec<Receiver> = ids.iter().filter_map(|id| self.receivers.remove(id)).collect();
        let now = Instant::now();
        stopping.iter().for_each(|receiver| receiver.stop(now + NAMING_TIMEOUT));
        let deadline = now + STOP_TIMEOUT;
        for receiver in stopping {
            match receiver.join_by(deadline) {
                Some(Ok(())) => {}
                Some(Err(failure)) => error!("a receiver stopped unexpectedly and is restarted: {failure:#}"),
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

    /// Stops sampling, sends what is queued, and stops telemetry.
    fn shutdown(self) -> Result<(), Failure> {
        self.stats.set_is_up(false);
        let stop_time = Instant::now();
        self.receivers.values().for_each(|receiver| receiver.stop(stop_time + FINAL_NAMING_TIMEOUT));
        let deadline = stop_time + STOP_TIMEOUT;
        let mut ended = self.hung_threads.map_or(Ok(()), Err);
        for receiver in self.receivers.into_values() {
            let result = receiver
                .join_by(deadline)
                .unwrap_or_else(|| Err(hung_threads_failure(&self.stats, "a receiver did not end in time")));
            ended = ended.and(result);
        }
        if !self.destinations.shutdown(stop_time) {
            ended = ended.and(Err(Failure::new(ExitCause::Runtime, "the thread of an exporter hangs")));
        }
        let telemetry = self.telemetry;
        // If the metrics reader hangs, that can't be reported any more.
        let _ = supervise::run_with_deadline(
            Instant::now() + TELEMETRY_SHUTDOWN_TIMEOUT,
            "end-telemetry",
            || telemetry.shutdown(),
        );
        ended
    }
}

/// The failure with which the process ends although threads are still running.
fn hung_threads_failure(stats: &ServiceStats, message: &str) -> Failure {
    let threads = stats.threads().describe_active();
    error!(threads, "{message}: the process exits without these threads");
    Failure::new(ExitCause::Runtime, format!("{message}: threads that have not ended: {threads}"))
}

/// Whether a receiver can't apply the next configuration while it runs.
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

/// The features that are not available on this machine.
fn degraded_features(opener: &Opener) -> Vec<DegradedFeature> {
    let features = run_privileged(opener, probe).unwrap_or_default().into_iter().filter_map(|probe| {
        let Support::No { lacks, .. } = probe.support else { return None };
        let reason = match lacks {
            Requirement::Privilege => DegradedReason::Privilege,
            Requirement::Kernel => DegradedReason::Kernel,
        };
        Some(DegradedFeature { id: probe.id, name: probe.name, cost: probe.cost, reason })
    });
    features.collect()
}

/// Runs an operation that needs privileges, on a thread that has them.
fn run_privileged<T: Send + 'static>(
    opener: &Opener,
    run: impl FnOnce() -> T + Send + 'static,
) -> std::io::Result<T> {
    let panicked = || std::io::Error::other("a thread has panicked");
    opener.spawn("probe", run)?.join().ok_or_else(panicked)
}
