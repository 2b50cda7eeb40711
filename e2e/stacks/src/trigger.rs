//! Has the profiler that runs take a sample at a chosen instruction.
//!
//! The program that it loaded for interrupts of the CPU clock is attached to one more perf event, a hardware
//! breakpoint: it runs with the registers of the thread that is about to execute that instruction. Nothing of the
//! profiler is changed for this.

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::process;

use anyhow::{Context as _, Result, bail};
use perf_event::events::Breakpoint;
use perf_event::{Builder, Counter};
use rustix::io::Errno;
use rustix::process::{PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use sidewinder_e2e_support::observe;

/// How often a program that vanishes is looked for again.
const ATTEMPTS: u32 = 100;

/// The profiler's program.
#[derive(Debug)]
pub(crate) struct Program {
    fd: OwnedFd,
}

impl Program {
    /// The program for perf events that a running profiler holds.
    pub(crate) fn of(profiler: u32) -> Result<Self> {
        let pid =
            i32::try_from(profiler).ok().and_then(rustix::process::Pid::from_raw).context("no process")?;
        let process = pidfd_open(pid, PidfdFlags::empty())?;
        for _ in 0..ATTEMPTS {
            let programs = observe::interrupt_programs(profiler);
            let number = programs.first().context("the profiler holds no program for perf events")?;
            match pidfd_getfd(&process, *number, PidfdGetfdFlags::empty()) {
                Ok(fd) if observe::is_interrupt_program(process::id(), fd.as_raw_fd()) => {
                    return Ok(Self { fd });
                }
                // The profiler has closed it meanwhile, and may have another file under its number.
                Ok(_) | Err(Errno::BADF) => {}
                Err(error) => return Err(error).context("the profiler's program can't be had"),
            }
        }
        bail!("each program for perf events that the profiler held was closed at once, {ATTEMPTS} times")
    }

    /// Has the program run when this thread comes to this instruction, until what is returned is dropped.
    pub(crate) fn sample_at(&self, tid: u32, pc: u64) -> Result<Armed> {
        let mut event = Builder::new(Breakpoint::execute(pc))
            .observe_pid(i32::try_from(tid)?)
            .sample_period(1)
            .build()
            .with_context(|| format!("no hardware breakpoint at {pc:#x} of thread {tid}"))?;
        event.set_bpf(self.fd.as_raw_fd()).context("the program does not run at breakpoints")?;
        event.enable()?;
        Ok(Armed { event })
    }
}

/// A sample that is to come.
#[derive(Debug)]
pub(crate) struct Armed {
    event: Counter,
}

impl Armed {
    /// Whether the thread has come to the instruction.
    pub(crate) fn has_fired(mut self) -> Result<bool> {
        Ok(self.event.read()? > 0)
    }
}
