//! `sidewinder record`: profiles for a while, or while a command runs, and writes a file.
//!
//! The main thread samples, and owns the sampler; a second one names events and collects them.

mod empty;
mod gaps;
mod outputs;
mod page;
mod progress;
mod sample;
mod sink;
mod summary;

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use sidewinder_base::exit::{ExitCause, Failure};
use sidewinder_base::memory::WORKING_SET_BYTES_MAX;
use sidewinder_base::privilege;
use sidewinder_base::terminal::print_notice;
use sidewinder_bpf::Opener;
use sidewinder_config::TraceContext;
use sidewinder_debug_files::DebugRoots;
use sidewinder_debug_files::debuginfod::Debuginfod;
use sidewinder_kind::{Kind, KindSet};
use sidewinder_naming::{Namer, NamingOptions, NamingStage};
use sidewinder_otlp::Report;
use sidewinder_render::{NameStyle, Profile, ProfileFormat, ReadError};
use sidewinder_report::Reporter;
use sidewinder_report::collect::{ProfileCollector, RecordingMetadata};
use sidewinder_report::import::{self, ImportError};
use sidewinder_sampling::{SamplingError, SamplingOptions, SamplingScope, UserProbe};
use sidewinder_telemetry::stats::outcome_counts;
use sidewinder_vm::RuntimeSet;
use tracing::level_filters::LevelFilter;

use self::gaps::{GapSamples, NameGaps};
use self::outputs::Outputs;
use self::page::LivePage;
use self::progress::Progress;
use self::sample::{RecordingStats, sample};
use self::sink::{CollectedEvents, EventFilter, EventSink};
use self::summary::{log_summary, summary_json};
use super::launch::{CommandExit, LaunchedCommand};
use super::tables::print_tables;
use super::{CommandResult, code, log_to_stderr, scope_from_args, stop_flag_in_terminal};
use crate::cli::RecordArgs;
use crate::event_arg::kinds_of_events;
use crate::output::{Output, OutputFormat};

/// The budget for symbol tables, names, and debug information.
const SYMBOL_BUDGET_BYTES: usize = 32 << 20;

pub(crate) fn record(args: RecordArgs) -> CommandResult {
    log_to_stderr(if args.quiet { LevelFilter::ERROR } else { LevelFilter::WARN });
    let is_for_command = !args.command.is_empty();
    record_target(&args).map_err(|failure| match failure.cause {
        // Other exit codes would be taken for those of the command.
        ExitCause::Runtime | ExitCause::Privilege | ExitCause::Usage if is_for_command => {
            failure.with_cause(ExitCause::RecordFailed)
        }
        _ => failure,
    })
}

fn runtimes(args: &RecordArgs) -> RuntimeSet {
    if args.no_interpreters { RuntimeSet::NONE } else { RuntimeSet::ALL }
}

