//! The examples for people who instrument, in `service/` and `examples/`: built as they say themselves, and run.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Seek as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use sidewinder_e2e_support::command::run;
use sidewinder_e2e_support::paths;
use sidewinder_e2e_support::workload::{behind_gate, in_background};

/// Builds an example in Rust, in a folder of its own, with the dependencies of its own `Cargo.lock`.
///
/// # Errors
/// When there is no registry of crates, or the build fails.
pub fn build_rust(folder: &str, program: &str) -> Result<PathBuf> {
    // The libraries that it depends on are built once for all clones that share the cache.
    let target = paths::cache().join("examples").join(folder);
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--quiet", "--release", "--locked"]).current_dir(paths::e2e().join(folder));
    // How the tests themselves are built, and that they show times, is no matter of what they build.
    run(cargo
        .env("CARGO_TARGET_DIR", &target)
        .env_remove("RUSTC_BOOTSTRAP")
        .env_remove("RUSTC_WORKSPACE_WRAPPER"))?;
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
    run(&mut go_build(&program))?;
    Ok(program)
}

fn go_build(program: &Path) -> Command {
    let mut go = Command::new("go");
    go.args(["build", "-o"]).arg(program).current_dir(paths::e2e().join("examples/go"));
    go.env("GOTOOLCHAIN", "auto").env("GOWORK", "off");
    go
}

/// Builds the example in Go for arm64, as a static program, linked by Go alone, or, with cgo, by Debian's cross compiler.
///
/// # Errors
/// As of [`build_go`].
pub fn build_go_for_arm64(has_cgo: bool) -> Result<PathBuf> {
    let program =
        paths::compiled()?.join(if has_cgo { "arm64-spans-in-go-with-cgo" } else { "arm64-spans-in-go" });
    let mut go = go_build(&program);
    go.env("GOARCH", "arm64").env("CGO_ENABLED", if has_cgo { "1" } else { "0" });
    if has_cgo {
        go.env("CC", "aarch64-linux-gnu-gcc").args(["-ldflags", "-linkmode external -extldflags -static"]);
    }
    run(&mut go)?;
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

/// The example in Java, built: what a virtual machine has to be told.
#[derive(Clone, Debug)]
pub struct JavaExample {
    /// The folder of its classes, and the jars of what it requires.
    class_path: String,
    /// The native half of what publishes.
    library: PathBuf,
}

impl JavaExample {
    /// A command that runs it; its first argument is for how many seconds.
    #[must_use]
    pub fn command(&self, home: &Path) -> Command {
        let mut command = Command::new(home.join("bin/java"));
        // Each function has a frame of its own.
        command.args(["-XX:-Inline", "-cp", &self.class_path, "Spans"]).arg(&self.library);
        command
    }
}

/// Builds the example in Java with a JDK, for any version.
///
/// # Errors
/// When there is no Maven, no registry of artifacts, no C compiler, or a build fails.
pub fn build_java(home: &Path) -> Result<JavaExample> {
    let source = paths::e2e().join("examples/java");
    let folder = paths::compiled()?.join("spans-in-java");
    let (classes, jars, project) = (folder.join("classes"), folder.join("jars"), source.join("pom.xml"));
    let library = folder.join("libthread_context.so");
    let include = home.join("include");
    fs::create_dir_all(&classes)?;
    // Maven takes seconds to find out that all is there.
    let modified = |path: &Path| fs::metadata(path).and_then(|metadata| metadata.modified());
    if modified(&jars).ok() < Some(modified(&project)?) {
        let part = folder.join("jars.part");
        let mut maven = Command::new("mvn");
        maven.args(["-q", "-B", "-f"]).arg(&project).arg("dependency:copy-dependencies");
        run(maven.arg(format!("-DoutputDirectory={}", part.display())))?;
        let _ = fs::remove_dir_all(&jars);
        fs::rename(&part, &jars)?;
    }
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-I../c", "-I"]).arg(&include);
    cc.arg("-I").arg(include.join("linux")).arg("thread_context.c").arg("-o").arg(&library);
    run(cc.current_dir(&source))?;
    let class_path = format!("{}:{}/*", classes.display(), jars.display());
    let mut javac = Command::new(home.join("bin/javac"));
    javac.args(["-nowarn", "--release", "8", "-cp", &class_path, "-d"]).arg(&classes);
    run(javac.args(["Spans.java", "ThreadContext.java"]).current_dir(&source))?;
    Ok(JavaExample { class_path, library })
}

/// Builds the native half of the example in JavaScript, whose packages are installed.
///
/// # Errors
/// When there is no compiler, or it has something to say.
pub fn build_node() -> Result<PathBuf> {
    let addon = paths::compiled()?.join("thread_context.node");
    let mut npm = Command::new("npm");
    npm.args(["run", "--silent", "build"]).current_dir(paths::e2e().join("examples/node"));
    run(npm.env("ADDON", &addon))?;
    Ok(addon)
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
        let mut shell = behind_gate(&in_background(command));
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

    /// Waits until it says that it has begun a span of a route, and returns the span's ids.
    ///
    /// # Errors
    /// When it doesn't for half a minute, or says something else.
    pub fn wait_for(&self, route: &str) -> Result<String> {
        let deadline = Instant::now() + Duration::from_secs(30);
        let mut said = String::new();
        let mut bytes = [0; 4096];
        while Instant::now() < deadline {
            // The example writes at the end of the file, by an offset that it shares with this handle.
            let length = self.said.read_at(&mut bytes, said.len() as u64)?;
            said.push_str(std::str::from_utf8(&bytes[..length])?);
            let whole = said.rsplit_once('\n').map_or("", |(lines, _)| lines);
            let spans = handled_in(whole)?;
            if let Some((ids, _)) = spans.into_iter().find(|(_, of)| of == route) {
                return Ok(ids);
            }
            thread::sleep(Duration::from_millis(20));
        }
        bail!("no span of {route} has begun: {said}")
    }

    /// Ends it, before its time is over.
    ///
    /// # Errors
    /// When it has ended by itself, or says something else.
    pub fn end(mut self) -> Result<Handled> {
        if let Some(status) = self.process.try_wait()? {
            bail!("the example has ended with {status}");
        }
        self.process.kill()?;
        self.process.wait()?;
        self.said.rewind()?;
        let said = io::read_to_string(&self.said)?;
        handled_in(said.rsplit_once('\n').map_or("", |(lines, _)| lines))
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

impl Drop for Example {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
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
