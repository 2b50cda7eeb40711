//! Programs that run beside the profiler and end with the value that holds them.

use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result};

/// A running program; dropping it kills it.
#[derive(Debug)]
pub struct Load(Child);

impl Load {
    /// Starts a program. Its output goes nowhere.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(mut command: Command) -> Result<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().with_context(|| format!("cannot run {:?}", command.get_program()))?;
        Ok(Self(child))
    }

    /// Its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Waits until it ends by itself.
    ///
    /// # Errors
    /// When it cannot be waited for.
    pub fn wait(&mut self) -> Result<()> {
        self.0.wait()?;
        Ok(())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
