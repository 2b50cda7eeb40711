//! The sampling of a recording, on the main thread.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant, SystemTime};

use sidewinder_base::exit::Failure;
use sidewinder_base::interval_timer::IntervalTimer;
use sidewinder_bpf::{FrameCounts, Opener, Storage, monotonic_ns, online_cpus};
use sidewinder_message::Message;
use sidewinder_process::ProcessKey;
use sidewinder_report::FLUSH_INTERVAL;
use sidewinder_sampling::{Sampler, SamplingOptions, SamplingTally};
use tracing::warn;

use super::page::LivePage;
use super::progress::Progress;
use crate::cli::RecordArgs;
use crate::command::launch::LaunchedCommand;

/// How often the rings are drained, and progress is shown.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// How often the set of online CPUs is checked for changes.
const CPU_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Statistics of a recording, apart from its events.
pub(super) struct RecordingStats {
    pub(super) tally: SamplingTally,
    pub(super) start: SystemTime,
    pub(super) start_ns: u64,
    pub(super) end_ns: u64,
    pub(super) frames: FrameCounts,
    pub(super) stack_depths: Vec<u64>,
    pub(super) stacks_known: u64,
    pub(super) stacks_sent: u64,
    pub(super) tables_bytes: u64,
    pub(super) tables_evictions: u64,
    pub(super) tables_reloads: u64,
    pub(super) maps_bytes: u64,
    /// The processes whose runtime's state we may not read.
    pub(super) denied_runtimes: Vec<ProcessKey>,
}

/// Samples until the recording ends, and sends what was sampled to `sink`.
pub(super) fn sample(
    args: &RecordArgs,
    options: SamplingOptions,
    mut launched: Option<&mut LaunchedCommand>,
    mut page: Option<&mut LivePage>,
    stop: &AtomicBool,
    sink: &Sender<Vec<Message>>,
    opener: Opener,
) -> Result<RecordingStats, Failure> {
    let progress = Progress::new(args);
    progress.show("reading unwind tables");
    let mut storage = Storage::uninit();
    let mut cpus = online_cpus().ok();
    let (mut flush_timer, mut cpu_timer) =
        (IntervalTimer::new(FLUSH_INTERVAL), IntervalTimer::new(CPU_CHECK_INTERVAL));
    let mut sampler = Sampler::new(&mut storage, options, opener)?;
    let mut has_ended = false;
    if let Some(delay) = args.delay {
        progress.show("waiting to start");
        has_ended = follow(&mut sampler, delay, launched.as_deref_mut(), stop)?;
    }
    let (start, start_ns) = (SystemTime::now(), monotonic_ns());
    sampler.start()?;
    if let Some(launched) = launched.as_ref().filter(|_| args.delay.is_none()) {
        launched.resume()?;
    }

    let began = Instant::now();
    // The receiving thread ends only after the sender is dropped.
    let flush = |sampler: &mut Sampler<'_>| _ = sink.send(sampler.take_messages());
    while !stop.load(Ordering::Relaxed) && !has_ended && !sampler.is_finished() {
        let remaining =
            args.duration.map_or(POLL_INTERVAL, |duration| duration.saturating_sub(began.elapsed()));
        if remaining.is_zero() {
            break;
        }
        sampler.poll(remaining.min(POLL_INTERVAL));
        if flush_timer.is_due() {
            flush(&mut sampler);
        }
        if cpus.is_some() && cpu_timer.is_due() && cpus != online_cpus().ok() {
            cpus = None;
            warn!("degraded: CPUs were added or removed; added ones are not recorded");
        }
        progress.show_tally(|| sampler.tally(), began.elapsed());
        if let Some(page) = &mut page {
            page.update_outcomes(|| sampler.tally());
        }
        has_ended = launched.as_mut().is_some_and(|launched| launched.has_ended());
    }
    // Its processes are seen to end a moment before it can be waited for: it isn't ended by us then.
    if let Some(launched) = launched.filter(|_| sampler.is_finished()) {
        launched.wait_briefly();
    }
    let end_ns = sampler.stop(None);
    flush(&mut sampler);
    progress.end();
    Ok(RecordingStats {
        tally: sampler.tally(),
        start,
        start_ns,
        end_ns,
        frames: sampler.profiler().frames(),
        stack_depths: sampler.profiler().stack_depths().to_vec(),
        stacks_known: sampler.profiler().stacks_known(),
        stacks_sent: sampler.profiler().stacks_sent(),
        tables_bytes: sampler.profiler().tables.loaded_bytes(),
        tables_evictions: sampler.profiler().tables.evictions(),
        tables_reloads: sampler.control_counts().tables_reloads,
        maps_bytes: sampler.profiler().map_bytes() + sampler.control_counts().read_map_bytes,
        denied_runtimes: sampler.denied_runtimes(),
    })
}

/// Follows the processes for a time in which nothing is sampled; a command begins with it. Returns whether the command has ended.
fn follow(
    sampler: &mut Sampler<'_>,
    delay: Duration,
    mut launched: Option<&mut LaunchedCommand>,
    stop: &AtomicBool,
) -> Result<bool, Failure> {
    sampler.hold()?;
    if let Some(launched) = &launched {
        launched.resume()?;
    }
    let until = Instant::now() + delay;
    let mut has_ended = false;
    while let Some(left) = until.checked_duration_since(Instant::now())
        && !(has_ended || stop.load(Ordering::Relaxed) || sampler.is_finished())
    {
        sampler.poll(left.min(POLL_INTERVAL));
        has_ended = launched.as_mut().is_some_and(|launched| launched.has_ended());
    }
    Ok(has_ended)
}
