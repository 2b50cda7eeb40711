//! The corpus as a table, with its sums.

use std::collections::BTreeMap;
use std::fmt;

use super::managed::ManagedFrames;
use super::programs::Subject;
use super::python::PythonFrames;
use super::samples::{EXAMPLES, Ends, Samples};

/// See the [module](self).
#[derive(Debug, Default)]
pub struct Table {
    rows: Vec<Row>,
}

#[derive(Debug)]
struct Row {
    name: &'static str,
    group: &'static str,
    samples: Samples,
    by_service: Option<Samples>,
}

impl Table {
    /// Adds a program's samples, with those by the service if the others are by `record`.
    pub fn push(&mut self, subject: &Subject, samples: Samples, by_service: Option<Samples>) {
        self.rows.push(Row { name: subject.name, group: subject.group, samples, by_service });
    }

    /// How all native stacks ended.
    #[must_use]
    pub fn native(&self) -> Ends {
        self.sum(|samples| &samples.native)
    }

    /// The same of the service, beside `record`.
    #[must_use]
    pub fn by_service(&self) -> Ends {
        let mut sum = Ends::default();
        let by_service = self.rows.iter().filter_map(|row| row.by_service.as_ref());
        by_service.for_each(|samples| sum.add_all(&samples.native));
        sum
    }

    /// How those ended that are not from the start of a program.
    #[must_use]
    pub fn settled(&self) -> Ends {
        self.sum(|samples| &samples.settled)
    }

    /// Frames of Python, by program.
    pub fn python(&self) -> impl Iterator<Item = (&'static str, &PythonFrames)> {
        let rows = self.rows.iter().map(|row| (row.name, &row.samples.python));
        rows.filter(|(_, python)| python.samples > 0)
    }

    /// Frames of Java and JavaScript, by program.
    pub fn managed(&self) -> impl Iterator<Item = (&'static str, &ManagedFrames)> {
        self.rows.iter().filter_map(|row| Some((row.name, row.samples.managed.as_ref()?)))
    }

    fn sum(&self, of: impl Fn(&Samples) -> &Ends) -> Ends {
        let mut sum = Ends::default();
        self.rows.iter().for_each(|row| sum.add_all(of(&row.samples)));
        sum
    }

    /// Stacks that were never there.
    #[must_use]
    pub fn wrong(&self) -> u64 {
        self.rows.iter().flat_map(Row::of_both).map(|samples| samples.wrong).sum()
    }
}

impl Row {
    fn of_both(&self) -> impl Iterator<Item = &Samples> {
        [Some(&self.samples), self.by_service.as_ref()].into_iter().flatten()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<12} {:<20} {:>8} {:>8} {:>7} {:>8} {:>8} {:>8} {:>8} {:>8} {:>6} {:>6} {:>6}  cut",
            "program",
            "",
            "expected",
            "received",
            "no user",
            "native",
            "complete",
            "share",
            "in 64Mi",
            "after 1s",
            "mean",
            "max",
            "wrong"
        )?;
        self.rows.iter().try_for_each(|row| write_row(f, row))?;
        let (native, settled) = (self.native(), self.settled());
        writeln!(
            f,
            "{} native user stacks, {} complete ({}); of {} after a program's first second, {} ({}); {} wrong",
            native.all(),
            native.complete,
            percent(&native),
            settled.all(),
            settled.complete,
            percent(&settled),
            self.wrong()
        )?;
        let by_service = self.by_service();
        if by_service.all() > 0 {
            let (all, complete) = (by_service.all(), by_service.complete);
            writeln!(
                f,
                "by the service in 64Mi: {all} native user stacks, {complete} complete ({})",
                percent(&by_service)
            )?;
        }
        for row in &self.rows {
            let Row { name, samples, .. } = row;
            if samples.python.samples > 0 {
                writeln!(f, "{name}: {}", samples.python)?;
            }
            if let Some(managed) = &samples.managed {
                writeln!(f, "{name}: {managed}")?;
            }
            for (end, events) in samples.ends_of_cut.iter().take(EXAMPLES) {
                writeln!(f, "{name}: {events} x {end}")?;
            }
            let examples = row.of_both().flat_map(|samples| &samples.examples);
            examples.into_iter().try_for_each(|example| writeln!(f, "{name}: wrong: {example}"))?;
        }
        Ok(())
    }
}

fn write_row(f: &mut fmt::Formatter<'_>, row: &Row) -> fmt::Result {
    let Row { name, group, samples, by_service } = row;
    let native = &samples.native;
    let counted = |counts: &BTreeMap<String, u64>| {
        let counts = counts.iter().filter(|(_, events)| **events > 0);
        counts.map(|(outcome, events)| format!("{outcome} {events}")).collect::<Vec<_>>().join(", ")
    };
    write!(
        f,
        "{name:<12} {group:<20} {:>8.0} {:>8} {:>7} {:>8} {:>8} {:>8} {:>8} {:>8} {:>6.1} {:>6} {:>6}  {}",
        samples.expected.events,
        samples.received,
        samples.no_user_stack,
        native.all(),
        native.complete,
        percent(native),
        by_service.as_ref().map_or_else(|| "-".to_owned(), |samples| percent(&samples.native)),
        percent(&samples.settled),
        samples.depth_mean(),
        samples.depth_max,
        samples.wrong,
        counted(&native.cut),
    )?;
    if samples.lost.values().any(|events| *events > 0) {
        write!(f, " (lost: {})", counted(&samples.lost))?;
    }
    let generated = &samples.generated;
    if generated.all() > 0 {
        write!(f, " (through generated code: {} of {} complete)", generated.complete, generated.all())?;
    }
    writeln!(f)
}

fn percent(ends: &Ends) -> String {
    format!("{:.3}%", 100.0 * ends.complete_share())
}
