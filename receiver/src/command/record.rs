//! `sidewinder record`: profile for a while and write a file.

mod page;

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write as _};
use std::mem;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use serde_json::json;
use sidewinder_bpf::{CpuList, Opener, Storage, monotonic_ns};
use sidewinder_config::TraceContext;
use sidewinder_kind::Kind;
use sidewinder_otlp::Report;
use sidewinder_render::{Form, Profile, TableOptions, guesses};
use tracing::warn;

use self::page::Page;
use super::launch::{CommandEnd, Launched};
use super::{Ended, chosen, log_to_stderr, print_all, stop_flag_in_terminal, terminal_columns};
use crate::cli::RecordArgs;
use crate::collect::{Circumstances, Collection, outcomes};
use crate::every::Every;
use crate::exit::{Cause, Failure};
use crate::import;
use crate::live::Shown;
use crate::memory::WORKING_SET_BYTES_MAX;
use crate::naming::{Namer, Naming, NamingOptions};
use crate::output::{Format, Output};
use crate::privilege;
use crate::refusals::RefusedFiles;
use crate::report::Reporter;
use crate::report_queue::FLUSH_INTERVAL;
use crate::sampling::debug_file::DebugRoots;
use crate::sampling::feed::Message;
use crate::sampling::scope::Scope;
use crate::sampling::{Sampler, SamplingError, SamplingOptions, Tally};
use crate::terminal::{is_coloured, tell};

/// How often the rings are drained, and progress is shown.
const POLL: Duration = Duration::from_millis(250);
/// How often it is looked whether the same CPUs are online.
const LOOK_AT_CPUS: Duration = Duration::from_secs(1);
/// For symbol tables, names, and what is known of debug information.
const NAMES_BYTES: usize = 32 << 20;

pub(crate) fn record(args: RecordArgs) -> Ended {
    log_to_stderr(if args.quiet { "error" } else { "warn" });
    let is_for_command = !args.command.is_empty();
    record_target(&args).map_err(|failure| match failure.cause {
        // Other codes are the command's own.
        Cause::Runtime | Cause::Privilege | Cause::Usage if is_for_command => {
            failure.with_cause(Cause::RecordFailed)
        }
        _ => failure,
    })
}

/// The span, or the trace, inside of which events are wanted; all of them where neither is given.
#[derive(Clone, Copy)]
struct Wanted {
    span: Option<[u8; 8]>,
    trace: Option<[u8; 16]>,
}

impl Wanted {
    fn admits(self, message: &Message) -> bool {
        let Message::Event(event) = message else { return true };
        let (span, trace) = (event.span.map(|link| link.span_id), event.span.map(|link| link.trace_id));
        (self.span.is_none() || self.span == span) && (self.trace.is_none() || self.trace == trace)
    }
}

/// Where events go, by the form of the output.
enum Sink {
    Report(Box<Reporter>),
    Profile(Box<Collection>, Form),
}

impl Sink {
    /// Takes all messages that are wanted, until the queue is closed, and tees them to the page. The queue has no bound: it is
    /// small beside what a recording keeps.
    fn take_all(&mut self, incoming: Receiver<Vec<Message>>, wanted: Wanted, shown: Option<&Shown>) {
        for message in incoming.into_iter().flatten().filter(|message| wanted.admits(message)) {
            if let Some(shown) = shown {
                shown.tee(&message, self.naming());
            }
            self.take(message);
        }
        if let Some(shown) = shown {
            shown.end();
        }
    }

    fn naming(&mut self) -> Naming<'_> {
        match self {
            Self::Report(reporter) => reporter.naming(),
            Self::Profile(collection, _) => collection.naming(),
        }
    }

    fn take(&mut self, message: Message) {
        match self {
            Self::Report(reporter) => reporter.take(message),
            Self::Profile(collection, _) => collection.take(message),
        }
    }
}

