//! `sidewinder top`: shows the busiest functions and processes in the terminal, live.
//!
//! Three threads: the main one samples and owns the sampler, one names events into the window, one draws and reads keys.

mod keys;
mod rows;
mod screen;

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use sidewinder_base::exit::{ExitCause, Failure};
use sidewinder_base::interval_timer::IntervalTimer;
use sidewinder_base::lock::lock;
use sidewinder_base::privilege;
use sidewinder_base::terminal::{print_notice, supports_colour};
use sidewinder_bpf::{Opener, Storage};
use sidewinder_debug_files::DebugRoots;
use sidewinder_kind::{Kind, KindSet};
use sidewinder_message::Message;
use sidewinder_naming::{Namer, NamingOptions, NamingStage, Update};
use sidewinder_render::OutcomeCount;
use sidewinder_report::ReportQueue;
use sidewinder_report::collect::WindowLimits;
use sidewinder_sampling::{Sampler, SamplingError, SamplingOptions, UserProbe};
use sidewinder_server::live::{LiveFeeds, LiveView};
use sidewinder_telemetry::stats::{ReceiverCounters, current_outcome_counts};
use sidewinder_vm::RuntimeSet;
use tracing::level_filters::LevelFilter;

use self::screen::Screen;
use super::{CommandResult, code, log_to_stderr, scope_from_args, stop_flag_in_terminal};
use crate::cli::TopArgs;

/// How often the rings are drained.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// How often outcomes are counted.
const OUTCOME_INTERVAL: Duration = Duration::from_secs(1);
/// The budget for symbol tables, names, and debug information.
const SYMBOL_BUDGET_BYTES: usize = 32 << 20;
/// The size of the window: the events that are shown, and those of the longest time range.
const WINDOW_BYTES: usize = 32 << 20;
/// The budget for unwind tables.
const TABLES_BYTES: u64 = 32 << 20;

pub(crate) fn top(args: &TopArgs) -> CommandResult {
    // Log lines would garble the screen.
    log_to_stderr(LevelFilter::OFF);
    if !(std::io::stdout().is_terminal() && std::io::stdin().is_terminal()) {
        return Err(Failure::new(
            ExitCause::Usage,
            "top needs a terminal; `sidewinder record --table` prints a table anywhere",
        ));
    }
    let (scope, title) = scope_from_args(&args.pid, &args.tid, &args.comm, args.no_children)?;
    let samples_per_second = args.frequency;
    let probes = UserProbe::list(&args.probe, false);
    let kind = match (args.event, probes.first()) {
        _ if args.off_cpu.is_some() => Kind::OffCpu,
        _ if args.wall.is_some() => Kind::Wall { samples_per_second },
        _ if args.lock_wakers => Kind::LockWakers,
        _ if args.locks.is_some() => Kind::LockDelay,
        (Some(event), _) => event.kind(samples_per_second),
        (None, Some(probe)) => Kind::Probe(probe.sampled),
        (None, None) => Kind::Cpu { samples_per_second },
    };
    let shown = KindSet::new(kind);
    let kinds = match kind {
        // What a waker's sample stands for is the wait that it ends.
        Kind::LockWakers => KindSet::new(Kind::LockDelay).with(kind),
        _ => shown.clone(),
    };
    let stop = stop_flag_in_terminal()?;
    let debug_roots = code::debug_roots(&args.debuginfod)?;
    let mut storage = Storage::uninit();
    let options = SamplingOptions {
        kernel_frames: !args.no_kernel,
        off_cpu_threshold: args.off_cpu.or(args.wall).unwrap_or_default(),
        lock_threshold: args.locks.unwrap_or_default(),
        probes,
        requires_probes: true,
        ..SamplingOptions::interactive(scope, kinds, TABLES_BYTES, &debug_roots)
    };
    let options =
        if args.pid.is_empty() && args.tid.is_empty() { options } else { options.for_running_processes() };
    let opener = Opener::start().map_err(SamplingError::Thread)?;
    privilege::restrict_opener(&opener).map_err(SamplingError::Thread)?;
    print_notice(format_args!("reading unwind tables ...\n"));
    let mut sampler = Sampler::new(&mut storage, options, opener.clone())?;
    sampler.start()?;

    let live = LiveView::new(Some(WindowLimits { max_age: screen::MAX_TIME_RANGE, max_bytes: WINDOW_BYTES }));
    let feeds = live.add_receiver("top", &title, &shown);
    let outcomes = Mutex::<Vec<OutcomeCount>>::default();
    let mut screen = Screen::new(title, kind, args, supports_colour(&std::io::stdout()));
    let stage = NamingStage::new(namer(args, debug_roots, opener));
    let drawn = thread::scope(|threads| {
        let (queue, incoming) = ReportQueue::new();
        threads.spawn(|| feed(incoming, &args.tid, stage, &feeds));
        // Sampling waits neither for naming nor for drawing.
        let drawing = threads.spawn(|| {
            let drawn = screen.run(&feeds, &outcomes, &stop);
            stop.store(true, Ordering::Relaxed);
            drawn
        });
        sample(&mut sampler, queue, kind, &outcomes, &stop);
        drawing.join().unwrap_or_else(|_| Err(std::io::Error::other("the thread that draws has panicked")))
    });
    drawn.map_err(|error| Failure::runtime("can't draw on the terminal", error))?;
    Ok(ExitCode::SUCCESS)
}

/// Samples until `stop` is set. When all sampled processes have ended, continues without sampling: the screen still shows the
/// newest events.
fn sample(
    sampler: &mut Sampler<'_>,
    mut queue: ReportQueue,
    kind: Kind,
    outcomes: &Mutex<Vec<OutcomeCount>>,
    stop: &AtomicBool,
) {
    let mut outcome_timer = IntervalTimer::new(OUTCOME_INTERVAL);
    while !stop.load(Ordering::Relaxed) {
        if sampler.is_finished() {
            queue.flush("top");
            thread::sleep(POLL_INTERVAL);
            continue;
        }
        sampler.poll(POLL_INTERVAL);
        queue.add(sampler.take_messages());
        queue.flush("top");
        if outcome_timer.is_due() {
            *lock(outcomes) =
                current_outcome_counts(&ReceiverCounters::from_sampler(sampler, queue.dropped()), kind);
        }
    }
    sampler.stop(None);
}

/// The names of the events that the screen shows.
fn namer(args: &TopArgs, debug_roots: Arc<DebugRoots>, opener: Opener) -> Namer {
    Namer::new(NamingOptions {
        native: true,
        kernel: !args.no_kernel,
        lines: false,
        inlines: true,
        hides_vm_internals: true,
        runtimes: RuntimeSet::ALL,
        source_maps: args.source_maps,
        budget_bytes: SYMBOL_BUDGET_BYTES,
        has_no_time_limit: false,
        debug_roots,
        opener: Some(opener),
    })
}

/// Feeds the screen with the events of some threads, or of all if `tids` is empty.
fn feed(incoming: Receiver<Vec<Message>>, tids: &[u32], mut stage: NamingStage, feeds: &LiveFeeds) {
    for messages in incoming {
        for message in messages {
            let Some(update) = stage.read(message) else { continue };
            if !matches!(&update, Update::Event(event) if !tids.is_empty() && !tids.contains(&event.tid)) {
                feeds.tee(&update, &mut stage);
            }
        }
        stage.forget_gone();
    }
}
