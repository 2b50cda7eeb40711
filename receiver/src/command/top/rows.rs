//! The rows of the screen, from a profile: sorted and filtered.

use std::collections::HashMap;

use sidewinder_render::{
    DisplayNames, FunctionId, FunctionOrder, FunctionTotals, NameStyle, OutcomeCount, Profile,
    ProfileContainer, Severity, callers, escaped, functions_of_process,
};

/// What the rows are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum View {
    /// The functions of a process, or of all.
    Functions(Option<ProcessId>),
    Processes,
    /// The callers of a function, in a process or in all. The function comes first; then the caller whose callers these are, or a
    /// chain of callers up to it.
    Callers(Option<ProcessId>, Vec<Callee>),
}

/// A process that was selected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ProcessId {
    pub(super) pid: u32,
    pub(super) name: String,
}

/// A function that was selected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Callee {
    pub(super) id: FunctionId,
    /// As its row showed it.
    pub(super) shown: String,
}

impl View {
    /// The details of a row of this view: a process's functions, a function's callers. The absence of a caller has none.
    pub(super) fn details(&self, row: &TopRow) -> Option<Self> {
        let id = match row.target.clone()? {
            RowTarget::Function(id) => id,
            RowTarget::Process(pid) => {
                return Some(Self::Functions(Some(ProcessId { pid, name: row.name.clone() })));
            }
        };
        let (process, mut chain) = match self {
            Self::Functions(process) => (process.clone(), Vec::new()),
            Self::Callers(process, chain) => (process.clone(), chain.clone()),
            Self::Processes => return None,
        };
        chain.push(Callee { id, shown: row.name.clone() });
        Some(Self::Callers(process, chain))
    }

    /// What is shown, for views that a row led to; `None` for all functions and all processes.
    pub(super) fn title(&self) -> Option<String> {
        let (process, chain) = match self {
            Self::Functions(process) => (process.as_ref(), &[][..]),
            Self::Processes => (None, &[][..]),
            Self::Callers(process, chain) => (process.as_ref(), &**chain),
        };
        let in_process = process.map(|process| format!("{} (PID {})", process.name, process.pid));
        let calls: Vec<_> = chain.iter().rev().map(|callee| &*callee.shown).collect();
        match (calls.is_empty(), in_process) {
            (true, None) => None,
            (true, Some(process)) => Some(format!("functions of {process}")),
            (false, None) => Some(format!("callers of {}", calls.join(" → "))),
            (false, Some(process)) => Some(format!("callers of {}, in {process}", calls.join(" → "))),
        }
    }
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

impl From<FunctionOrder> for SortOrder {
    fn from(order: FunctionOrder) -> Self {
        match order {
            FunctionOrder::SelfCount => Self::SelfCount,
            FunctionOrder::TotalCount => Self::TotalCount,
        }
    }
}

/// One function or process. The texts have no control characters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct TopRow {
    pub(super) name: String,
    /// The function's binary, or the process ID.
    pub(super) owner: String,
    pub(super) self_count: u64,
    pub(super) total_count: u64,
    /// `None`: nothing that has details.
    pub(super) target: Option<RowTarget>,
}

/// What a row stands for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum RowTarget {
    Function(FunctionId),
    Process(u32),
}

