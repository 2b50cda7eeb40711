//! An OpenTelemetry Collector of our own: built once, started on free ports, stopped, and read.

mod setup;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::received::{Received, span};
use crate::{lock, paths};
pub use setup::{Documented, KubernetesSetup, ServerTls, Setup, Version};
use setup::{socket, write_configuration};

const START_TIMEOUT: Duration = Duration::from_secs(30);
const STOP_TIMEOUT: Duration = Duration::from_secs(20);

/// Builds the Collector of `collector/builder.yaml`, or finds the build of just this manifest in the cache.
///
/// The first build takes a few minutes and says what it does on standard error.
///
/// # Errors
/// When there is no Go, no module proxy, or the build fails.
pub fn build(version: Version) -> Result<PathBuf> {
    build_for(&Setup { version, ..Setup::default() })
}

fn build_for(setup: &Setup) -> Result<PathBuf> {
    let manifest_path = paths::e2e().join("collector/builder.yaml");
    let manifest = fs::read_to_string(&manifest_path)
        .with_context(|| format!("cannot read {}", manifest_path.display()))?;
    let manifest = setup.manifest(&manifest);
    let version = setup.version.as_str();
    let mut hasher = DefaultHasher::new();
    manifest.hash(&mut hasher);
    let folder = paths::cache().join(format!("collector-{:016x}", hasher.finish()));
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;

    let binary = folder.join("collector");
    let _lock = lock::exclusive(&binary)?;
    if binary.is_file() {
        return Ok(binary);
    }

    eprintln!("building the OpenTelemetry Collector {version} (once; takes a few minutes) ...");
    let started = Instant::now();
    let sources = tempfile::tempdir_in(&folder)?;
    let placed_manifest = sources.path().join("builder.yaml");
    let output = sources.path().join("out");
    fs::write(
        &placed_manifest,
        manifest.replacen("dist:", &format!("dist:\n  output_path: {}", output.display()), 1),
    )?;
    let status = Command::new("go")
        .arg("run")
        .arg(format!("go.opentelemetry.io/collector/cmd/builder@v{version}"))
        .arg("--config")
        .arg(&placed_manifest)
        .current_dir(sources.path())
        .env("GOTOOLCHAIN", "auto")
        .env("CGO_ENABLED", "0")
        .stdin(Stdio::null())
        .status()
        .context("cannot run go, which builds the Collector")?;
    if !status.success() {
        bail!("the Collector's builder ended with {status}");
    }
    fs::rename(output.join("collector"), &binary)?;
    eprintln!("built the Collector in {} s", started.elapsed().as_secs());
    Ok(binary)
}

/// A running Collector that receives OTLP and writes the profiles and spans it gets to files.
#[derive(Debug)]
pub struct Collector {
    process: Child,
    folder: TempDir,
    setup: Setup,
    configuration: Vec<PathBuf>,
    grpc_port: u16,
    http_port: u16,
}

impl Collector {
    /// Starts a Collector on two free ports of the loopback interface and waits until both accept connections.
    ///
    /// # Errors
    /// When it cannot be built or does not come up; its log is part of the message.
    pub fn start() -> Result<Self> {
        Self::set_up(Setup::default())
    }

    /// Starts a Collector on the given ports.
    ///
    /// # Errors
    /// As [`Collector::start`].
    pub fn start_on(grpc_port: u16, http_port: u16) -> Result<Self> {
        Self::set_up(Setup { ports: Some([grpc_port, http_port]), ..Setup::default() })
    }

    /// Starts a Collector whose own metrics are at `metrics_port`, as a Collector has them by default. It has two more
    /// exporters: one whose requests fail and one whose queue is soon full, so that there is something to tell of
    /// each; a third one sends to `next`.
    ///
    /// # Errors
    /// As [`Collector::start`].
    pub fn start_with_metrics(metrics_port: u16, next: &str) -> Result<Self> {
        let (metrics_port, next) = (Some(metrics_port), Some(next.to_owned()));
        Self::set_up(Setup { metrics_port, next, ..Setup::default() })
    }

    /// Starts a Collector that is set up like that.
    ///
    /// # Errors
    /// As [`Collector::start`].
    pub fn set_up(setup: Setup) -> Result<Self> {
        let [grpc_port, http_port] = setup.ports.map_or_else(free_ports, Ok)?;
        let folder = tempfile::tempdir()?;
        let configuration = write_configuration(folder.path(), &setup, grpc_port, http_port)?;
        let process = spawn(folder.path(), &setup, &configuration)?;
        let mut collector = Self { process, folder, setup, configuration, grpc_port, http_port };
        collector.wait_until_ready()?;
        Ok(collector)
    }

    /// Starts it again where it was, after [`Self::kill`]; it continues with the same file.
    ///
    /// # Errors
    /// As [`Collector::start`].
    pub fn restart(&mut self) -> Result<()> {
        self.process = spawn(self.folder.path(), &self.setup, &self.configuration)?;
        self.wait_until_ready()
    }

    /// Ends it on the spot, in the middle of whatever it does.
    ///
    /// # Errors
    /// When the system does not let us.
    pub fn kill(&mut self) -> Result<()> {
        self.process.kill()?;
        self.process.wait()?;
        Ok(())
    }