fn record_target(args: &RecordArgs) -> Ended {
    let debug_roots = Arc::new(DebugRoots::open::<&Path>([]));
    let opener = Opener::start().map_err(SamplingError::Thread)?;
    privilege::narrow(&opener).map_err(SamplingError::Thread)?;
    let namer = Namer::new(NamingOptions {
        native: true,
        kernel: !args.no_kernel,
        lines: true,
        inlines: true,
        budget_bytes: NAMES_BYTES,
        is_patient: true,
        debug_roots: Arc::clone(&debug_roots),
        opener: Some(opener.clone()),
    });
    let mut sink = match Format::of(&args.output, args.format)? {
        Format::Otlp => Sink::Report(Box::new(Reporter::new(namer, &[&[]], WORKING_SET_BYTES_MAX))),
        Format::Other(form) => Sink::Profile(Box::new(Collection::new(namer, kind(args))), form),
    };
    let output = Output::new(&args.output)?;
    let summary_output = args.summary_json.as_deref().map(Output::new).transpose()?;
    let stop = stop_flag_in_terminal()?;
    let page = args.ui.as_ref().map(|address| Page::serve(address, title(args), kind(args)));
    let mut page = page.transpose()?;

    let mut launched = if args.command.is_empty() { None } else { Some(Launched::stopped(&args.command)?) };
    let wanted = Wanted { span: args.span, trace: args.trace };
    // Reading symbols takes long, and sampling does not wait for it.
    let recorded = thread::scope(|threads| {
        let (outgoing, incoming) = channel();
        let shown = page.as_ref().map(|page| Arc::clone(&page.shown));
        let sink = &mut sink;
        threads.spawn(move || sink.take_all(incoming, wanted, shown.as_deref()));
        sample(args, launched.as_mut(), page.as_mut(), &stop, &outgoing, &debug_roots, opener)
    });
    let ended = launched.as_mut().map(Launched::end);
    let recorded = recorded?;
    if let Some(CommandEnd::NeverRan(code)) = ended {
        // It has said why, and nothing of it was recorded.
        return Ok(code);
    }

    let profile = write(args, sink, &recorded, &output, &stop)?;
    if let Some(output) = summary_output {
        output.write(&stop, |out| {
            let refused = debug_roots.refusals().counts();
            out.write_all(summary_json(&recorded, &refused, profile.as_ref()).as_bytes())
        })?;
    }
    Ok(match ended {
        Some(CommandEnd::ByItself(code)) => code,
        Some(CommandEnd::ByUs | CommandEnd::NeverRan(_)) | None => ExitCode::SUCCESS,
    })
}

/// What there is to say of a recording beside its events.
struct Recorded {
    tally: Tally,
    start: SystemTime,
    start_ns: u64,
    end_ns: u64,
    frames_by_mode: [u64; 3],
    depths: Vec<u64>,
    stacks_known_and_sent: (u64, u64),
    table_bytes: u64,
    table_evictions: u64,
    table_reloads: u64,
    map_bytes: u64,
}

fn sample(
    args: &RecordArgs,
    mut launched: Option<&mut Launched>,
    mut page: Option<&mut Page>,
    stop: &AtomicBool,
    sink: &Sender<Vec<Message>>,
    debug_roots: &Arc<DebugRoots>,
    opener: Opener,
) -> Result<Recorded, Failure> {
    let scope = match &launched {
        Some(launched) => Scope::from_pids([launched.pid()]),
        None => chosen(&args.pid, &args.comm).0,
    };
    let progress = Progress::new(args);
    progress.show("reading unwind tables");
    let mut storage = Storage::uninit();
    let tables_bytes = u64::from(args.table_budget_mib) << 20;
    let options = SamplingOptions {
        frame_limit: args.max_frames,
        kernel_frames: !args.no_kernel,
        unwind_mode: args.unwind.into(),
        trace_context: TraceContext {
            custom_labels: args.custom_labels,
            attributes: args.attribute.clone(),
            ..TraceContext::default()
        },
        ..SamplingOptions::for_people(scope, args.frequency, tables_bytes, debug_roots)
    };
    let options = if args.pid.is_empty() { options } else { options.for_running_processes() };
    let mut cpus = CpuList::online().ok();
    let (mut flushing, mut looking_at_cpus) = (Every::new(FLUSH_INTERVAL), Every::new(LOOK_AT_CPUS));
    let mut sampler = Sampler::new(&mut storage, options, opener)?;
    let (start, start_ns) = (SystemTime::now(), monotonic_ns());
    sampler.start()?;
    if let Some(launched) = &launched {
        launched.go()?;
    }

    let began = Instant::now();
    // The other side only ends after this one.
    let flush = |messages: &mut Vec<Message>| _ = sink.send(mem::take(messages));
    let mut messages = Vec::new();
    let mut has_ended = false;
    while !stop.load(Ordering::Relaxed) && !has_ended && !sampler.is_over() {
        let rest = args.duration.map_or(POLL, |whole| whole.saturating_sub(began.elapsed()));
        if rest.is_zero() {
            break;
        }
        sampler.poll(rest.min(POLL), &mut messages);
        if flushing.is_due() {
            flush(&mut messages);
        }
        if cpus.is_some() && looking_at_cpus.is_due() && cpus != CpuList::online().ok() {
            cpus = None;
            warn!("degraded: CPUs came or went: those that came are not recorded");
        }
        progress.show_tally(|| sampler.tally(), began.elapsed());
        if let Some(page) = &mut page {
            page.tell(|| sampler.tally());
        }
        has_ended = launched.as_mut().is_some_and(|launched| launched.has_ended());
    }
    let end_ns = monotonic_ns();
    sampler.stop(None, &mut messages);
    flush(&mut messages);
    progress.end();
    Ok(Recorded {
        tally: sampler.tally(),
        start,
        start_ns,
        end_ns,
        frames_by_mode: sampler.profiler().frames_by_mode(),
        depths: sampler.profiler().depths().to_vec(),
        stacks_known_and_sent: sampler.profiler().stacks_known_and_sent(),
        table_bytes: sampler.profiler().tables.loaded_bytes(),
        table_evictions: sampler.profiler().tables.evictions(),
        table_reloads: sampler.control_counts().table_reloads,
        map_bytes: sampler.profiler().map_bytes(),
    })
}

