//! `sidewinder run`: profile as configured, until told to stop.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use sidewinder_bpf::{Storage, monotonic_ns};
use sidewinder_config::{
    ComponentId, Config, ErrorMode, LogEncoding, LogLevel, LogOutput, ProfilingReceiver, SymbolMode,
    Telemetry, UnwindTrust,
};
use sidewinder_otlp::Report;
use sidewinder_unwind::validate::Trust;
use tracing::{debug, error, info, warn};
use tracing_subscriber::fmt::writer::{BoxMakeWriter, MakeWriterExt as _};

use super::{Ended, configuration, stop_flag};
use crate::cli::ConfigArgs;
use crate::exit::{Cause, Failure};
use crate::export::Destination;
use crate::naming::{Namer, NamingOptions};
use crate::report::Reporter;
use crate::sampling::feed::Message;
use crate::sampling::scope::Scope;
use crate::sampling::{Sampler, SamplingOptions};

/// How often the rings are drained while little happens. They wake us when they fill up.
const POLL: Duration = Duration::from_millis(200);
/// How long to wait before trying again what a privilege or the kernel refused.
const RETRY: Duration = Duration::from_secs(30);
/// How long exporters may take to send what is left, once we are told to stop.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(1500);
/// Batches of events that may wait to be named and sent.
const BATCHES_WAITING_MAX: usize = 64;
/// Messages that may wait beyond that; what comes after is dropped, and said.
const MESSAGES_WAITING_MAX: usize = 100_000;

