//! A server that a test starts.

use std::fs::{self, File};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use sidewinder_e2e_support::http;
use tempfile::TempDir;

const TIMEOUT: Duration = Duration::from_secs(120);

/// It runs in a folder of its own until it is dropped.
#[derive(Debug)]
pub(super) struct Server {
    process: Child,
    folder: TempDir,
    /// Where it answers by HTTP, and gets OTLP.
    pub(super) port: u16,
}

impl Server {
    /// Starts a server, and waits until there is an answer at `ready_path`.
    pub(super) fn start(mut command: Command, port: u16, ready_path: &str) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let log = File::create(folder.path().join("log"))?;
        command.current_dir(&folder).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let process = command.spawn().with_context(|| format!("cannot run {:?}", command.get_program()))?;
        let mut server = Self { process, folder, port };
        let deadline = Instant::now() + TIMEOUT;
        while !http::get(port, ready_path).is_ok_and(|answer| answer.status == 200) {
            let ended = server.process.try_wait()?;
            if ended.is_some() || Instant::now() > deadline {
                bail!("{:?} is not ready: {}", command.get_program(), server.log()?);
            }
            thread::sleep(Duration::from_millis(200));
        }
        Ok(server)
    }

    fn log(&self) -> Result<String> {
        Ok(fs::read_to_string(self.folder.path().join("log"))?)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
