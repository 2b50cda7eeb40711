//! The examples for people who instrument, in `service/` and `examples/`: built as they say themselves, and run.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Seek as _, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context as _, Result, bail};
use sidewinder_e2e_support::command::run;
use sidewinder_e2e_support::paths;
use sidewinder_e2e_support::workload::in_background;

/// Builds an example in Rust, in a folder of its own, with the dependencies of its own `Cargo.lock`.
///
/// # Errors
/// When there is no registry of crates, or the build fails.
pub fn build_rust(folder: &str, program: &str) -> Result<PathBuf> {
    let target = paths::compiled()?.join(folder);
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--quiet", "--release", "--locked"]).current_dir(paths::e2e().join(folder));
    // The test harness may have been told to show times: that is no matter of what it builds.
    run(cargo.env("CARGO_TARGET_DIR", &target).env_remove("RUSTC_BOOTSTRAP"))?;
    Ok(target.join("release").join(program))
}

/// Builds the example in Go.
///
/// # Errors
/// When there is no Go, no module proxy, or the build fails.
pub fn build_go() -> Result<PathBuf> {
    static BUILT: Mutex<Option<PathBuf>> = Mutex::new(None);
    once(&BUILT, go)
}

fn go() -> Result<PathBuf> {
    let program = paths::compiled()?.join("spans-in-go");
    let mut go = Command::new("go");
    go.args(["build", "-o"]).arg(&program).arg(".").current_dir(paths::e2e().join("examples/go"));
    run(go.env("GOTOOLCHAIN", "auto").env("GOWORK", "off"))?;
    Ok(program)
}

/// Builds the example in C.
///
/// # Errors
/// When there is no compiler, or it has something to say.
pub fn build_c() -> Result<PathBuf> {
    static BUILT: Mutex<Option<PathBuf>> = Mutex::new(None);
    once(&BUILT, c)
}

fn c() -> Result<PathBuf> {
    let program = paths::compiled()?.join("spans-in-c");
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-rdynamic", "spans.c", "-o"]).arg(&program);
    run(cc.current_dir(paths::e2e().join("examples/c")))?;
    Ok(program)
}

/// Builds an example once in this process: it must not be replaced while another test runs it.
fn once(built: &Mutex<Option<PathBuf>>, build: impl FnOnce() -> Result<PathBuf>) -> Result<PathBuf> {
    let mut built = built.lock().unwrap_or_else(PoisonError::into_inner);
    if built.is_none() {
        *built = Some(build()?);
    }
    built.clone().context("an example was not built")
}

/// What an example says that it has handled: the route of each span, by its ids in hexadecimal digits, separated by a space.
pub type Handled = HashMap<String, String>;

/// An example that works until its time is over, which begins when it is let go.
#[derive(Debug)]
pub struct Example {
    process: Child,
    /// What it says, in a file: it would wait for who reads a pipe.
    said: File,
}

impl Example {
    /// Starts a shell that becomes the example once it is let go. All of its threads compute, so that others come before them.
    ///
    /// # Errors
    /// When it can't be started.
    pub fn start(command: &Command) -> Result<Self> {
        let said = tempfile::tempfile()?;
        let example = in_background(command);
        let mut shell = Command::new("sh");
        shell
            .args(["-c", "read -r line; exec \"$@\"", "sh"])
            .arg(example.get_program())
            .args(example.get_args());
        let process = shell.stdin(Stdio::piped()).stdout(said.try_clone()?).spawn()?;
        Ok(Self { process, said })
    }

    /// Lets it go.
    ///
    /// # Errors
    /// When it is gone.
    pub fn open(&mut self) -> Result<()> {
        self.process.stdin.take().context("it runs already")?.write_all(b"\n").context("the example is gone")
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// When it fails, or says something else.
    pub fn finish(mut self) -> Result<Handled> {
        let status = self.process.wait()?;
        if !status.success() {
            bail!("the example ended with {status}");
        }
        self.said.rewind()?;
        handled_in(&io::read_to_string(&self.said)?)
    }
}

/// What an example has printed.
///
/// # Errors
/// When it is something else.
pub fn handled_in(said: &str) -> Result<Handled> {
    let spans = said.lines().map(|line| {
        let (ids, route) = line.rsplit_once(' ').with_context(|| format!("{line:?} is no span"))?;
        Ok((ids.to_owned(), route.to_owned()))
    });
    spans.collect()
}
