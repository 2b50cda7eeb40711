//! Starting a command so that not one of its interrupts is missed.
//!
//! A child of ours stops itself before it becomes the command, and is continued when sampling has begun. It needs
//! nothing between fork and exec that safe Rust can't do: the child is this very program.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use super::Ended;
use crate::exit::{Cause, Failure};

/// The first argument of that child. No command of the command line: neither help nor completions show it.
const EXEC_WHEN_CONTINUED: &str = "exec-when-continued";

/// A command that is about to run, or running.
#[derive(Debug)]
pub(crate) struct Launched {
    child: Child,
}

impl Launched {
    /// Starts a process that will be the command once it is [continued](Self::go).
    pub(crate) fn stopped(command: &[OsString]) -> Result<Self, Failure> {
        let failed = |error| Failure::new(Cause::RecordFailed, "can't start the command").because(error);
        let ourselves = std::env::current_exe().map_err(failed)?;
        let child = Command::new(ourselves).arg(EXEC_WHEN_CONTINUED).args(command).spawn().map_err(failed)?;
        let launched = Self { child };
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
    pub(crate) fn go(&self) -> Result<(), Failure> {
        kill_process(self.process()?, Signal::CONT)
            .map_err(|error| Failure::new(Cause::RecordFailed, "can't continue the command").because(error))
    }

    /// How it ended, if it has.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Asks it to end, and waits a while for that.
    pub(crate) fn end(&mut self) -> Option<ExitStatus> {
        if let Some(status) = self.ended() {
            return Some(status);
        }
        if let Ok(process) = self.process() {
            // It may have ended by itself meanwhile. One that was never continued can't see that it is to end.
            let _ = kill_process(process, Signal::TERM);
            let _ = kill_process(process, Signal::CONT);
        }
        for _ in 0..200 {
            if let Some(status) = self.ended() {
                return Some(status);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        None
    }

    fn process(&self) -> Result<Pid, Failure> {
        let number = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        number.ok_or_else(|| Failure::new(Cause::RecordFailed, "the command has no process number"))
    }
}

/// The code by which a shell would report how the command ended.
pub(crate) fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    ExitCode::from(code.and_then(|code| u8::try_from(code & 0xff).ok()).unwrap_or(1))
}

/// The command that this process is to become, where it is such a child.
pub(crate) fn to_become() -> Option<Vec<OsString>> {
    let mut arguments = std::env::args_os().skip(1);
    (arguments.next()? == EXEC_WHEN_CONTINUED).then(|| arguments.collect())
}

/// The other side: stops, and becomes the command when continued.
pub(crate) fn exec_when_continued(command: &[OsString]) -> Ended {
    kill_process(rustix::process::getpid(), Signal::STOP)
        .map_err(|error| Failure::new(Cause::RecordFailed, "can't stop before the command").because(error))?;
    let [program, arguments @ ..] = command else {
        return Err(Failure::new(Cause::Usage, "no command"));
    };
    // Returns only if it fails.
    let error = Command::new(program).args(arguments).exec();
    let cause = if error.kind() == io::ErrorKind::NotFound { Cause::NotFound } else { Cause::NotExecutable };
    let next = match cause {
        Cause::NotFound => "give its path, or see that a folder of PATH has it",
        _ => "see that it is a program, and that you may execute it",
    };
    Err(Failure::new(cause, format!("can't execute {}", program.display())).because(error).then(next))
}
