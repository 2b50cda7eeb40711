//! gdb, which holds a program and says what it makes of its stack.

use std::fs;
use std::io::{BufRead as _, BufReader, ErrorKind, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::Deserialize;
use serde_json::{Value, json};
use sidewinder_e2e_support::paths;
use tempfile::TempDir;

const START_TIMEOUT: Duration = Duration::from_secs(20);
/// gdb reads the symbols of everything that is mapped.
const ATTACH_TIMEOUT: Duration = Duration::from_secs(60);
/// A thread that does not come back from a system call is called back.
const STEP_PATIENCE: Duration = Duration::from_secs(1);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

/// A thread at a stop, as gdb sees it.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub(crate) struct Look {
    pub(crate) tid: u32,
    pub(crate) pc: u64,
    pub(crate) sp: u64,
    pub(crate) fp: u64,
    /// The link register, where there is one.
    #[serde(default)]
    pub(crate) link: Option<u64>,
    /// The address of each frame, leaf first, and whether it is the kernel's frame of a signal.
    pub(crate) frames: Vec<(u64, bool)>,
    /// Why there are no more.
    pub(crate) end: String,
}

/// A gdb that runs `stacks/stops.py`.
#[derive(Debug)]
pub(crate) struct Gdb {
    process: Child,
    stream: BufReader<UnixStream>,
    folder: TempDir,
    held: Option<u32>,
}

impl Gdb {
    pub(crate) fn start() -> Result<Self> {
        Self::start_as("gdb")
    }

    /// Starts the gdb with this name.
    pub(crate) fn start_as(name: &str) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let socket = folder.path().join("socket");
        let listener = UnixListener::bind(&socket)?;
        listener.set_nonblocking(true)?;
        let log = fs::File::create(folder.path().join("log"))?;
        let mut process = Command::new(name)
            .args(["-nx", "-batch", "-x"])
            .arg(paths::e2e().join("stacks/stops.py"))
            .env("STOPS_SOCKET", &socket)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot run {name}"))?;
        let deadline = Instant::now() + START_TIMEOUT;
        let stream = loop {
            match listener.accept() {
                Ok((stream, _)) => break stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
            if process.try_wait()?.is_some() || Instant::now() > deadline {
                let _ = process.kill();
                process.wait()?;
                bail!("gdb did not start:\n{}", log_of(folder.path()));
            }
            thread::sleep(Duration::from_millis(10));
        };
        stream.set_nonblocking(false)?;
        Ok(Self { process, stream: BufReader::new(stream), folder, held: None })
    }

    /// Takes a process under control. Where `file` is given, gdb reads that instead of what the process runs.
    pub(crate) fn attach(&mut self, pid: u32, file: Option<&PathBuf>) -> Result<()> {
        self.held = Some(pid);
        self.say(&json!({ "do": "attach", "pid": pid, "file": file }))?;
        self.answer(ATTACH_TIMEOUT).map(drop)
    }

    /// Takes a program under control that an emulator, the process `pid`, runs: it listens on a socket. Libraries of the program
    /// are in a folder of their own.
    pub(crate) fn connect(&mut self, pid: u32, socket: &Path, file: &Path, libraries: &str) -> Result<()> {
        self.held = Some(pid);
        self.say(&json!({ "do": "connect", "socket": socket, "file": file, "libraries": libraries }))?;
        self.answer(ATTACH_TIMEOUT).map(drop)
    }

    /// Lets the process run on for a while.
    pub(crate) fn run_on(&mut self, time: Duration) -> Result<()> {
        self.say(&json!({ "do": "go" }))?;
        thread::sleep(time);
        self.interrupt();
        self.answer(ANSWER_TIMEOUT).map(drop)
    }

    /// Executes some instructions of one thread, one by one. False: it has not come back from a system call.
    pub(crate) fn step(&mut self, count: u32, thread: Option<u32>) -> Result<bool> {
        self.say(&json!({ "do": "step", "count": count, "thread": thread }))?;
        let answer = match self.try_answer(STEP_PATIENCE)? {
            Some(answer) => answer,
            None => {
                self.interrupt();
                self.answer(ANSWER_TIMEOUT)?
            }
        };
        Ok(answer.get("interrupted") == Some(&Value::Bool(false)))
    }

    /// The thread that was stepped.
    pub(crate) fn look(&mut self) -> Result<Look> {
        self.say(&json!({ "do": "look" }))?;
        Ok(serde_json::from_value(self.answer(ANSWER_TIMEOUT)?)?)
    }

    /// Lets the process go.
    pub(crate) fn detach(&mut self) -> Result<()> {
        self.held = None;
        self.say(&json!({ "do": "detach" }))?;
        self.answer(ANSWER_TIMEOUT).map(drop)
    }

    fn interrupt(&self) {
        if let Some(pid) = self.held.and_then(|pid| i32::try_from(pid).ok()) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGINT);
        }
    }

    fn say(&mut self, command: &Value) -> Result<()> {
        writeln!(self.stream.get_mut(), "{command}").context("gdb is gone")
    }

    fn answer(&mut self, timeout: Duration) -> Result<Value> {
        let answer = self.try_answer(timeout)?;
        answer.with_context(|| format!("gdb does not answer:\n{}", log_of(self.folder.path())))
    }

    /// The next answer, if it comes in time.
    fn try_answer(&mut self, timeout: Duration) -> Result<Option<Value>> {
        self.stream.get_ref().set_read_timeout(Some(timeout))?;
        let mut line = String::new();
        match self.stream.read_line(&mut line) {
            Ok(0) => bail!("gdb has ended:\n{}", log_of(self.folder.path())),
            Ok(_) => {}
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) && line.is_empty() =>
            {
                return Ok(None);
            }
            Err(error) => return Err(error).context("gdb's answer"),
        }
        let answer: Value = serde_json::from_str(&line)?;
        ensure!(answer.get("error").is_none(), "gdb: {}", answer["error"]);
        Ok(Some(answer))
    }
}

fn log_of(folder: &Path) -> String {
    fs::read_to_string(folder.join("log")).unwrap_or_default()
}

impl Drop for Gdb {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