fn record_target(args: &RecordArgs) -> CommandResult {
    let debug_roots = code::debug_roots(&args.debuginfod)?;
    let opener = Opener::start().map_err(SamplingError::Thread)?;
    privilege::restrict_opener(&opener).map_err(SamplingError::Thread)?;
    let stage = NamingStage::new(Namer::new(NamingOptions {
        native: true,
        kernel: !args.no_kernel,
        lines: true,
        inlines: true,
        hides_vm_internals: !args.vm_internals,
        runtimes: runtimes(args),
        source_maps: args.source_maps,
        budget_bytes: SYMBOL_BUDGET_BYTES,
        has_no_time_limit: true,
        debug_roots: Arc::clone(&debug_roots),
        opener: Some(opener.clone()),
    }));
    let probes = UserProbe::list(&args.probe, false);
    let kinds = kinds(args, &probes)?;
    let format = OutputFormat::from_path(&args.output, args.format)?;
    let mut sink = match format {
        OutputFormat::Otlp => {
            let reporter = Reporter::new(&[&[]], WORKING_SET_BYTES_MAX, usize::MAX);
            EventSink::report(stage, reporter, &kinds, debug_roots.debuginfod().is_some())
        }
        OutputFormat::Rendered(form) => EventSink::profile(stage, ProfileCollector::new(&kinds), form),
    };
    let annotator = code::annotator(&args.code, Some(format), args.ui.is_some(), Arc::clone(&debug_roots))?;
    let outputs = Outputs::new(&args.output, &kinds, format, Arc::clone(&annotator))?;
    let summary_output = args.summary_json.as_deref().map(Output::new).transpose()?;
    let title = title(args)?;
    let stop = stop_flag_in_terminal()?;
    let page = args.ui.as_ref().map(|address| LivePage::serve(address, &title, &kinds, &annotator));
    let mut page = page.transpose()?;

    let mut launched =
        if args.command.is_empty() { None } else { Some(LaunchedCommand::spawn_stopped(&args.command)?) };
    let scope = match &launched {
        Some(launched) if args.no_children => SamplingScope::from_command(launched.pid()).without_children(),
        Some(launched) => SamplingScope::from_command(launched.pid()),
        None => scope_from_args(&args.pid, &args.tid, &args.comm, args.no_children)?.0,
    };
    let options = sampling_options(args, scope, kinds.clone(), probes, &debug_roots);
    let filter = EventFilter { span: args.span, trace: args.trace, tids: &args.tid };
    // Reading symbols takes long: it has a thread of its own, so that sampling does not wait for it.
    let mut gap_samples = GapSamples::default();
    let recorded = thread::scope(|threads| {
        let (outgoing, incoming) = channel();
        let feeds = page.as_ref().map(|page| page.feeds.clone());
        let (sink, gap_samples) = (&mut sink, &mut gap_samples);
        threads.spawn(move || sink.run(incoming, filter, feeds.as_ref(), gap_samples));
        sample(args, options, launched.as_mut(), page.as_mut(), &stop, &outgoing, opener)
    });
    let ended = launched.as_mut().map(LaunchedCommand::terminate);
    let recorded = recorded?;
    if let Some(CommandExit::FailedToExec(code)) = ended {
        // The child has printed the error, and there is nothing to write.
        return Ok(code);
    }

    let progress = Progress::new(args);
    match debug_roots.debuginfod().map_or(0, Debuginfod::pending) {
        0 => progress.show("naming functions"),
        files => progress.show(&format!("downloading debug information of {files} files")),
    }
    sink.finish_naming();
    let gaps = sink.name_gaps(&gap_samples, &recorded, debug_roots.debuginfod().is_some());
    let source_maps = sink.stage.name_counts().source_maps;
    if args.source_maps && !args.quiet {
        print_notice(format_args!("source maps of scripts: {source_maps}\n"));
    }
    let written = write(args, (&title, &kinds), sink, &recorded, &gaps, &outputs, &stop)?;
    if let Some(servers) = debug_roots.debuginfod().filter(|_| !args.quiet) {
        print_notice(format_args!("{}\n", servers.counts()));
    }
    if let Some(output) = summary_output {
        output.write(&stop, |out| {
            let refused = debug_roots.refusals().counts();
            let profiles = written.as_deref().unwrap_or_default();
            out.write_all(summary_json(&recorded, &refused, &source_maps, &gaps, profiles).as_bytes())
        })?;
    }
    let failure = written.is_none().then(|| empty::failure(args, &recorded));
    match (ended, failure) {
        // The exit code is the command's, also if it was too short to be sampled.
        (Some(CommandExit::Exited(code)), failure) => {
            if let Some(failure) = failure {
                print_notice(format_args!("sidewinder: {failure}\n"));
            }
            Ok(code)
        }
        (_, Some(failure)) => Err(failure),
        (_, None) => Ok(ExitCode::SUCCESS),
    }
}

fn sampling_options(
    args: &RecordArgs,
    scope: SamplingScope,
    kinds: KindSet,
    probes: Vec<UserProbe>,
    debug_roots: &Arc<DebugRoots>,
) -> SamplingOptions {
    let tables_bytes = u64::from(args.table_budget_mib) << 20;
    let options = SamplingOptions {
        frame_limit: args.max_frames,
        kernel_frames: !args.no_kernel,
        runtimes: runtimes(args),
        unwind_mode: args.unwind.into(),
        trace_context: TraceContext {
            custom_labels: args.custom_labels,
            attributes: args.attribute.clone(),
            ..TraceContext::default()
        },
        off_cpu_threshold: args.off_cpu.or(args.wall).unwrap_or_default(),
        // A command is started after the profiler.
        lists_first_waits: args.command.is_empty(),
        lock_threshold: args.locks.unwrap_or_default(),
        probes,
        requires_probes: true,
        sampled_cpus: args.cpus.clone(),
        ..SamplingOptions::interactive(scope, kinds, tables_bytes, debug_roots)
    };
    if args.pid.is_empty() && args.tid.is_empty() { options } else { options.for_running_processes() }
}

