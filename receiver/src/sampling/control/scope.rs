//! The rules of the scope: which processes are sampled. They are the rules that the eBPF programs apply, with those that take
//! reading `/proc`.
//!
//! The rules have no effect by themselves: [`evaluate`](SamplingScope::evaluate) says how the programs' list is to change.

use std::collections::{HashMap, HashSet};

use sidewinder_bpf::TaskFilter;
use sidewinder_config::Selector;
use sidewinder_process::{
    ContainerId, Pid, PodBounds, ProcRoot, ProcessDir, ProcessEvent, ProcessEventKind, container_id,
};
use wildmatch::WildMatch;

use crate::foreign::{ForeignReader, ReadProgress, ReadTarget};

/// The part of a command line that patterns see.
const COMMAND_LINE_BYTES_MAX: u64 = 64 * 1024;

/// See the [module](self).
#[derive(Clone, Debug)]
pub(crate) struct SamplingScope {
    /// Whether the scope is our pod.
    pub(crate) is_pod: bool,
    /// Whether a process brings its whole container into scope.
    by_container: bool,
    include: Matcher,
    exclude: Matcher,
    /// The containers that have come into scope.
    containers: HashSet<ContainerId>,
    /// Our pod, if the events of every task arrive.
    pod_bounds: Option<PodBounds>,
    /// Processes of our PID namespace outside our pod.
    pids_outside_pod: HashSet<u32>,
    /// The programs' list: the included processes if there are any, else the excluded ones.
    listed: HashMap<u32, ListedSince>,
    /// Listed processes that the programs have yet to list: they were forked before the programs listed their parent.
    pending: Vec<u32>,
    /// Reads command lines, which are memory of processes.
    reader: Option<ForeignReader>,
}

/// Since when the programs list a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ListedSince {
    /// They don't yet.
    Pending,
    /// Since this time of `CLOCK_MONOTONIC`: they don't list the children that it forked before.
    Since(u64),
    /// Since its fork, by themselves.
    FromTheStart,
}

/// How the list is to change for a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ListChange {
    /// Not at all.
    None,
    /// The process is to be added.
    Add,
    /// The process is to be removed.
    Remove,
}

impl SamplingScope {
    /// Every process that our PID namespace knows.
    pub(crate) fn whole_node() -> Self {
        Self::from_config(&sidewinder_config::Scope::default())
    }

    /// These processes, and what they fork.
    pub(crate) fn from_pids(pids: impl IntoIterator<Item = u32>) -> Self {
        let mut scope = Self::whole_node();
        scope.include.pids = pids.into_iter().collect();
        scope
    }

    /// Processes of these names, now or later, and what they fork. `*` and `?` stand for any characters.
    pub(crate) fn from_names(names: &[String]) -> Self {
        let mut scope = Self::whole_node();
        scope.include.names = names.iter().map(|name| WildMatch::new(name)).collect();
        scope
    }

    pub(crate) fn from_config(config: &sidewinder_config::Scope) -> Self {
        use sidewinder_config::ScopeMode;
        Self {
            is_pod: matches!(config.mode, ScopeMode::Pod | ScopeMode::Container),
            by_container: config.mode == ScopeMode::Container,
            include: Matcher::from_selector(&config.include),
            exclude: Matcher::from_selector(&config.exclude),
            containers: HashSet::new(),
            pod_bounds: None,
            pids_outside_pod: HashSet::new(),
            listed: HashMap::new(),
            pending: Vec::new(),
            reader: None,
        }
    }

    /// Sets the reader of command lines.
    pub(crate) fn set_reader(&mut self, reader: ForeignReader) {
        self.reader = Some(reader);
    }

    /// What the list means to the programs.
    pub(crate) fn mode(&self) -> TaskFilter {
        match (self.include.is_empty(), self.exclude.is_empty()) {
            (false, _) => TaskFilter::Listed,
            (true, false) => TaskFilter::Unlisted,
            (true, true) => TaskFilter::All,
        }
    }

    /// The processes that are included by PID.
    pub(crate) fn pids(&self) -> Vec<u32> {
        self.include.pids.iter().copied().collect()
    }

    /// Restricts the scope to a pod, by the cgroups of processes.
    pub(crate) fn restrict_to_pod(&mut self, pod: PodBounds) {
        self.pod_bounds = Some(pod);
    }

    /// Whether an exec may bring a process into scope, or out of it.
    pub(crate) fn depends_on_exec(&self) -> bool {
        self.pod_bounds.is_some() || self.has_patterns()
    }

    fn has_patterns(&self) -> bool {
        self.by_container || self.include.has_patterns() || self.exclude.has_patterns()
    }

