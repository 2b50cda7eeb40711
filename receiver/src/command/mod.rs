//! What the command line can ask for: a module for each command.

pub(crate) mod check;
pub(crate) mod configuration;
pub(crate) mod inspect;
pub(crate) mod launch;
pub(crate) mod record;
pub(crate) mod run;
pub(crate) mod status;
pub(crate) mod top;
pub(crate) mod view;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::CommandFactory;
use clap_complete::Shell;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::cli::{Cli, UnwindArg};
use crate::exit::Failure;
use crate::sampling::scope::Scope;
use crate::terminal::is_coloured;

/// What to do where a file can't be written.
const ELSEWHERE: &str = "choose another place with -o FILE: a folder that exists, on a disk with room";

type Ended = Result<ExitCode, Failure>;

pub(crate) fn completions(shell: Shell) -> Ended {
    clap_complete::generate(shell, &mut Cli::command(), "sidewinder", &mut std::io::stdout());
    Ok(ExitCode::SUCCESS)
}

/// Manual pages for every command that is not hidden.
pub(crate) fn manual(folder: &Path) -> Ended {
    std::fs::create_dir_all(folder).and_then(|()| clap_mangen::generate_to(Cli::command(), folder)).map_err(
        |error| {
            Failure::runtime(format!("can't write into {}", folder.display()), error)
                .then("choose a folder that you may write to")
        },
    )?;
    Ok(ExitCode::SUCCESS)
}

/// The processes that `--pid` and `--comm` choose, and what to call them; where there is neither, every process.
fn chosen(pids: &[u32], names: &[String]) -> (Scope, String) {
    match (pids, names) {
        ([], []) => (Scope::node(), "all processes".to_owned()),
        ([], names) => (Scope::of_names(names), format!("processes named {}", names.join(", "))),
        (pids, _) => {
            let numbers: Vec<String> = pids.iter().map(ToString::to_string).collect();
            (Scope::of_pids(pids.iter().copied()), format!("process {}", numbers.join(", ")))
        }
    }
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

/// Becomes true when we are told to stop. A second signal ends us at once.
fn stop_flag() -> Result<Arc<AtomicBool>, Failure> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&flag))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&flag)))
            .map_err(|error| Failure::runtime("can't take signals", error))?;
    }
    Ok(flag)
}

/// How wide the terminal is; 100 columns where there is none.
fn terminal_columns() -> usize {
    rustix::termios::tcgetwinsize(std::io::stdout())
        .ok()
        .map(|size| usize::from(size.ws_col))
        .filter(|columns| *columns > 0)
        .unwrap_or(100)
}

/// A log for people, on standard error.
fn log_to_stderr(default_level: &str) {
    let filter = tracing_subscriber::EnvFilter::try_from_env("SIDEWINDER_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(default_level));
    // A log that was set up already stays.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(is_coloured(&std::io::stderr()))
        .with_target(false)
        .try_init();
}
