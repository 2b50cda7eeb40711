//! The example service in `service/`, and who asks it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sidewinder_e2e_support::workload::in_background;

use crate::examples;
use crate::spans::Stays;

/// What is asked for by turns.
const ROUTES: [&str; 3] = ["/cart", "/search", "/checkout"];

/// The service, which publishes its context and waits for requests.
#[derive(Debug)]
pub struct Service {
    process: Child,
    address: String,
    log: tempfile::TempPath,
}

impl Service {
    /// Starts it, with so many worker threads, and with functions that compute for so long.
    ///
    /// # Errors
    /// When it can't be built or started.
    pub fn start(threads: u32, microseconds: u32) -> Result<Self> {
        Self::start_in(threads, microseconds, &[])
    }

    /// As [`Service::start`], with variables in its environment.
    ///
    /// # Errors
    /// As [`Service::start`].
    pub fn start_in(threads: u32, microseconds: u32, variables: &[(&str, String)]) -> Result<Self> {
        let log = tempfile::NamedTempFile::new()?.into_temp_path();
        let mut command = Command::new(examples::build_rust("service", "sidewinder-example-service")?);
        command
            .arg("127.0.0.1:0")
            .env("TOKIO_WORKER_THREADS", threads.to_string())
            .env("WORK_MICROSECONDS", microseconds.to_string())
            .env("SPAN_LOG", &log)
            .envs(variables.iter().map(|(name, value)| (*name, value)));
        let mut process = in_background(&command).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        BufReader::new(process.stdout.take().context("no standard output")?).read_line(&mut line)?;
        let mut service = Self { process, address: String::new(), log };
        let address = line.trim().strip_prefix("http://");
        service.address = address.with_context(|| format!("the example service said {line:?}"))?.to_owned();
        Ok(service)
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Asks it for so long, by so many connections.
    ///
    /// # Errors
    /// When a request fails.
    pub fn ask(&self, connections: u32, time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        thread::scope(|threads| {
            let clients: Vec<_> =
                (0..connections).map(|first| threads.spawn(move || self.ask_until(end, first))).collect();
            clients.into_iter().try_for_each(|client| {
                client.join().map_err(|_| anyhow::anyhow!("a client panicked"))?.context("a request failed")
            })
        })
    }

    /// One request after the other, by one connection.
    fn ask_until(&self, end: Instant, first: u32) -> Result<()> {
        let mut connection = Connection::open(&self.address)?;
        for route in ROUTES.iter().cycle().skip(first as usize % ROUTES.len()) {
            if Instant::now() >= end {
                break;
            }
            connection.ask(&format!("GET {route}"), "204")?;
        }
        Ok(())
    }

    /// Ends it, and reads its log.
    ///
    /// # Errors
    /// When it fails, or its log is not one.
    pub fn finish(mut self) -> Result<Stays> {
        kill(Pid::from_raw(self.pid().cast_signed()), Signal::SIGTERM)?;
        let status = self.process.wait()?;
        if !status.success() {
            bail!("the example service ended with {status}");
        }
        Stays::read(&self.log)
    }

    /// Has it begin a job of so many seconds on four threads, all of it in one span: the ids of the trace and of that span, in
    /// hexadecimal digits.
    ///
    /// # Errors
    /// When that fails.
    pub fn begin_report(&self, seconds: u32) -> Result<[String; 2]> {
        let answer = Connection::open(&self.address)?.ask(&format!("POST /reports/{seconds}"), "202")?;
        let ids = answer.iter().find_map(|line| line.strip_prefix("traceresponse: ")).context("no ids")?;
        let mut parts = ids.split('-').skip(1).map(str::to_owned);
        parts.next().zip(parts.next()).map(Into::into).with_context(|| format!("{ids:?} are no ids"))
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // Ends a service that a failing test left running.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A connection for requests whose answers have no body.
struct Connection(BufReader<TcpStream>);

impl Connection {
    fn open(address: &str) -> Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        Ok(Self(BufReader::new(stream)))
    }

    /// The lines of an answer, which has to have this status.
    fn ask(&mut self, method_and_path: &str, status: &str) -> Result<Vec<String>> {
        let request = format!("{method_and_path} HTTP/1.1\r\nhost: example\r\n\r\n");
        self.0.get_mut().write_all(request.as_bytes())?;
        let lines =
            self.0.by_ref().lines().take_while(|line| line.as_ref().is_ok_and(|line| !line.is_empty()));
        let lines = lines.collect::<Result<Vec<_>, _>>()?;
        let first = lines.first().map_or("", String::as_str);
        ensure!(first.split(' ').nth(1) == Some(status), "{method_and_path}: {first:?}");
        Ok(lines)
    }
}

/// Threads that are each in another span every few microseconds, at their gate. They keep no log, which would cost more than the
/// spans.
#[derive(Debug)]
pub struct Switches(Child);

impl Switches {
    /// Starts them.
    ///
    /// # Errors
    /// When they can't be built or started.
    pub fn start(seconds: u32, threads: u32, microseconds: u32) -> Result<Self> {
        let mut command = Command::new(examples::build_rust("service", "switches")?);
        command.args([seconds, threads, microseconds].map(|number| number.to_string()));
        Ok(Self(in_background(&command).stdin(Stdio::piped()).spawn()?))
    }

    /// Their process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Has them work, and waits for their end.
    ///
    /// # Errors
    /// When they fail.
    pub fn run(mut self) -> Result<()> {
        self.0.stdin.take().context("no gate")?.write_all(b"\n")?;
        let status = self.0.wait()?;
        ensure!(status.success(), "they ended with {status}");
        Ok(())
    }
}

impl Drop for Switches {
    fn drop(&mut self) {
        // Ends what a failing test left running.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