    /// Whether a process is in scope.
    pub(crate) fn contains(&self, pid: u32) -> bool {
        let is_selected = match self.mode() {
            TaskFilter::All => true,
            TaskFilter::Listed => self.listed.contains_key(&pid),
            TaskFilter::Unlisted => !self.listed.contains_key(&pid),
        };
        is_selected && !self.pids_outside_pod.contains(&pid)
    }

    /// Whether an event is about a process in scope. Forks change the scope, so events come in order of time.
    pub(crate) fn admit_event(&mut self, event: &ProcessEvent) -> bool {
        if matches!(event.kind, ProcessEventKind::Lost { .. }) {
            return true;
        }
        // The kernel writes 0 or -1 where our PID namespace has no number for the process.
        let pid = event.pid.0;
        if pid == 0 || pid == u32::MAX {
            return false;
        }
        if let ProcessEventKind::Fork { parent, is_thread: false } = event.kind {
            self.fork(parent.0, pid, event.time_ns);
        }
        let is_in_scope = self.contains(pid);
        if matches!(event.kind, ProcessEventKind::Exit { tid } if tid.0 == pid) && !is_in_scope {
            // No further event of it is followed.
            self.remove_exited(pid);
        }
        is_in_scope
    }

    /// A child is in scope if its parent is. Its PID may have been another process's.
    fn fork(&mut self, parent: u32, child: u32, time_ns: u64) {
        self.remove_exited(child);
        if self.pids_outside_pod.contains(&parent) {
            self.pids_outside_pod.insert(child);
        }
        let known = match self.listed.get(&parent) {
            None => return,
            Some(ListedSince::FromTheStart) => ListedSince::FromTheStart,
            Some(ListedSince::Since(listed_ns)) if *listed_ns < time_ns => ListedSince::FromTheStart,
            Some(ListedSince::Since(_) | ListedSince::Pending) => ListedSince::Pending,
        };
        if known == ListedSince::Pending {
            self.pending.push(child);
        }
        self.listed.insert(child, known);
    }

    /// Takes the listed processes that the programs have yet to list.
    pub(crate) fn take_pending(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.pending)
    }

    /// Notes that the programs list a process from this time on.
    pub(crate) fn mark_listed(&mut self, pid: u32, now_ns: u64) {
        if let Some(known) = self.listed.get_mut(&pid) {
            *known = ListedSince::Since(now_ns);
        }
    }

    /// Whether a process is excluded. A sample of it is from before the programs listed it.
    pub(crate) fn excludes(&self, pid: u32) -> bool {
        self.mode() == TaskFilter::Unlisted && self.listed.contains_key(&pid)
    }

    /// Applies the rules to a process, which may have become another program by exec.
    pub(crate) fn evaluate(&mut self, pid: u32) -> ListChange {
        let Ok(process) = ProcessDir::open(&ProcRoot::default(), Pid(pid)) else { return ListChange::None };
        if let Some(pod) = &self.pod_bounds
            && !process.read("cgroup").is_ok_and(|cgroup| pod.contain(&cgroup))
        {
            self.pids_outside_pod.insert(pid);
            return ListChange::None;
        }
        self.pids_outside_pod.remove(&pid);
        if self.mode() == TaskFilter::All {
            return ListChange::None;
        }
        let mut traits = ProcessTraits::read(&process);
        let (include, exclude) = (&self.include.command_lines, &self.exclude.command_lines);
        let command_line = if include.is_empty() && exclude.is_empty() {
            Some(String::new())
        } else {
            self.command_line(&process)
        };
        // A command line that can't be read may be an excluded one.
        let is_excluded_unseen = command_line.is_none() && !exclude.is_empty();
        traits.command_line = command_line.unwrap_or_default();
        let is_excluded = is_excluded_unseen || self.exclude.matches(pid, &traits);
        let is_included = self.include.matches(pid, &traits) || self.has_container_of(&traits);
        if self.by_container && is_included && !is_excluded {
            self.containers.extend(traits.container);
        }
        let is_listed = self.listed.contains_key(&pid);
        let is_to_be_listed = match self.mode() {
            TaskFilter::All => false,
            TaskFilter::Listed => (is_listed || is_included) && !is_excluded,
            TaskFilter::Unlisted => is_listed || is_excluded,
        };
        match (is_listed, is_to_be_listed) {
            (false, true) => {
                self.listed.insert(pid, ListedSince::Pending);
                ListChange::Add
            }
            (true, false) => {
                self.listed.remove(&pid);
                ListChange::Remove
            }
            _ => ListChange::None,
        }
    }

    /// The command line of a process; `None`: it can't be read.
    fn command_line(&self, process: &ProcessDir) -> Option<String> {
        let Some(reader) = &self.reader else { return Some(read_command_line(process)) };
        let target = ReadTarget::from_pid(process.pid()).ok()?;
        let read = move || target.open_dir().map(|process| read_command_line(&process)).unwrap_or_default();
        match reader.submit_and_wait(target, read) {
            Ok(ReadProgress::Done(text)) => Some(text),
            Ok(ReadProgress::Pending(_)) | Err(_) => None,
        }
    }

    /// The number of containers that have come into scope. When it grows, their processes are to be evaluated again.
    pub(crate) fn containers(&self) -> usize {
        self.containers.len()
    }

    fn has_container_of(&self, traits: &ProcessTraits) -> bool {
        traits.container.as_ref().is_some_and(|container| self.containers.contains(container))
    }

    /// Forgets a process that has exited.
    pub(crate) fn remove_exited(&mut self, pid: u32) {
        self.listed.remove(&pid);
        self.pids_outside_pod.remove(&pid);
    }

    /// Whether no process is in scope, and none can come into scope.
    pub(crate) fn is_empty(&self) -> bool {
        self.mode() == TaskFilter::Listed && self.listed.is_empty() && !self.has_patterns()
    }
}