/// The rows of a profile whose name or owner contains the filter, whatever its case.
pub(super) fn rows(
    profile: &Profile,
    view: &View,
    order: SortOrder,
    filter: &str,
    names: NameStyle,
) -> Vec<TopRow> {
    let pid = |process: &Option<ProcessId>| process.as_ref().map(|process| process.pid);
    let mut rows = match view {
        View::Functions(process) => {
            function_rows(profile, functions_of_process(profile, pid(process)), names)
        }
        View::Processes => process_rows(profile),
        View::Callers(process, chain) => {
            let chain: Vec<_> = chain.iter().map(|callee| callee.id.clone()).collect();
            function_rows(profile, callers(profile, pid(process), &chain), names)
        }
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

fn function_rows(profile: &Profile, functions: Vec<FunctionTotals<'_>>, style: NameStyle) -> Vec<TopRow> {
    let names = DisplayNames::new([profile], style).with_lock_sites([profile]);
    let rows = functions.into_iter().map(|function| TopRow {
        name: names.shown(&function.name).into_owned(),
        owner: if function.binary.is_empty() { String::new() } else { escaped(function.binary).into_owned() },
        self_count: function.self_count,
        total_count: function.total_count,
        target: function.id().map(RowTarget::Function),
    });
    rows.collect()
}

fn process_rows(profile: &Profile) -> Vec<TopRow> {
    let mut events = HashMap::<(u32, &str, &ProfileContainer), u64>::new();
    for sample in &profile.samples {
        let Some(thread) = profile.threads.get(sample.thread.0 as usize) else { continue };
        *events.entry((thread.pid, &thread.process, &thread.container)).or_default() += sample.count;
    }
    let rows = events.into_iter().map(|((pid, name, container), events)| TopRow {
        name: process_name(name, &container.label()),
        owner: pid.to_string(),
        self_count: events,
        total_count: events,
        target: Some(RowTarget::Process(pid)),
    });
    rows.collect()
}

/// The name of a process, and what its container or its unit is called.
fn process_name(name: &str, container: &str) -> String {
    let name = escaped(name);
    if container.is_empty() { name.into_owned() } else { format!("{name}  {}", escaped(container)) }
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
pub(super) mod tests {
    use std::slice;

    use sidewinder_kind::Kind;
    use sidewinder_profile::{Dictionary, LinkIndex, Location, SourceLine};
    use sidewinder_render::{ProfileSample, ProfileThread, SampleType, StatedAttributes, ThreadIndex};

    use super::*;

    /// Two processes: `a` calls `B` in the first, and uses the CPU itself in the other.
    fn profile() -> Profile {
        profile_of("")
    }

    /// The same of a file.
    pub(in super::super) fn profile_of(path: &str) -> Profile {
        let mut dictionary = Dictionary::default();
        let mapping = dictionary.add_file(path);
        let mut location = |name: &str| {
            let lines = [dictionary.add_line(&SourceLine { function: name, ..SourceLine::default() })];
            dictionary.add_location(&Location { mapping, lines: &lines, ..Location::default() })
        };
        let (a, b) = (location("a\u{7}"), location("B"));
        let thread = |process: &str, pid| ProfileThread {
            process: process.into(),
            pid,
            name: process.into(),
            tid: pid,
            container: "".into(),
        };
        let mut sample = |thread, stack: &[_], count| ProfileSample {
            slice: 0,
            thread: ThreadIndex(thread),
            span: LinkIndex::default(),
            state: None,
            stated: StatedAttributes::default(),
            stack: dictionary.add_stack(stack),
            count,
        };
        let measure = SampleType::from_kind(Kind::Cpu { samples_per_second: 1 });
        let samples = vec![sample(0, &[b, a], 6), sample(1, &[a], 4)];
        Profile {
            dictionary,
            threads: vec![thread("one", 1), thread("two", 2)],
            samples,
            ..Profile::new(String::new(), measure)
        }
    }

    fn named(view: &View, order: SortOrder, filter: &str) -> Vec<(String, u64, u64)> {
        rows(&profile(), view, order, filter, NameStyle::Short)
            .into_iter()
            .map(|row| (row.name, row.self_count, row.total_count))
            .collect()
    }

    #[test]
    fn rows_are_sorted_filtered_and_without_control_characters() {
        let (a, b) = (("a\\u{7}".to_owned(), 4, 10), ("B".to_owned(), 6, 6));
        assert_eq!(named(&View::Functions(None), SortOrder::SelfCount, ""), [b.clone(), a.clone()]);
        assert_eq!(named(&View::Functions(None), SortOrder::TotalCount, ""), [a.clone(), b.clone()]);
        assert_eq!(named(&View::Functions(None), SortOrder::Name, ""), [b.clone(), a]);
        assert_eq!(named(&View::Functions(None), SortOrder::SelfCount, "b"), [b]);
        let processes = [("one".to_owned(), 6, 6), ("two".to_owned(), 4, 4)];
        assert_eq!(named(&View::Processes, SortOrder::SelfCount, ""), processes);
        assert_eq!(named(&View::Processes, SortOrder::SelfCount, "2"), processes[1..], "by its process ID");
    }

    #[test]
    fn a_process_has_its_container_beside_its_name() {
        let mut profile = profile();
        profile.threads[1].container.unit = "two.service".into();
        let rows = rows(&profile, &View::Processes, SortOrder::Name, "service", NameStyle::Short);
        assert_eq!(rows.iter().map(|row| &*row.name).collect::<Vec<_>>(), ["two  two.service"]);
    }

    #[test]
    fn a_process_leads_to_its_functions_and_a_function_to_its_callers() {
        let profile = profile();
        let details = |view: &View, name: &str| {
            let rows = rows(&profile, view, SortOrder::SelfCount, "", NameStyle::Short);
            view.details(rows.iter().find(|row| row.name == name).expect("the row"))
        };
        let below = |view: &View, name: &str| details(view, name).expect("details");
        let process = below(&View::Processes, "one");
        let (a, b) = (("a\\u{7}".to_owned(), 0, 6), ("B".to_owned(), 6, 6));
        assert_eq!(named(&process, SortOrder::SelfCount, ""), [b, a.clone()]);
        let callers = below(&process, "B");
        let of_leaf = (a.0, 6, 6);
        assert_eq!(named(&callers, SortOrder::SelfCount, ""), slice::from_ref(&of_leaf));
        let outermost = below(&callers, &of_leaf.0);
        assert_eq!(named(&outermost, SortOrder::SelfCount, ""), [("[no caller]".to_owned(), 6, 6)]);
        assert_eq!(outermost.title().as_deref(), Some("callers of a\\u{7} → B, in one (PID 1)"));
        assert_eq!(details(&outermost, "[no caller]"), None);
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