/// Writes the output. Returns the profiles that were written; for OTLP, only if a table of it is requested. `None`: there is no
/// event, and nothing was written.
fn write(
    args: &RecordArgs,
    (title, kinds): (&str, &KindSet),
    sink: EventSink,
    recorded: &RecordingStats,
    gaps: &NameGaps,
    outputs: &Outputs,
    stop: &AtomicBool,
) -> Result<Option<Vec<Profile>>, Failure> {
    let progress = Progress::new(args);
    let mut totals_of_report = Vec::new();
    let EventSink { mut stage, collected } = sink;
    let (mut profiles, written) = match collected {
        CollectedEvents::Report { mut reporter, totals, .. } => {
            totals_of_report = totals;
            let report = reporter.drain(recorded.start_ns..recorded.end_ns, &mut stage).concat().pop();
            let Some(report) = report else {
                log_summary(args, &[], &totals_of_report, recorded, gaps, &[]);
                return Ok(None);
            };
            outputs.first().write(stop, |out| out.write_all(report.as_bytes()))?;
            // Not those that are sampled: a profile of wall time consists of samples of two other kinds.
            let kinds = kinds.iter().filter(|_| args.table);
            let profile = |kind| profile_from_report(&report, kind, title, recorded, args);
            (kinds.map(profile).collect::<Result<Vec<_>, _>>()?, vec![outputs.first()])
        }
        CollectedEvents::Profile(collector, format) => {
            progress.show("naming functions");
            let duration = Duration::from_nanos(recorded.end_ns.saturating_sub(recorded.start_ns));
            let recording = RecordingMetadata {
                title: title.to_owned(),
                start: recorded.start,
                start_ns: recorded.start_ns,
                duration,
                outcomes: &|kind| outcome_counts(&recorded.tally, kind),
            };
            let mut profiles = collector.into_profiles(&mut stage, &recording);
            if profiles.iter().all(|profile| profile.total_count() == 0) {
                progress.end();
                log_summary(args, &profiles, &totals_of_report, recorded, gaps, &[]);
                return Ok(None);
            }
            for profile in &mut profiles {
                profile.is_per_thread = args.per_thread;
            }
            let mut code_summary = String::new();
            if format == ProfileFormat::Html {
                progress.show("reading code");
                code_summary = outputs.annotate(&args.code, &mut profiles);
            }
            progress.end();
            if !args.quiet {
                print_notice(format_args!("{code_summary}"));
            }
            let names = args.names.map_or(format.default_names(), NameStyle::from);
            let written = outputs.write(&profiles, (format, names), stop)?;
            (profiles, written)
        }
    };
    log_summary(args, &profiles, &totals_of_report, recorded, gaps, &written);
    if args.table {
        print_tables(&mut profiles, &args.table_layout, args.names.map(NameStyle::from).unwrap_or_default())?;
    }
    Ok(Some(profiles))
}

/// The profile of a kind in a report, for its table. It has no samples if the report has none of this kind.
fn profile_from_report(
    report: &Report,
    kind: Kind,
    title: &str,
    recorded: &RecordingStats,
    args: &RecordArgs,
) -> Result<Profile, Failure> {
    let sample_type = kind.descriptor().value_type.name;
    let profile = match import::from_report_bytes(title, report.as_bytes(), Some(sample_type)) {
        Err(ImportError::Other(ReadError::NoSuchType { .. })) => Profile::of_kind(title.to_owned(), kind),
        read => read.map_err(|error| Failure::runtime("can't make a table of the profile", error))?,
    };
    let outcomes = outcome_counts(&recorded.tally, kind);
    Ok(Profile { outcomes, is_per_thread: args.per_thread, ..profile })
}

/// The kinds of profile that are recorded.
fn kinds(args: &RecordArgs, probes: &[UserProbe]) -> Result<KindSet, Failure> {
    let kinds = kinds_of_events(&args.events, probes, args.frequency).map_err(|reason| {
        Failure::new(ExitCause::Usage, reason).with_next_step("give each event once, with -e")
    })?;
    let wall = args.wall.map(|_| Kind::Wall { samples_per_second: args.frequency });
    let kinds = match (wall, args.off_cpu) {
        (Some(wall), _) if args.events.is_empty() && probes.is_empty() => KindSet::new(wall),
        (Some(wall), _) => kinds.with(wall),
        (None, Some(_)) => kinds.with(Kind::OffCpu),
        (None, None) => kinds,
    };
    Ok(match (args.locks, args.lock_wakers) {
        (Some(_), true) => kinds.with_lock_wakers(),
        (Some(_), false) => kinds.with_locks(),
        (None, _) => kinds,
    })
}

/// What is recorded, in words.
fn title(args: &RecordArgs) -> Result<String, Failure> {
    if let Some(program) = args.command.first() {
        let words: Vec<_> = args.command.iter().map(|word| word.to_string_lossy()).collect();
        return Ok(if words.len() > 1 { words.join(" ") } else { program.to_string_lossy().into_owned() });
    }
    scope_from_args(&args.pid, &args.tid, &args.comm, args.no_children).map(|(_, title)| title)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::{Cli, Command};

    #[test]
    fn wall_time_replaces_cpu_time_and_nothing_else_that_is_asked_for() {
        let names = |options: &[&str]| {
            let line = [&["sidewinder", "record", "-a"], options].concat();
            let Some(Command::Record(args)) = Cli::parse_from(line).command else {
                panic!("not a recording")
            };
            let kinds = kinds(&args, &UserProbe::list(&args.probe, false)).unwrap();
            kinds.iter().map(|kind| kind.descriptor().value_type.name).collect::<Vec<_>>()
        };
        assert_eq!(names(&["--wall"]), ["wall"]);
        assert_eq!(names(&["--wall", "--locks"]), ["wall", "contentions", "delay"]);
        assert_eq!(names(&["--locks", "--lock-wakers"]), ["samples", "contentions", "delay", "waker_delay"]);
        assert_eq!(names(&["--wall", "-e", "page-faults"]), ["wall", "faults"]);
        assert_eq!(names(&["--wall", "--probe", "uprobe:/bin/a:f"]), ["wall", "uprobe_f"]);
        assert_eq!(names(&["--off-cpu"]), ["samples", "off_cpu"]);
    }
}