/// A compiled selector.
#[derive(Clone, Debug)]
struct Matcher {
    names: Vec<WildMatch>,
    executables: Vec<WildMatch>,
    command_lines: Vec<WildMatch>,
    cgroups: Vec<WildMatch>,
    pids: HashSet<u32>,
}

impl Matcher {
    fn from_selector(selector: &Selector) -> Self {
        let patterns = |texts: &[String]| texts.iter().map(|text| WildMatch::new(text)).collect();
        Self {
            names: patterns(&selector.names),
            executables: patterns(&selector.executables),
            command_lines: patterns(&selector.command_lines),
            cgroups: patterns(&selector.cgroups),
            pids: selector.pids.iter().map(|pid| pid.get()).collect(),
        }
    }

    fn is_empty(&self) -> bool {
        self.pids.is_empty() && !self.has_patterns()
    }

    fn has_patterns(&self) -> bool {
        [&self.names, &self.executables, &self.command_lines, &self.cgroups]
            .iter()
            .any(|patterns| !patterns.is_empty())
    }

    fn matches(&self, pid: u32, traits: &ProcessTraits) -> bool {
        let any = |patterns: &[WildMatch], text: &str| patterns.iter().any(|pattern| pattern.matches(text));
        self.pids.contains(&pid)
            || any(&self.names, &traits.name)
            || any(&self.executables, &traits.executable)
            || any(&self.command_lines, &traits.command_line)
            || any(&self.cgroups, &traits.cgroup)
    }
}

/// What patterns match. A trait that can't be read is empty. The command line is read separately, if a pattern needs it.
#[derive(Debug, Default)]
struct ProcessTraits {
    name: String,
    executable: String,
    command_line: String,
    /// Its cgroup of version 2, or its first.
    cgroup: String,
    container: Option<ContainerId>,
}

impl ProcessTraits {
    fn read(process: &ProcessDir) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let cgroups = process.read("cgroup").unwrap_or_default();
        Self {
            name: text(process.read("comm").unwrap_or_default().trim_ascii_end()),
            executable: text(&process.link("exe").unwrap_or_default()),
            command_line: String::new(),
            cgroup: cgroup_path(&text(&cgroups)),
            container: container_id(&cgroups),
        }
    }
}

/// The command line of a process, its arguments separated by spaces. May block for as long as the process likes.
fn read_command_line(process: &ProcessDir) -> String {
    let words = process.read_at_most("cmdline", COMMAND_LINE_BYTES_MAX).unwrap_or_default();
    let words: Vec<_> = words.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
    words.join(" ").trim_end().to_owned()
}

