//! The rows of the screen, from a profile: sorted and filtered.

use std::collections::HashMap;

use sidewinder_render::{DisplayNames, NameStyle, OutcomeCount, Profile, Severity, escaped, functions};

/// What each row stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Tab {
    Functions,
    Processes,
}

/// What rows are sorted by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SortOrder {
    /// By self count, descending.
    SelfCount,
    /// By total count, descending.
    TotalCount,
    Name,
}

/// One function or process. The texts have no control characters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct TopRow {
    pub(super) name: String,
    /// The function's binary, or the process ID.
    pub(super) owner: String,
    pub(super) self_count: u64,
    pub(super) total_count: u64,
}

/// The rows of a profile whose name or owner contains the filter, whatever its case.
pub(super) fn rows(
    profile: &Profile,
    tab: Tab,
    order: SortOrder,
    filter: &str,
    names: NameStyle,
) -> Vec<TopRow> {
    let mut rows = match tab {
        Tab::Functions => function_rows(profile, names),
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

fn function_rows(profile: &Profile, style: NameStyle) -> Vec<TopRow> {
    let names = DisplayNames::new([profile], style);
    let functions = functions(profile).into_iter().map(|function| TopRow {
        name: names.shown(&function.name).into_owned(),
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

/// One line on the outcomes of interrupts since the start.
pub(super) fn outcomes_line(outcomes: &[OutcomeCount]) -> String {
    let sum = |severity| -> u64 {
        outcomes.iter().filter(|outcome| outcome.severity == severity).map(|outcome| outcome.count).sum()
    };
    let [complete, truncated, lost] = [Severity::Complete, Severity::Truncated, Severity::Lost].map(sum);
    let total = complete + truncated + lost;
    if total == 0 {
        return "no samples so far".to_owned();
    }
    let share = 100.0 * complete as f64 / total as f64;
    format!("{share:.1}% complete, {truncated} truncated, {lost} lost since start")
}

#[cfg(test)]
mod tests {
    use sidewinder_kind::Kind;
    use sidewinder_render::{
        FrameCategory, FrameIndex, ProfileFrame, ProfileSample, ProfileThread, SampleType, StackIndex,
        ThreadIndex,
    };

    use super::*;

    /// Two processes: `a` calls `B` in the first, and uses the CPU itself in the other.
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
            state: None,
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
        rows(&profile(), tab, order, filter, NameStyle::Short)
            .into_iter()
            .map(|row| (row.name, row.self_count, row.total_count))
            .collect()
    }

    #[test]
    fn rows_are_sorted_filtered_and_without_control_characters() {
        let (a, b) = (("a\\u{7}".to_owned(), 4, 10), ("B".to_owned(), 6, 6));
        assert_eq!(named(Tab::Functions, SortOrder::SelfCount, ""), [b.clone(), a.clone()]);
        assert_eq!(named(Tab::Functions, SortOrder::TotalCount, ""), [a.clone(), b.clone()]);
        assert_eq!(named(Tab::Functions, SortOrder::Name, ""), [b.clone(), a]);
        assert_eq!(named(Tab::Functions, SortOrder::SelfCount, "b"), [b]);
        let processes = [("one".to_owned(), 6, 6), ("two".to_owned(), 4, 4)];
        assert_eq!(named(Tab::Processes, SortOrder::SelfCount, ""), processes);
        assert_eq!(named(Tab::Processes, SortOrder::SelfCount, "2"), processes[1..], "by its process ID");
    }

    #[test]
    fn truncated_and_lost_samples_are_shown() {
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
            "97.0% complete, 2 truncated, 1 lost since start"
        );
    }
}