    /// Sends it a signal, such as SIGSTOP.
    ///
    /// # Errors
    /// When it is gone.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        signal::kill(Pid::from_raw(i32::try_from(self.process.id())?), signal)?;
        Ok(())
    }

    fn wait_until_ready(&mut self) -> Result<()> {
        let deadline = Instant::now() + START_TIMEOUT;
        let open = |port: u16| TcpStream::connect(("127.0.0.1", port)).is_ok();
        let grpc_is_open = |collector: &Self| match collector.setup.unix_socket {
            true => UnixStream::connect(socket(collector.folder.path())).is_ok(),
            false => open(collector.grpc_port),
        };
        while !(grpc_is_open(self) && open(self.http_port)) {
            if let Some(status) = self.process.try_wait()? {
                bail!("the Collector ended with {status}:\n{}", self.log());
            }
            if Instant::now() > deadline {
                bail!("the Collector did not listen within {START_TIMEOUT:?}:\n{}", self.log());
            }
            thread::sleep(Duration::from_millis(20));
        }
        // It listens a moment before it takes signals, and nothing tells when it does.
        thread::sleep(Duration::from_millis(100));
        Ok(())
    }

    /// Where it receives OTLP over gRPC: a host and port, or a Unix socket.
    #[must_use]
    pub fn grpc_endpoint(&self) -> String {
        match self.setup.unix_socket {
            true => format!("unix://{}", socket(self.folder.path()).display()),
            false => format!("127.0.0.1:{}", self.grpc_port),
        }
    }

    /// The Unix socket where it receives, for other users too.
    ///
    /// # Errors
    /// When it has none.
    pub fn socket_for_everybody(&self) -> Result<PathBuf> {
        let path = socket(self.folder.path());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666))
            .with_context(|| format!("no Unix socket {}", path.display()))?;
        Ok(path)
    }

    /// Where it receives OTLP over HTTP, as a URL.
    #[must_use]
    pub fn http_endpoint(&self) -> String {
        let scheme = if self.setup.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://127.0.0.1:{}", self.http_port)
    }

    /// Its ports for gRPC and HTTP.
    #[must_use]
    pub fn ports(&self) -> [u16; 2] {
        [self.grpc_port, self.http_port]
    }

    /// What the Collector has said so far.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("collector.log")).unwrap_or_default()
    }

    /// Stops the Collector, which flushes, and returns what it wrote.
    ///
    /// # Errors
    /// When it does not end in time, ends with a failure, or wrote what is no conforming profile or no span.
    pub fn stop(mut self) -> Result<Received> {
        let pid = Pid::from_raw(i32::try_from(self.process.id())?);
        signal::kill(pid, Signal::SIGTERM).context("cannot stop the Collector")?;
        let deadline = Instant::now() + STOP_TIMEOUT;
        let status = loop {
            if let Some(status) = self.process.try_wait()? {
                break status;
            }
            if Instant::now() > deadline {
                bail!("the Collector did not stop within {STOP_TIMEOUT:?}:\n{}", self.log());
            }
            thread::sleep(Duration::from_millis(10));
        };
        if !status.success() {
            bail!("the Collector ended with {status}:\n{}", self.log());
        }
        let mut received = Received::from_collector_file(&self.written("profiles.binpb")?)?;
        received.spans = span::of_collector_file(&self.written("traces.json")?)?;
        Ok(received)
    }

    /// With rotation there is no file before there is something to write.
    fn written(&self, name: &str) -> Result<Vec<u8>> {
        let path = self.folder.path().join(name);
        if !path.exists() {
            return Ok(Vec::new());
        }
        fs::read(&path).with_context(|| format!("cannot read {}", path.display()))
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        // Ends a Collector that a failing test left running; one that was stopped is gone already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// `N` ports of the loopback interface that were free a moment ago, and that no other test of this process was given.
///
/// # Errors
/// When the system gives none.
pub fn free_ports<const N: usize>() -> Result<[u16; N]> {
    static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    // All are held at once, also those that have been given before: else the next one may be the same.
    let mut listeners = Vec::with_capacity(N);
    let mut ports = [0; N];
    for port in &mut ports {
        loop {
            let listener =
                TcpListener::bind(("127.0.0.1", 0)).context("no free port on the loopback interface")?;
            *port = listener.local_addr()?.port();
            listeners.push(listener);
            if given.insert(*port) {
                break;
            }
        }
    }
    Ok(ports)
}

fn spawn(folder: &Path, setup: &Setup, configuration: &[PathBuf]) -> Result<Child> {
    let binary = build_for(setup)?;
    let log = File::options().create(true).append(true).open(folder.join("collector.log"))?;
    Command::new(&binary)
        .envs(setup.kubernetes.iter().map(|kubernetes| ("KUBECONFIG", &kubernetes.kubeconfig)))
        .args(configuration.iter().flat_map(|file| [OsStr::new("--config"), file.as_os_str()]))
        .arg("--feature-gates=+service.profilesSupport")
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .with_context(|| format!("cannot run {}", binary.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collector_that_got_nothing_starts_stops_and_has_written_nothing() -> Result<()> {
        let received = Collector::start()?.stop()?;
        assert_eq!(received.profiles, []);
        Ok(())
    }
}