/// Returns what was written; for a report for OpenTelemetry, only where its table is wanted.
fn write(
    args: &RecordArgs,
    sink: Sink,
    recorded: &Recorded,
    output: &Output,
    stop: &AtomicBool,
) -> Result<Option<Profile>, Failure> {
    let progress = Progress::new(args);
    let profile = match sink {
        Sink::Report(mut reporter) => {
            let report = reporter.drain(recorded.start_ns..recorded.end_ns).pop().flatten();
            let report = report.ok_or_else(|| {
                Failure::new(Cause::Runtime, "no event was recorded, so nothing was written")
                    .then(why_empty(args))
            })?;
            output.write(stop, |out| out.write_all(report.as_bytes()))?;
            args.table.then(|| profile_of(&report, args, recorded)).transpose()?
        }
        Sink::Profile(collection, form) => {
            progress.show("naming functions");
            let duration = Duration::from_nanos(recorded.end_ns.saturating_sub(recorded.start_ns));
            let profile = collection.into_profile(Circumstances {
                title: title(args),
                start: recorded.start,
                start_ns: recorded.start_ns,
                duration,
                tally: &recorded.tally,
            });
            progress.end();
            output.write(stop, |out| sidewinder_render::write(&profile, form, out))?;
            Some(profile)
        }
    };
    summarize(args, profile.as_ref(), recorded);
    if let Some(profile) = profile.as_ref().filter(|_| args.table) {
        print_table(profile)?;
    }
    Ok(profile)
}

/// The profile that a report holds, for its table.
fn profile_of(report: &Report, args: &RecordArgs, recorded: &Recorded) -> Result<Profile, Failure> {
    let profile = import::of_report(&title(args), report.as_bytes())
        .map_err(|error| Failure::runtime("can't make a table of the profile", error))?;
    Ok(Profile { outcomes: outcomes(&recorded.tally), ..profile })
}

fn print_table(profile: &Profile) -> Result<(), Failure> {
    let is_coloured = is_coloured(&io::stdout());
    let options = TableOptions { is_coloured, columns: terminal_columns(), ..TableOptions::default() };
    print_all(&sidewinder_render::table(profile, options)).map(drop)
}

/// Says at the end what was recorded.
fn summarize(args: &RecordArgs, profile: Option<&Profile>, recorded: &Recorded) {
    if args.quiet {
        return;
    }
    match profile {
        Some(profile) => tell(format_args!("{}", sidewinder_render::summary(profile))),
        None => {
            for outcome in outcomes(&recorded.tally) {
                tell(format_args!("{:>10}  {}\n", outcome.count, outcome.name));
            }
        }
    }
    if profile.is_some_and(|profile| profile.samples.is_empty()) {
        tell(format_args!("no sample was taken\n  next: {}\n", why_empty(args)));
    }
    tell(format_args!("wrote {}\n", args.output.display()));
}