pub(crate) fn run(args: &ConfigArgs) -> Ended {
    let config = configuration::read(args)?.config;
    log_as_configured(&config.telemetry)?;
    let stop = stop_flag()?;
    let destinations = destinations(&config)?;
    let ended = thread::scope(|threads| {
        let receivers: Vec<_> = used_receivers(&config)
            .into_iter()
            .map(|(id, receiver, exporters)| {
                let to = exporters.iter().filter_map(|id| destinations.get(id).cloned()).collect();
                let (stop, id) = (&*stop, id.to_string());
                threads.spawn(move || {
                    let result = profile(&id, receiver, to, stop);
                    if result.is_err() {
                        stop.store(true, Ordering::Relaxed);
                    }
                    result
                })
            })
            .collect();
        receivers.into_iter().map(thread::ScopedJoinHandle::join).collect::<Vec<_>>()
    });
    // All at once: one that takes its time must not take the others'.
    destinations.values().for_each(|destination| destination.close(SHUTDOWN_TIMEOUT));
    destinations.values().for_each(|destination| destination.finish());
    for result in ended {
        result.unwrap_or_else(|_| Err(Failure::new(Cause::Runtime, "a receiver's thread has panicked")))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn log_as_configured(telemetry: &Telemetry) -> Result<(), Failure> {
    let level = match telemetry.logs.level {
        LogLevel::Debug => tracing::Level::DEBUG,
        LogLevel::Info => tracing::Level::INFO,
        LogLevel::Warn => tracing::Level::WARN,
        LogLevel::Error => tracing::Level::ERROR,
    };
    let outputs = telemetry.logs.output_paths.iter().map(log_output).collect::<Result<Vec<_>, _>>()?;
    let writer = outputs
        .into_iter()
        .reduce(|first, second| BoxMakeWriter::new(first.and(second)))
        .unwrap_or_else(|| BoxMakeWriter::new(std::io::stderr));
    let builder = tracing_subscriber::fmt().with_max_level(level).with_target(false).with_writer(writer);
    match telemetry.logs.encoding {
        LogEncoding::Json => builder.json().init(),
        // Colours only where a terminal may be read.
        LogEncoding::Console => builder.with_ansi(std::io::stderr().is_terminal()).init(),
    }
    Ok(())
}

fn log_output(output: &LogOutput) -> Result<BoxMakeWriter, Failure> {
    Ok(match output {
        LogOutput::Stderr => BoxMakeWriter::new(std::io::stderr),
        LogOutput::Stdout => BoxMakeWriter::new(std::io::stdout),
        LogOutput::File(path) => {
            let file = File::options().append(true).create(true).open(path).map_err(|error| {
                Failure::new(Cause::Usage, format!("can't open the log {}", path.display())).because(error)
            })?;
            BoxMakeWriter::new(Mutex::new(file))
        }
    })
}

type Destinations = BTreeMap<ComponentId, Arc<Destination>>;

fn destinations(config: &Config) -> Result<Destinations, Failure> {
    let is_used =
        |id: &&ComponentId| config.pipelines.values().any(|pipeline| pipeline.exporters.contains(id));
    let used: Vec<_> = config.exporters.keys().filter(is_used).collect();
    // A share for each: one whose receiver is gone must not fill up what others need.
    let memory_bytes = Budget::of_queues(config) / used.len().max(1);
    used.into_iter()
        .map(|id| Ok((id.clone(), Arc::new(Destination::open(id, config, memory_bytes)?))))
        .collect()
}

/// The receivers that a pipeline uses, each with all exporters that it feeds.
fn used_receivers(config: &Config) -> Vec<(&ComponentId, &ProfilingReceiver, Vec<ComponentId>)> {
    config
        .receivers
        .iter()
        .map(|(id, receiver)| {
            let fed = config.pipelines.values().filter(|pipeline| pipeline.receivers.contains(id));
            let mut exporters: Vec<_> = fed.flat_map(|pipeline| pipeline.exporters.iter().cloned()).collect();
            exporters.sort();
            exporters.dedup();
            (id, receiver, exporters)
        })
        .filter(|(_, _, exporters)| !exporters.is_empty())
        .collect()
}

/// Runs one receiver until told to stop, as its error mode says also through failures.
fn profile(
    id: &str,
    receiver: &ProfilingReceiver,
    to: Vec<Arc<Destination>>,
    stop: &AtomicBool,
) -> Result<(), Failure> {
    loop {
        let failure = match sample(id, receiver, &to, stop) {
            Ok(()) => return Ok(()),
            Err(failure) => failure,
        };
        if receiver.error_mode == ErrorMode::Propagate {
            return Err(failure);
        }
        error!(receiver = id, "{failure}; trying again in {} s", RETRY.as_secs());
        let again = Instant::now() + RETRY;
        while Instant::now() < again {
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            thread::sleep(POLL);
        }
    }
}

fn sample(
    id: &str,
    receiver: &ProfilingReceiver,
    to: &[Arc<Destination>],
    stop: &AtomicBool,
) -> Result<(), Failure> {
    let budget = Budget::of(receiver);
    let mut storage = Storage::uninit();
    let mut sampler = Sampler::new(&mut storage, options(receiver, &budget))?;
    let namer = Namer::new(NamingOptions {
        native: receiver.symbolize.mode == SymbolMode::Local,
        kernel: receiver.symbolize.kernel,
        budget_bytes: budget.names_bytes,
    });
    let reporter = Reporter::new(namer, receiver.samples_per_second.get());
    let (outgoing, incoming) = sync_channel(BATCHES_WAITING_MAX);

    thread::scope(|threads| {
        let start_ns = monotonic_ns();
        sampler.start()?;
        info!(
            receiver = id,
            samples_per_second = receiver.samples_per_second.get(),
            map_bytes = sampler.profiler().map_bytes(),
            "profiling"
        );
        let interval = receiver.reporter_interval;
        threads.spawn(move || report(reporter, &incoming, interval, start_ns, to));
        let mut handover = Handover { outgoing, waiting: Vec::new(), dropped: 0 };
        let mut said_at = Instant::now();
        while !stop.load(Ordering::Relaxed) && !sampler.is_over() {
            sampler.poll(POLL, &mut handover.waiting);
            handover.pass_on(id);
            if said_at.elapsed() >= receiver.monitor_interval {
                said_at = Instant::now();
                debug!(receiver = id, "so far: {}", state(&sampler, handover.dropped));
            }
        }
        sampler.stop(&mut handover.waiting);
        handover.pass_all_on();
        info!(receiver = id, "profiling ended: {}", state(&sampler, handover.dropped));
        Ok(())
    })
}

/// What a receiver may take of memory, and for what.
struct Budget {
    tables_bytes: u64,
    names_bytes: usize,
}

impl Budget {
    /// A sixth of what all receivers may take, for encoded reports.
    fn of_queues(config: &Config) -> usize {
        let mib: u64 =
            config.receivers.values().map(|receiver| u64::from(receiver.memory_limit_mib.get())).sum();
        usize::try_from((mib << 20) / 6).unwrap_or(usize::MAX)
    }

    /// A third each for tables and for names; the rest is for queues, stacks and the programs themselves.
    fn of(receiver: &ProfilingReceiver) -> Self {
        let whole = u64::from(receiver.memory_limit_mib.get()) << 20;
        Self { tables_bytes: whole / 3, names_bytes: usize::try_from(whole / 3).unwrap_or(usize::MAX) }
    }
}

fn options(receiver: &ProfilingReceiver, budget: &Budget) -> SamplingOptions {
    SamplingOptions {
        scope: match &receiver.scope {
            sidewinder_config::Scope::Node => Scope::Node,
            sidewinder_config::Scope::Processes(pids) => {
                Scope::Processes(pids.iter().map(|pid| pid.get()).collect())
            }
        },
        samples_per_second: receiver.samples_per_second.get(),
        walk: None,
        frame_limit: receiver.unwind.max_frames.get(),
        kernel_frames: receiver.unwind.kernel,
        unwind_mode: receiver.unwind.mode,
        unwind_overrides: receiver.unwind.overrides.clone(),
        unwind_trust: match receiver.unwind.trust {
            UnwindTrust::Rows => Trust::Rows,
            UnwindTrust::Code => Trust::Code,
        },
        tables_bytes: budget.tables_bytes,
    }
}

/// From the thread that samples to the one that names and sends. Sampling never waits for it.
struct Handover {
    outgoing: SyncSender<Vec<Message>>,
    waiting: Vec<Message>,
    dropped: u64,
}

impl Handover {
    fn pass_on(&mut self, receiver: &str) {
        if self.waiting.is_empty() {
            return;
        }
        match self.outgoing.try_send(std::mem::take(&mut self.waiting)) {
            Ok(()) => {}
            Err(TrySendError::Full(waiting) | TrySendError::Disconnected(waiting)) => self.waiting = waiting,
        }
        if self.waiting.len() > MESSAGES_WAITING_MAX {
            // What events refer to is kept: later ones refer to it too.
            let before = self.waiting.len();
            self.waiting.retain(|message| !matches!(message, Message::Event(_)));
            let dropped = (before - self.waiting.len()) as u64;
            self.dropped += dropped;
            warn!(receiver, dropped, "naming can't keep up: events are dropped");
        }
    }

    fn pass_all_on(&mut self) {
        // The other side only ends after this one.
        let _ = self.outgoing.send(std::mem::take(&mut self.waiting));
    }
}

/// Names events and sends a report of them every so often, until no more come.
fn report(
    mut reporter: Reporter,
    incoming: &Receiver<Vec<Message>>,
    interval: Duration,
    mut start_ns: u64,
    to: &[Arc<Destination>],
) {
    let mut due = Instant::now() + interval;
    loop {
        let received = incoming.recv_timeout(due.saturating_duration_since(Instant::now()));
        let is_over = matches!(received, Err(RecvTimeoutError::Disconnected));
        for message in received.into_iter().flatten() {
            reporter.take(message);
        }
        if is_over || Instant::now() >= due {
            let end_ns = monotonic_ns();
            if let Some(report) = reporter.drain(start_ns..end_ns) {
                send(&report, to);
            }
            start_ns = end_ns;
            due = Instant::now() + interval;
        }
        if is_over {
            return;
        }
    }
}

fn send(report: &Report, to: &[Arc<Destination>]) {
    for destination in to {
        destination.send(report);
    }
}

/// What became of all interrupts so far, and of what was needed for it: `key=value` words, outcomes first.
fn state(sampler: &Sampler<'_>, dropped: u64) -> String {
    let (tally, profiler) = (sampler.tally(), sampler.profiler());
    let outcomes = tally.interrupts.outcomes.iter().map(|(outcome, count)| (outcome.label(), *count));
    let [by_table, by_frame_pointer, unproven] = profiler.frames_by_mode();
    let rest = [
        ("missed", tally.interrupts.missed()),
        ("interrupts_by_witness", tally.interrupts.due),
        ("idle_inferred", tally.interrupts.idle_inferred),
        ("events_exported", tally.events - dropped.min(tally.events)),
        ("events_dropped", dropped),
        ("stack_bodies_missing", tally.bodies_missing),
        ("walked_late", tally.walked_late),
        ("snapshots_refused", tally.snapshots_refused),
        ("steps_by_table", by_table),
        ("steps_by_frame_pointer", by_frame_pointer),
        ("steps_unproven", unproven),
        ("table_bytes", profiler.tables.loaded_bytes()),
        ("table_evictions", profiler.tables.evictions()),
    ];
    let words = outcomes.filter(|(_, count)| *count > 0).chain(rest);
    words.map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
}
