//! Starting a command so that not one of its interrupts is missed.
//!
//! A child of ours stops itself before it becomes the command, and is continued when sampling has begun. It needs
//! nothing between fork and exec that safe Rust can't do: the child is this very program.

use std::ffi::{CStr, OsString};
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use super::CommandResult;
use crate::exit::{ExitCause, Failure};

/// The first argument of that child. No command of the command line: neither help nor completions show it.
const EXEC_WHEN_CONTINUED: &str = "exec-when-continued";

/// What that child is called once it can't become the command: who waits for it learns so from the kernel, also where the
/// command would have ended with the same code.
const EXEC_FAILED_COMM: &CStr = c"sw-never-ran";

/// A command that is about to run, or running.
#[derive(Debug)]
pub(crate) struct LaunchedCommand {
    child: Child,
    /// Once it has ended.
    ended: Option<CommandExit>,
}

/// How a command ended.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum CommandExit {
    /// By itself, or by somebody else: the code by which a shell would report it.
    Exited(ExitCode),
    /// Because we have asked it to.
    Terminated,
    /// There was no such command, or it could not be executed: the code that tells which.
    FailedToExec(ExitCode),
}

impl LaunchedCommand {
    /// Starts a process that will be the command once it is [continued](Self::resume).
    pub(crate) fn spawn_stopped(command: &[OsString]) -> Result<Self, Failure> {
        let failed =
            |error| Failure::new(ExitCause::RecordFailed, "can't start the command").with_source(error);
        let ourselves = std::env::current_exe().map_err(failed)?;
        let child = Command::new(ourselves).arg(EXEC_WHEN_CONTINUED).args(command).spawn().map_err(failed)?;
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

    /// Lets it become the command.
    pub(crate) fn resume(&self) -> Result<(), Failure> {
        kill_process(self.process()?, Signal::CONT).map_err(|error| {
            Failure::new(ExitCause::RecordFailed, "can't continue the command").with_source(error)
        })
    }

    /// Whether it has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        if self.ended.is_none() {
            self.ended = self.try_wait();
        }
        self.ended.is_some()
    }

    fn try_wait(&mut self) -> Option<CommandExit> {
        // What it is called is known until it is waited for.
        let comm = format!("/proc/{}/comm", self.child.id());
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(self.process().ok()?), options).ok()??;
        let is_ours =
            std::fs::read(comm).is_ok_and(|name| name.trim_ascii_end() == EXEC_FAILED_COMM.to_bytes());
        let code = exit_code(self.child.try_wait().ok()??);
        Some(if is_ours { CommandExit::FailedToExec(code) } else { CommandExit::Exited(code) })
    }

    /// Asks it to end if it has not, waits a while for that, and returns how it ended.
    pub(crate) fn terminate(&mut self) -> CommandExit {
        if self.has_ended()
            && let Some(ended) = self.ended
        {
            return ended;
        }
        if let Ok(process) = self.process() {
            // It may have ended by itself meanwhile. One that was never continued can't see that it is to end.
            let _ = kill_process(process, Signal::TERM);
            let _ = kill_process(process, Signal::CONT);
        }
        for _ in 0..200 {
            if self.has_ended() {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        CommandExit::Terminated
    }

    fn process(&self) -> Result<Pid, Failure> {
        let number = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        number.ok_or_else(|| Failure::new(ExitCause::RecordFailed, "the command has no process number"))
    }
}

/// The code by which a shell would report how the command ended.
fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    ExitCode::from(code.and_then(|code| u8::try_from(code & 0xff).ok()).unwrap_or(1))
}

/// The command that this process is to become, where it is such a child.
pub(crate) fn requested_exec() -> Option<Vec<OsString>> {
    let mut arguments = std::env::args_os().skip(1);
    (arguments.next()? == EXEC_WHEN_CONTINUED).then(|| arguments.collect())
}

/// The other side: stops, and becomes the command when continued.
pub(crate) fn exec_when_continued(command: &[OsString]) -> CommandResult {
    kill_process(rustix::process::getpid(), Signal::STOP).map_err(|error| {
        Failure::new(ExitCause::RecordFailed, "can't stop before the command").with_source(error)
    })?;
    let [program, arguments @ ..] = command else {
        return Err(Failure::new(ExitCause::Usage, "no command"));
    };
    // Returns only if it fails.
    let error = Command::new(program).args(arguments).exec();
    // If that fails, so does telling it.
    let _ = rustix::thread::set_name(EXEC_FAILED_COMM);
    let cause =
        if error.kind() == io::ErrorKind::NotFound { ExitCause::NotFound } else { ExitCause::NotExecutable };
    let next = match cause {
        ExitCause::NotFound => "give its path, or see that a folder of PATH has it",
        _ => "see that it is a program, and that you may execute it",
    };
    Err(Failure::new(cause, format!("can't execute {}", program.display()))
        .with_source(error)
        .with_next_step(next))
}