/// What to look at where nothing was recorded.
fn why_empty(args: &RecordArgs) -> &'static str {
    if args.span.is_some() || args.trace.is_some() {
        "see whether threads of the target say which span they are in, and were in this one just then: otlp/TRACES.md"
    } else if !args.comm.is_empty() {
        "see with `ps -e -o comm` whether a process of such a name runs; it counts when it uses a CPU"
    } else {
        "record for longer, or while what is profiled works: what waits uses no CPU"
    }
}

/// For programs: how every interrupt ended, and in which binaries callers were guessed.
fn summary_json(recorded: &Recorded, refused: &RefusedFiles, profile: Option<&Profile>) -> String {
    let mut counts = serde_json::Map::new();
    for (outcome, count) in &recorded.tally.interrupts.outcomes {
        counts.insert(outcome.label().to_owned(), json!(count));
    }
    counts.insert("missed".to_owned(), json!(recorded.tally.interrupts.missed()));
    let [by_table, by_frame_pointer, unproven] = recorded.frames_by_mode;
    let (known, sent) = recorded.stacks_known_and_sent;
    let classes = recorded.depths.iter().enumerate().filter(|(_, count)| **count > 0);
    let by_frames: serde_json::Map<_, _> =
        classes.map(|(class, count)| (format!(">={}", 1_u64 << class), json!(count))).collect();
    let guessed_in: Option<serde_json::Map<_, _>> = profile.map(|profile| {
        guesses(profile).into_iter().map(|of| (of.binary.to_owned(), json!(of.callers))).collect()
    });
    let summary = json!({
        "interrupts_by_witness": recorded.tally.interrupts.due,
        "outcomes": counts,
        "idle_inferred": recorded.tally.interrupts.idle_inferred,
        "events_exported": recorded.tally.events,
        "stack_bodies_missing": recorded.tally.bodies_missing,
        "walked_late": recorded.tally.deferred_walks,
        "snapshots_refused": recorded.tally.snapshots_refused,
        "duration_ns": recorded.end_ns.saturating_sub(recorded.start_ns),
        "steps": { "table": by_table, "frame_pointer": by_frame_pointer, "unproven": unproven },
        "guessed_in": guessed_in,
        "stacks": { "known": known, "sent": sent, "by_frames": by_frames },
        "tables": {
            "loaded_bytes": recorded.table_bytes,
            "evictions": recorded.table_evictions,
            "reloads": recorded.table_reloads,
        },
        "map_bytes": recorded.map_bytes,
        "files_refused": refused.by_reason().collect::<BTreeMap<_, _>>(),
    });
    format!("{summary:#}\n")
}

/// The kind of profile that is recorded.
fn kind(args: &RecordArgs) -> Kind {
    Kind::Cpu { samples_per_second: args.frequency }
}

fn title(args: &RecordArgs) -> String {
    if let Some(program) = args.command.first() {
        let words: Vec<_> = args.command.iter().map(|word| word.to_string_lossy()).collect();
        return if words.len() > 1 { words.join(" ") } else { program.to_string_lossy().into_owned() };
    }
    chosen(&args.pid, &args.comm).1
}

/// A line that tells how it goes, where somebody watches.
struct Progress {
    is_shown: bool,
}

impl Progress {
    fn new(args: &RecordArgs) -> Self {
        Self { is_shown: !args.quiet && io::stderr().is_terminal() }
    }

    fn show(&self, text: &str) {
        if self.is_shown {
            tell(format_args!("\r\u{1b}[2K{text} ..."));
        }
    }

    /// Asks for a tally, which means reading what the kernel counts, only where somebody sees it.
    fn show_tally(&self, tally: impl FnOnce() -> Tally, elapsed: Duration) {
        if !self.is_shown {
            return;
        }
        let tally = tally();
        let complete = tally.interrupts.outcomes.iter().find(|(outcome, _)| outcome.label() == "complete");
        let complete = complete.map_or(0, |(_, count)| *count);
        let share = if tally.events == 0 { 0.0 } else { 100.0 * complete as f64 / tally.events as f64 };
        let per_second = tally.events as f64 / elapsed.as_secs_f64().max(0.001);
        tell(format_args!(
            "\r\u{1b}[2K{:.0} s, {} samples, {per_second:.0} a second, {share:.1}% complete; Ctrl-C ends",
            elapsed.as_secs_f64(),
            tally.events
        ));
    }

    fn end(&self) {
        if self.is_shown {
            tell(format_args!("\r\u{1b}[2K"));
        }
    }
}
