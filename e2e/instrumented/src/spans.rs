//! The truth that the example service writes down: when each of its threads was in which span.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};

/// How far the clock of events, which is that of the time of day, may be from the log's.
const TOLERANCE_NS: u64 = 100_000;

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
    /// Reads the log of a service that has ended.
    ///
    /// # Errors
    /// When it is no such log.
    pub fn read(log: &Path) -> Result<Self> {
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

    /// How many threads were in a span.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.by_thread.len()
    }

    /// How many spans went on on another thread than they had begun on.
    #[must_use]
    pub fn moved(&self) -> usize {
        let mut threads: HashMap<[u8; 8], HashSet<i64>> = HashMap::new();
        for (thread, stays) in &self.by_thread {
            for stay in stays {
                threads.entry(stay.span).or_default().insert(*thread);
            }
        }
        threads.values().filter(|threads| threads.len() > 1).count()
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
