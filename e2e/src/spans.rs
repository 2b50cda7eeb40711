//! The example service in `service/`, and the truth that it writes down: when each of its threads was in which span.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::examples;

/// How far the clock of events, which is that of the time of day, may be from the log's.
const TOLERANCE_NS: u64 = 100_000;

/// The service, publishing its context, at its gate.
#[derive(Debug)]
pub struct Service {
    process: Child,
    log: tempfile::TempPath,
    /// The ids of the trace and of the span that all threads of a `job` are in, in hexadecimal digits.
    pub job: [String; 2],
}

impl Service {
    /// Starts it: `mode` is `threads`, `tasks`, `switches` or `job`.
    ///
    /// # Errors
    /// When it can't be built or started.
    pub fn start(mode: &str, seconds: f64, threads: u32, microseconds: u32) -> Result<Self> {
        Self::start_in(mode, seconds, threads, microseconds, &[])
    }

    /// As [`Service::start`], with variables in its environment.
    ///
    /// # Errors
    /// As [`Service::start`].
    pub fn start_in(
        mode: &str,
        seconds: f64,
        threads: u32,
        microseconds: u32,
        variables: &[(&str, String)],
    ) -> Result<Self> {
        let log = tempfile::NamedTempFile::new()?.into_temp_path();
        let mut process = Command::new(examples::build_rust("service", "sidewinder-example-service")?)
            .args([mode, &seconds.to_string(), &threads.to_string(), &microseconds.to_string()])
            .arg(&log)
            .envs(variables.iter().map(|(name, value)| (*name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        BufReader::new(process.stdout.take().context("no standard output")?).read_line(&mut line)?;
        let mut service = Self { process, log, job: <[String; 2]>::default() };
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [pid, trace, span] if pid.parse() == Ok(service.pid()) => {
                service.job = [trace.to_owned(), span.to_owned()];
                Ok(service)
            }
            _ => bail!("the example service said {line:?}"),
        }
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Has it work, and waits for its end.
    ///
    /// # Errors
    /// When it fails, or its log is not one.
    pub fn run(mut self) -> Result<Stays> {
        self.open()?;
        self.finish()
    }

    /// Has it work.
    ///
    /// # Errors
    /// When it does already.
    pub fn open(&mut self) -> Result<()> {
        Ok(self.process.stdin.take().context("the gate is open already")?.write_all(b"\n")?)
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// When it fails, or its log is not one.
    pub fn finish(mut self) -> Result<Stays> {
        let status = self.process.wait()?;
        if !status.success() {
            bail!("the example service ended with {status}");
        }
        Stays::read(&self.log)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // Ends a service that a failing test left behind.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A time in which a thread was in a span: published between the first two times, taken back between the last two.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stay {
    /// The span.
    pub span: [u8; 8],
    /// What was asked for in it.
    pub route: Box<str>,
    times_ns: [u64; 4],
    /// CPU time of the thread between the inner two times.
    pub cpu_ns: u64,
}

/// What spans took.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Spent {
    /// How often threads entered them, or others within them.
    pub entries: u64,
    /// CPU time.
    pub cpu_ns: u64,
}

/// What a thread published at a moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Truth {
    /// This span.
    Span([u8; 8]),
    /// None.
    Nothing,
    /// It was about to change that, by the clocks' precision.
    Changing,
}

/// All stays, by thread.
#[derive(Debug, Default)]
pub struct Stays {
    by_thread: HashMap<i64, Vec<Stay>>,
    unix_ahead_ns: u64,
}

impl Stays {
    fn read(log: &Path) -> Result<Self> {
        let text = fs::read_to_string(log)?;
        let mut lines = text.lines();
        let unix_ahead_ns = lines.next().context("an empty log")?.parse()?;
        let mut by_thread: HashMap<i64, Vec<Stay>> = HashMap::new();
        for line in lines {
            let (thread, stay) = parse(line).with_context(|| format!("{line:?} is no stay"))?;
            by_thread.entry(thread).or_default().push(stay);
        }
        for stays in by_thread.values_mut() {
            stays.sort_by_key(|stay| stay.times_ns[0]);
        }
        Ok(Self { by_thread, unix_ahead_ns })
    }

    /// All of them, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Stay> {
        self.by_thread.values().flatten()
    }

    /// How many spans they are of: a task may be in a span on several threads.
    #[must_use]
    pub fn spans(&self) -> usize {
        self.iter().map(|stay| stay.span).collect::<HashSet<_>>().len()
    }

    /// What a thread published at a time.
    #[must_use]
    pub fn at(&self, thread: i64, time_unix_ns: u64) -> Truth {
        let mut innermost = Truth::Nothing;
        for stay in self.near(thread, time_unix_ns) {
            let [_, from, to, _] = stay.times_ns;
            let time_ns = time_unix_ns - self.unix_ahead_ns;
            if !(from + TOLERANCE_NS..to.saturating_sub(TOLERANCE_NS)).contains(&time_ns) {
                return Truth::Changing;
            }
            innermost = Truth::Span(stay.span);
        }
        innermost
    }

    /// The stay of a thread in a span that it may have been in at a time.
    #[must_use]
    pub fn of(&self, thread: i64, time_unix_ns: u64, span: [u8; 8]) -> Option<&Stay> {
        self.near(thread, time_unix_ns).find(|stay| stay.span == span)
    }

    /// From when the first span was entered to when the last one was left.
    #[must_use]
    pub fn lasted(&self) -> Duration {
        let begin = self.iter().map(|stay| stay.times_ns[0]).min().unwrap_or_default();
        let end = self.iter().map(|stay| stay.times_ns[3]).max().unwrap_or_default();
        Duration::from_nanos(end - begin)
    }

    /// The stays of a thread around a time, outer ones first.
    fn near(&self, thread: i64, time_unix_ns: u64) -> impl Iterator<Item = &Stay> {
        let time_ns = time_unix_ns - self.unix_ahead_ns;
        let stays = self.by_thread.get(&thread).map_or(&[][..], Vec::as_slice);
        let begun = stays.partition_point(|stay| stay.times_ns[0] <= time_ns + TOLERANCE_NS);
        // Spans nest two deep, and hold ten others: those that are not over are among the last few that have begun.
        let last = &stays[begun.saturating_sub(32)..begun];
        last.iter().filter(move |stay| time_ns <= stay.times_ns[3] + TOLERANCE_NS)
    }

    /// What spans of each route took, without what other spans within them took.
    #[must_use]
    pub fn spent_by_route(&self) -> HashMap<&str, Spent> {
        let mut by_route: HashMap<&str, Spent> = HashMap::new();
        for stays in self.by_thread.values() {
            for (index, stay) in stays.iter().enumerate() {
                let inside =
                    stays[index + 1..].iter().take_while(|other| other.times_ns[3] <= stay.times_ns[3]);
                let inside: Vec<u64> = inside.map(|other| other.cpu_ns).collect();
                let inside_ns: u64 = inside.iter().sum();
                let spent = by_route.entry(&*stay.route).or_default();
                spent.entries += 1 + inside.len() as u64;
                spent.cpu_ns += stay.cpu_ns.saturating_sub(inside_ns);
            }
        }
        by_route
    }
}

fn parse(line: &str) -> Option<(i64, Stay)> {
    let mut words = line.split(' ');
    let thread = words.next()?.parse().ok()?;
    let span = u64::from_str_radix(words.next()?, 16).ok()?.to_be_bytes();
    let route = words.next()?.into();
    let mut number = || words.next()?.parse().ok();
    let times_ns = [number()?, number()?, number()?, number()?];
    Some((thread, Stay { span, route, times_ns, cpu_ns: number()? }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_span_counts_and_its_edges_are_uncertain() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let log = folder.path().join("log");
        let text = "0\n7 0000000000000101 /a 1000000 1000010 9000000 9000010 600\n\
                    7 0000000000000207 /b 4000000 4000010 6000000 6000010 200\n";
        fs::write(&log, text)?;
        let stays = Stays::read(&log)?;
        let outer = 0x101_u64.to_be_bytes();
        let inner = 0x207_u64.to_be_bytes();
        for (time_ns, truth) in [
            (500_000, Truth::Nothing),
            (900_000, Truth::Changing),
            (2_000_000, Truth::Span(outer)),
            (4_000_005, Truth::Changing),
            (5_000_000, Truth::Span(inner)),
            (7_000_000, Truth::Span(outer)),
            (9_100_000, Truth::Changing),
            (9_900_000, Truth::Nothing),
        ] {
            assert_eq!(stays.at(7, time_ns), truth, "{time_ns}");
            assert_eq!(stays.at(8, time_ns), Truth::Nothing);
        }
        assert!(stays.of(7, 5_000_000, outer).is_some() && stays.of(7, 3_000_000, inner).is_none());
        let spent = stays.spent_by_route();
        assert_eq!(spent["/a"], Spent { entries: 2, cpu_ns: 400 });
        assert_eq!(spent["/b"], Spent { entries: 1, cpu_ns: 200 });
        assert_eq!(stays.lasted(), Duration::from_nanos(8_000_010));
        Ok(())
    }
}
