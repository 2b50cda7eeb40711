//! Launches a command such that sampling covers it from its first instruction.
//!
//! A child process stops itself before it executes the command, and is continued when sampling has started. The child is
//! this same program, so that nothing between fork and exec needs unsafe Rust. It comes into scope at its exec: no stack
//! shows this program, and no unwind table of it is built.

use std::ffi::{CStr, OsString};
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use sidewinder_base::exit::{ExitCause, Failure};
use sidewinder_text::ExternalText;

use super::CommandResult;

/// The first argument of the child. It is not a command of the command line: help and completions don't show it.
const EXEC_WHEN_CONTINUED: &str = "exec-when-continued";

/// The thread name (`comm`) that the child sets when it can't execute the command. It tells the parent a failed exec from a
/// command that exits with the same code.
const EXEC_FAILED_COMM: &CStr = c"sw-never-ran";

/// A command that is stopped before its exec, running, or ended.
#[derive(Debug)]
pub(crate) struct LaunchedCommand {
    child: Child,
    /// `None` while it has not ended.
    ended: Option<CommandExit>,
}

/// How a command ended.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum CommandExit {
    /// It exited, or another process killed it: the code with which a shell would report it.
    Exited(ExitCode),
    /// It was still running when [`LaunchedCommand::terminate`] was called.
    Terminated,
    /// The command was not found, or could not be executed: the exit code says which.
    FailedToExec(ExitCode),
}

impl LaunchedCommand {
    /// Starts a process that executes the command once it is [resumed](Self::resume).
    pub(crate) fn spawn_stopped(command: &[OsString]) -> Result<Self, Failure> {
        let failed =
            |error| Failure::new(ExitCause::RecordFailed, "can't start the command").with_source(error);
        let own_path = std::env::current_exe().map_err(failed)?;
        let child = Command::new(own_path).arg(EXEC_WHEN_CONTINUED).args(command).spawn().map_err(failed)?;
        let launched = Self { child, ended: None };
        waitid(
            WaitId::Pid(launched.process()?),
            WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT,
        )
        .map_err(|error| failed(error.into()))?;
        Ok(launched)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Lets the child execute the command.
    pub(crate) fn resume(&self) -> Result<(), Failure> {
        kill_process(self.process()?, Signal::CONT).map_err(|error| {
            Failure::new(ExitCause::RecordFailed, "can't continue the command").with_source(error)
        })
    }

    /// Whether the child has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        if self.ended.is_none() {
            self.ended = self.try_wait();
        }
        self.ended.is_some()
    }

    fn try_wait(&mut self) -> Option<CommandExit> {
        // `comm` can be read until the child is reaped.
        let comm = format!("/proc/{}/comm", self.child.id());
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(self.process().ok()?), options).ok()??;
        let has_failed_to_exec =
            std::fs::read(comm).is_ok_and(|name| name.trim_ascii_end() == EXEC_FAILED_COMM.to_bytes());
        let code = exit_code(self.child.try_wait().ok()??);
        Some(if has_failed_to_exec { CommandExit::FailedToExec(code) } else { CommandExit::Exited(code) })
    }

    /// Terminates the command if it is still running, waits up to 2 s for it to end, and returns how it ended.
    pub(crate) fn terminate(&mut self) -> CommandExit {
        if self.has_ended()
            && let Some(ended) = self.ended
        {
            return ended;
        }
        if let Ok(process) = self.process() {
            // It may have ended meanwhile. A child that was never resumed handles SIGTERM only once it is continued.
            let _ = kill_process(process, Signal::TERM);
            let _ = kill_process(process, Signal::CONT);
        }
        self.wait_briefly();
        CommandExit::Terminated
    }

    /// Waits up to 2 s for the command to end. Its last thread has left its program before it can be waited for.
    pub(crate) fn wait_briefly(&mut self) {
        for _ in 0..200 {
            if self.has_ended() {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn process(&self) -> Result<Pid, Failure> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        pid.ok_or_else(|| Failure::new(ExitCause::RecordFailed, "the command has no valid process ID"))
    }
}

/// The code with which a shell would report how the command ended.
fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    ExitCode::from(code.and_then(|code| u8::try_from(code & 0xff).ok()).unwrap_or(1))
}

/// The command to execute if this process is the child of [`LaunchedCommand::spawn_stopped`].
pub(crate) fn requested_exec() -> Option<Vec<OsString>> {
    let mut arguments = std::env::args_os().skip(1);
    (arguments.next()? == EXEC_WHEN_CONTINUED).then(|| arguments.collect())
}

/// Runs in the child: stops, and executes the command when continued.
pub(crate) fn exec_when_continued(command: &[OsString]) -> CommandResult {
    kill_process(rustix::process::getpid(), Signal::STOP).map_err(|error| {
        Failure::new(ExitCause::RecordFailed, "can't stop before the command").with_source(error)
    })?;
    let [program, arguments @ ..] = command else {
        return Err(Failure::new(ExitCause::Usage, "no command"));
    };
    // Returns only if it fails.
    let error = Command::new(program).args(arguments).exec();
    // If this fails, the parent takes the exit code for the command's own.
    let _ = rustix::thread::set_name(EXEC_FAILED_COMM);
    let cause =
        if error.kind() == io::ErrorKind::NotFound { ExitCause::NotFound } else { ExitCause::NotExecutable };
    let next = match cause {
        ExitCause::NotFound => "give its path, or make sure that a directory in PATH contains it",
        _ => "check that it is a program that you may execute",
    };
    Err(Failure::new(cause, format!("can't execute {}", ExternalText::new(program)))
        .with_source(error)
        .with_next_step(next))
}