/// The path in the line `0::PATH`; if there is none, that of the first line.
fn cgroup_path(cgroups: &str) -> String {
    let unified = cgroups.lines().find_map(|line| line.strip_prefix("0::"));
    let first = || cgroups.lines().next().and_then(|line| line.splitn(3, ':').nth(2));
    unified.or_else(first).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use sidewinder_process::Tid;

    use super::*;

    fn event(pid: u32, kind: ProcessEventKind) -> ProcessEvent {
        ProcessEvent { time_ns: 1, pid: Pid(pid), kind }
    }

    fn fork(parent: u32, child: u32) -> ProcessEvent {
        event(child, ProcessEventKind::Fork { parent: Pid(parent), is_thread: false })
    }

    fn exit(pid: u32) -> ProcessEvent {
        event(pid, ProcessEventKind::Exit { tid: Tid(pid) })
    }

    fn scope(include: Selector, exclude: Selector) -> SamplingScope {
        SamplingScope::from_config(&sidewinder_config::Scope {
            include,
            exclude,
            ..sidewinder_config::Scope::default()
        })
    }

    /// A selector of names.
    fn named(name: &str) -> Selector {
        Selector { names: vec![name.to_owned()], ..Selector::default() }
    }

    fn own_name() -> String {
        std::fs::read_to_string("/proc/self/comm").unwrap().trim_end().to_owned()
    }

    #[test]
    fn a_child_is_in_scope_when_its_parent_is() {
        let own = std::process::id();
        let mut scope = SamplingScope::from_pids([own]);
        assert_eq!(scope.evaluate(own), ListChange::Add);
        assert!(scope.admit_event(&fork(own, 11)));
        assert!(scope.admit_event(&exit(11)));
        assert!(!scope.admit_event(&fork(9, 12)));
        assert!(!scope.admit_event(&exit(12)));
        scope.remove_exited(11);
        assert!(!scope.admit_event(&exit(11)));
        assert!(!scope.is_empty());
        scope.remove_exited(own);
        assert!(scope.is_empty());
    }

    #[test]
    fn children_forked_before_the_programs_list_their_parent_are_pending() {
        let own = std::process::id();
        let at = |time_ns, parent, child| ProcessEvent { time_ns, ..fork(parent, child) };
        for mut scope in [SamplingScope::from_pids([own]), scope(Selector::default(), named(&own_name()))] {
            assert_eq!(scope.evaluate(own), ListChange::Add);
            scope.admit_event(&at(10, own, 11));
            scope.admit_event(&at(11, 11, 12));
            assert_eq!(scope.take_pending(), [11, 12], "they were forked before their parent was listed");
            [own, 11, 12].into_iter().for_each(|pid| scope.mark_listed(pid, 20));
            scope.admit_event(&at(20, own, 13));
            scope.admit_event(&at(21, 12, 14));
            scope.admit_event(&at(22, 14, 15));
            assert_eq!(scope.take_pending(), [13], "the programs follow what is forked later");
            assert_eq!(scope.take_pending(), [] as [u32; 0]);
        }
    }

    #[test]
    fn the_number_of_an_excluded_process_may_be_given_to_another_one() {
        let own = std::process::id();
        let mut scope = scope(Selector::default(), named(&own_name()));
        assert_eq!(scope.evaluate(own), ListChange::Add);
        for child in (11..20_011).filter(|child| *child != own) {
            assert!(!scope.admit_event(&fork(own, child)) && scope.excludes(child));
            assert!(!scope.admit_event(&exit(child)));
        }
        assert_eq!(scope.listed.len(), 1, "what has ended is forgotten");
        scope.admit_event(&fork(own, 11));
        assert!(scope.admit_event(&fork(9, 11)), "its end was not heard of");
        assert!(!scope.excludes(11) && scope.contains(11));
    }

    #[test]
    fn no_event_of_a_foreign_namespace_is_admitted() {
        for pid in [0, u32::MAX] {
            assert!(!SamplingScope::whole_node().admit_event(&exit(pid)));
        }
    }

    #[test]
    fn a_process_comes_into_scope_by_each_of_its_traits() {
        let own = std::process::id();
        let process = ProcessDir::open(&ProcRoot::default(), Pid(own)).unwrap();
        let traits =
            ProcessTraits { command_line: read_command_line(&process), ..ProcessTraits::read(&process) };
        let one = |text: &String| vec![text.clone()];
        for selector in [
            named(&traits.name),
            named(&format!("{}*", traits.name.get(..3).unwrap())),
            Selector { executables: one(&traits.executable), ..Selector::default() },
            Selector { command_lines: one(&traits.command_line), ..Selector::default() },
            Selector { cgroups: one(&traits.cgroup), ..Selector::default() },
            Selector::from_pids([sidewinder_config::Pid::new(own).unwrap()]),
        ] {
            let mut scope = scope(selector.clone(), Selector::default());
            assert!(!scope.contains(own), "{selector:?}");
            assert_eq!(scope.evaluate(own), ListChange::Add, "{selector:?}");
            assert!(scope.contains(own) && !scope.contains(own + 1), "{selector:?}");
            assert_eq!(scope.evaluate(own), ListChange::None, "{selector:?}");
        }
        let mut other = scope(named("no-such-name"), Selector::default());
        assert_eq!(other.evaluate(own), ListChange::None);
        assert!(!other.is_empty(), "such a process may still come");
    }

    #[test]
    fn what_is_excluded_stays_out_of_either_list() {
        let own = std::process::id();
        let mut all_but = scope(Selector::default(), named(&own_name()));
        assert_eq!(all_but.mode(), TaskFilter::Unlisted);
        assert!(all_but.contains(own));
        assert_eq!(all_but.evaluate(own), ListChange::Add);
        assert!(!all_but.contains(own));
        assert!(!all_but.admit_event(&fork(own, 11)), "what it forks is left out too");
        assert!(all_but.admit_event(&fork(9, 12)));

        let mut both = scope(named("*"), named(&own_name()));
        assert_eq!((both.mode(), both.evaluate(own)), (TaskFilter::Listed, ListChange::None));
        assert!(!both.contains(own));
    }
}
