//! Runs a program one instruction at a time, and remembers its calls.

use std::ffi::c_void;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, bail};
use nix::sys::ptrace;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;

/// The registers that unwinding needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Registers {
    /// `rip`.
    pub pc: u64,
    /// `rsp`.
    pub sp: u64,
    /// `rbp`.
    pub bp: u64,
}

/// The longest instruction of x86-64, in bytes.
const MAX_INSTRUCTION_BYTES: u64 = 15;

/// A program under control. All methods have to be called by the thread that started it.
#[derive(Debug)]
pub struct Stepper {
    process: Child,
    pid: Pid,
    registers: Registers,
    /// Of the calls made since the start that have not returned: where each will return to, and where that is
    /// on the stack.
    calls: Vec<(u64, u64)>,
}

impl Stepper {
    /// Starts a program and stops it at once.
    ///
    /// # Errors
    /// When it cannot be started or controlled.
    pub fn start(mut command: Command) -> Result<Self> {
        let process = command.stdout(Stdio::null()).spawn()?;
        let pid = Pid::from_raw(i32::try_from(process.id())?);
        ptrace::attach(pid).context("cannot attach to a child of our own")?;
        let registers = Registers { pc: 0, sp: 0, bp: 0 };
        let mut stepper = Self { process, pid, registers, calls: Vec::new() };
        stepper.wait()?;
        Ok(stepper)
    }

    fn wait(&mut self) -> Result<()> {
        match waitpid(self.pid, None)? {
            WaitStatus::Stopped(..) => {
                let registers = ptrace::getregs(self.pid)?;
                self.registers = Registers { pc: registers.rip, sp: registers.rsp, bp: registers.rbp };
                Ok(())
            }
            other => bail!("the program did not stop: {other:?}"),
        }
    }

    /// The registers before the next instruction.
    #[must_use]
    pub fn registers(&self) -> Registers {
        self.registers
    }

    /// The word at an address.
    ///
    /// # Errors
    /// When it is not mapped.
    pub fn word(&self, address: u64) -> Result<u64> {
        let word = ptrace::read(self.pid, address as usize as *mut c_void)
            .with_context(|| format!("cannot read the word at {address:#x}"))?;
        Ok(word.cast_unsigned())
    }

    /// Where the function that runs now will return to, if it was called since the start.
    #[must_use]
    pub fn pending_return(&self) -> Option<u64> {
        self.calls.last().map(|(return_address, _)| *return_address)
    }

    /// Executes one instruction.
    ///
    /// # Errors
    /// When the program ends.
    pub fn step(&mut self) -> Result<()> {
        let before = self.registers;
        ptrace::step(self.pid, None)?;
        self.wait()?;
        let after = self.registers;
        // What lies below the stack pointer has returned, by `ret` or by a jump.
        while self.calls.last().is_some_and(|(_, slot)| *slot < after.sp) {
            self.calls.pop();
        }
        // A call puts the address behind itself on the stack and goes elsewhere.
        if after.sp.wrapping_add(8) == before.sp {
            let pushed = self.word(after.sp)?;
            let behind = pushed.wrapping_sub(before.pc);
            if (1..=MAX_INSTRUCTION_BYTES).contains(&behind) && after.pc != pushed {
                self.calls.push((pushed, after.sp));
            }
        }
        Ok(())
    }
}

impl Drop for Stepper {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = ptrace::detach(self.pid, None);
        let _ = self.process.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf::{Base, Elf, ReturnAddress};
    use sidewinder_e2e_support::workload::WORDS_FP_STATIC;

    #[test]
    fn remembered_calls_agree_with_unwind_data() -> Result<()> {
        let elf = Elf::read(&WORDS_FP_STATIC.compiled()?)?;
        let mut stepper = Stepper::start(WORDS_FP_STATIC.command(&["60"])?)?;
        let mut compared = 0;
        for _ in 0..5_000 {
            stepper.step()?;
            let Registers { pc, sp, bp } = stepper.registers();
            let Some((pending, rule)) = stepper.pending_return().zip(elf.rule_at(pc)) else { continue };
            let (Some((base, offset)), ReturnAddress::AtCfa(slot)) = (rule.cfa, rule.return_address) else {
                continue;
            };
            let base = if base == Base::StackPointer { sp } else { bp };
            let found = stepper.word(base.wrapping_add_signed(offset + slot))?;
            assert_eq!(found, pending, "at {pc:#x} {:?}", elf.names_at(pc));
            compared += 1;
        }
        assert!(compared > 1_000, "only {compared} of 5,000 could be compared");
        Ok(())
    }
}
