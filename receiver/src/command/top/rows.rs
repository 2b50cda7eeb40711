//! What the screen shows of a profile: rows, sorted and filtered.

use std::collections::HashMap;

use sidewinder_render::{OutcomeCount, Profile, Severity, escaped, functions};

/// What rows are of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Tab {
    Functions,
    Processes,
}

/// What rows are sorted by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SortOrder {
    /// What each did itself, the most first.
    SelfCount,
    /// What each caused.
    TotalCount,
    Name,
}

/// One function or process. Texts hold nothing that a terminal acts on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct TopRow {
    pub(super) name: String,
    /// The function's binary, or the process's number.
    pub(super) owner: String,
    pub(super) self_count: u64,
    pub(super) total_count: u64,
}

/// The rows of a profile, of which each has a part of its texts that the filter names.
pub(super) fn rows(profile: &Profile, tab: Tab, order: SortOrder, filter: &str) -> Vec<TopRow> {
    let mut rows = match tab {
        Tab::Functions => function_rows(profile),
        Tab::Processes => process_rows(profile),
    };
    let filter = filter.to_lowercase();
    rows.retain(|row| [&row.name, &row.owner].iter().any(|text| text.to_lowercase().contains(&filter)));
    rows.sort_by(|a, b| {
        let by_name = || a.name.cmp(&b.name).then_with(|| a.owner.cmp(&b.owner));
        match order {
            SortOrder::SelfCount => {
                (b.self_count, b.total_count).cmp(&(a.self_count, a.total_count)).then_with(by_name)
            }
            SortOrder::TotalCount => {
                (b.total_count, b.self_count).cmp(&(a.total_count, a.self_count)).then_with(by_name)
            }
            SortOrder::Name => by_name(),
        }
    });
    rows
}

fn function_rows(profile: &Profile) -> Vec<TopRow> {
    let functions = functions(profile).into_iter().map(|function| TopRow {
        name: escaped(&function.name).into_owned(),
        owner: if function.binary.is_empty() { String::new() } else { escaped(function.binary).into_owned() },
        self_count: function.self_count,
        total_count: function.total_count,
    });
    functions.collect()
}

fn process_rows(profile: &Profile) -> Vec<TopRow> {
    let mut events = HashMap::<(u32, &str), u64>::new();
    for sample in &profile.samples {
        let Some(thread) = profile.threads.get(sample.thread.0 as usize) else { continue };
        *events.entry((thread.pid, &thread.process)).or_default() += sample.count;
    }
    let rows = events.into_iter().map(|((pid, name), events)| TopRow {
        name: escaped(name).into_owned(),
        owner: pid.to_string(),
        self_count: events,
        total_count: events,
    });
    rows.collect()
}

/// How the interrupts since the start ended, in a line.
pub(super) fn outcomes_line(outcomes: &[OutcomeCount]) -> String {
    let sum = |severity| -> u64 {
        outcomes.iter().filter(|outcome| outcome.severity == severity).map(|outcome| outcome.count).sum()
    };
    let [complete, cut, lost] = [Severity::Complete, Severity::Truncated, Severity::Lost].map(sum);
    let wanted = complete + cut + lost;
    if wanted == 0 {
        return "no samples so far".to_owned();
    }
    let share = 100.0 * complete as f64 / wanted as f64;
    format!("{share:.1}% complete, {cut} truncated, {lost} lost since the start")
}

#[cfg(test)]
mod tests {
    use sidewinder_kind::Kind;
    use sidewinder_render::{
        FrameCategory, FrameIndex, ProfileFrame, ProfileSample, ProfileThread, SampleType, StackIndex,
        ThreadIndex,
    };

    use super::*;

    /// Two processes: `a` calls `b` in the first, and works itself in the other.
    fn profile() -> Profile {
        let frame = |name: &str| ProfileFrame {
            name: name.to_owned(),
            is_named: true,
            system_name: String::new(),
            binary: None,
            kind: FrameCategory::Native,
            address: 0,
            path: String::new(),
            line: 0,
            is_guessed: false,
        };
        let thread = |process: &str, pid| ProfileThread {
            process: process.into(),
            pid,
            name: process.into(),
            tid: pid,
            container: "".into(),
        };
        let sample = |thread, stack, count| ProfileSample {
            slice: 0,
            thread: ThreadIndex(thread),
            span: None,
            stack: StackIndex(stack),
            count,
        };
        let measure = SampleType::from_kind(Kind::Cpu { samples_per_second: 1 });
        Profile {
            frames: vec![frame("a\u{7}"), frame("B")],
            stacks: vec![vec![FrameIndex(1), FrameIndex(0)], vec![FrameIndex(0)]],
            threads: vec![thread("one", 1), thread("two", 2)],
            samples: vec![sample(0, 0, 6), sample(1, 1, 4)],
            ..Profile::new(String::new(), measure)
        }
    }

    fn named(tab: Tab, order: SortOrder, filter: &str) -> Vec<(String, u64, u64)> {
        rows(&profile(), tab, order, filter)
            .into_iter()
            .map(|row| (row.name, row.self_count, row.total_count))
            .collect()
    }

    #[test]
    fn rows_are_sorted_and_filtered_and_hold_nothing_that_a_terminal_acts_on() {
        let (a, b) = (("a\\u{7}".to_owned(), 4, 10), ("B".to_owned(), 6, 6));
        assert_eq!(named(Tab::Functions, SortOrder::SelfCount, ""), [b.clone(), a.clone()]);
        assert_eq!(named(Tab::Functions, SortOrder::TotalCount, ""), [a.clone(), b.clone()]);
        assert_eq!(named(Tab::Functions, SortOrder::Name, ""), [b.clone(), a]);
        assert_eq!(named(Tab::Functions, SortOrder::SelfCount, "b"), [b]);
        let processes = [("one".to_owned(), 6, 6), ("two".to_owned(), 4, 4)];
        assert_eq!(named(Tab::Processes, SortOrder::SelfCount, ""), processes);
        assert_eq!(named(Tab::Processes, SortOrder::SelfCount, "2"), processes[1..], "by its number");
    }

    #[test]
    fn whatever_is_cut_or_lost_is_said() {
        let outcome =
            |severity, count| OutcomeCount { name: String::new(), count, severity, help: String::new() };
        assert_eq!(outcomes_line(&[outcome(Severity::Excluded, 7)]), "no samples so far");
        assert_eq!(
            outcomes_line(&[
                outcome(Severity::Complete, 97),
                outcome(Severity::Truncated, 2),
                outcome(Severity::Lost, 1),
                outcome(Severity::Excluded, 1000),
            ]),
            "97.0% complete, 2 truncated, 1 lost since the start"
        );
    }
}
