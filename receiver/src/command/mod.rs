//! The commands of the command line, one module each, and what they share.

pub(crate) mod annotate;
pub(crate) mod check;
mod code;
pub(crate) mod completions;
pub(crate) mod configuration;
pub(crate) mod inspect;
pub(crate) mod launch;
mod named_files;
pub(crate) mod record;
pub(crate) mod run;
pub(crate) mod status;
mod tables;
pub(crate) mod top;
pub(crate) mod view;

use std::env;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::CommandFactory;
use sidewinder_base::exit::{ExitCause, Failure};
use sidewinder_base::terminal::supports_colour;
use sidewinder_process::status_numbers;
use sidewinder_sampling::SamplingScope;
use sidewinder_telemetry::log_fields::EscapedFields;
use sidewinder_text::ExternalText;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::cli::{Cli, UnwindArg};

type CommandResult = Result<ExitCode, Failure>;

/// Prints a command's result on standard output.
fn print_all(text: &str) -> CommandResult {
    print_result(io::stdout().write_all(text.as_bytes()))
}

/// The exit code of a command after it has printed its result. A closed pipe is not an error.
fn print_result(result: io::Result<()>) -> CommandResult {
    is_read(result).map(|_| ExitCode::SUCCESS)
}

/// Whether somebody reads what was printed with this result: false if the reader has closed the pipe, as `head` does.
fn is_read(printed: io::Result<()>) -> Result<bool, Failure> {
    match printed.and_then(|()| io::stdout().flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::runtime("can't print", error)),
        Ok(()) => Ok(true),
    }
}

/// Writes manual pages for every command that is not hidden.
pub(crate) fn write_manual(folder: &Path) -> CommandResult {
    std::fs::create_dir_all(folder).and_then(|()| clap_mangen::generate_to(Cli::command(), folder)).map_err(
        |error| {
            Failure::runtime(format!("can't write into {}", ExternalText::new(folder)), error)
                .with_next_step("choose a directory that you can write to")
        },
    )?;
    Ok(ExitCode::SUCCESS)
}

/// The processes that `--pid` and `--comm` select, and a title for them; with their descendants, unless `no_children`. Without
/// either option: all processes.
fn scope_from_args(
    pids: &[u32],
    tids: &[u32],
    names: &[String],
    no_children: bool,
) -> Result<(SamplingScope, String), Failure> {
    let list = |ids: &[u32]| ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    if !tids.is_empty() {
        let processes: Vec<u32> = tids.iter().map(|tid| process_of_thread(*tid)).collect::<Result<_, _>>()?;
        // Of their children, no thread was selected.
        return Ok((
            SamplingScope::from_pids(processes).without_children(),
            format!("thread {}", list(tids)),
        ));
    }
    let (scope, title) = match (pids, names) {
        ([], []) => return Ok((SamplingScope::whole_node(), "all processes".to_owned())),
        ([], names) => (SamplingScope::from_names(names), format!("processes named {}", names.join(", "))),
        (pids, _) => (SamplingScope::from_pids(pids.iter().copied()), format!("process {}", list(pids))),
    };
    Ok(if no_children {
        (scope.without_children(), format!("{title}, without children"))
    } else {
        (scope, title)
    })
}

/// The PID of the process that a thread belongs to.
fn process_of_thread(tid: u32) -> Result<u32, Failure> {
    let status = std::fs::read(format!("/proc/{tid}/status")).unwrap_or_default();
    status_numbers(&status, b"Tgid:").next().ok_or_else(|| {
        Failure::new(ExitCause::Runtime, format!("there is no thread {tid}"))
            .with_next_step("`ps -eLf` lists threads: their IDs are in the column LWP")
    })
}

impl From<UnwindArg> for sidewinder_config::UnwindMode {
    fn from(mode: UnwindArg) -> Self {
        match mode {
            UnwindArg::Auto => Self::Auto,
            UnwindArg::FramePointers => Self::FramePointers,
            UnwindArg::Tables => Self::Tables,
        }
    }
}

/// A flag that SIGINT and SIGTERM set. A second signal ends the process at once.
fn stop_flag() -> Result<Arc<AtomicBool>, Failure> {
    stop_flag_for(&[SIGINT, SIGTERM])
}

/// The same for interactive commands: they also end when their terminal is closed, unless `nohup` or the like has them
/// ignore SIGHUP.
fn stop_flag_in_terminal() -> Result<Arc<AtomicBool>, Failure> {
    let signals = [SIGINT, SIGTERM, SIGHUP];
    stop_flag_for(if is_signal_ignored(SIGHUP) { &signals[..2] } else { &signals })
}

/// Whether this process ignores a signal, which is inherited from its parent.
fn is_signal_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask & (1 << (signal - 1)) != 0
}

fn stop_flag_for(signals: &[i32]) -> Result<Arc<AtomicBool>, Failure> {
    let flag = Arc::new(AtomicBool::new(false));
    for &signal in signals {
        signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&flag))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&flag)))
            .map_err(|error| Failure::runtime("can't install signal handlers", error))?;
    }
    Ok(flag)
}

/// The width of the terminal in columns; 100 without a terminal.
fn terminal_columns() -> usize {
    rustix::termios::tcgetwinsize(io::stdout())
        .ok()
        .map(|size| usize::from(size.ws_col))
        .filter(|columns| *columns > 0)
        .unwrap_or(100)
}

/// Sets up logging to standard error, as text. `SIDEWINDER_LOG` overrides the level, for example with `debug` or
/// `warn,sidewinder_bpf=trace`.
fn log_to_stderr(default_level: LevelFilter) {
    let from_environment = env::var("SIDEWINDER_LOG").ok().and_then(|text| text.parse::<Targets>().ok());
    let filter = from_environment.unwrap_or_else(|| Targets::new().with_default(default_level));
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(io::stderr)
        .with_ansi(supports_colour(&io::stderr()))
        .with_target(false)
        .fmt_fields(EscapedFields)
        // If standard error is closed, errors of logging can't be printed either.
        .log_internal_errors(false);
    // If logging is set up already, it stays as it is.
    let _ = tracing_subscriber::registry().with(lines.with_filter(filter)).try_init();
}
