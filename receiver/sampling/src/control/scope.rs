//! The rules of the scope: which processes are sampled. They are the rules that the eBPF programs apply, and those that need
//! `/proc`.
//!
//! Input: the configuration, process events and `/proc`. Output: the changes to make to the programs' list. The rules have
//! no effect by themselves: [`evaluate`](SamplingScope::evaluate) returns a change, and the caller applies it.

mod matcher;

use std::collections::{HashMap, HashSet};

use sidewinder_base::foreign::{ForeignReader, ReadProgress, ReadTarget};
use sidewinder_bpf::TaskFilter;
use sidewinder_process::{ContainerId, PodBounds, ProcessDir, ProcessEvent, ProcessEventKind};
use wildmatch::WildMatch;

use self::matcher::{Matcher, ProcessTraits, read_command_line};

/// The rules of the scope, and the processes that they currently include or exclude.
#[derive(Clone, Debug)]
pub struct SamplingScope {
    /// Whether the scope is the profiler's own pod.
    pub(crate) is_pod: bool,
    /// Whether a process brings its whole container into scope.
    by_container: bool,
    include: Matcher,
    exclude: Matcher,
    /// Whether the processes that are included by PID come into scope at their next exec.
    begins_at_exec: bool,
    /// Whether the descendants of processes are included or excluded with them.
    has_children: bool,
    /// The containers that have come into scope.
    containers: HashSet<ContainerId>,
    /// Our pod, if events of every task arrive and have to be filtered.
    pod_bounds: Option<PodBounds>,
    /// Processes of our PID namespace outside our pod.
    pids_outside_pod: HashSet<u32>,
    /// The programs' list: the included processes if there are any, else the excluded ones.
    listed: HashMap<u32, ListedSince>,
    /// Processes in `listed` that the programs don't list yet, because they were forked before the programs listed their
    /// parent.
    pending: Vec<ForkedProcess>,
    /// Reads command lines, which are in the memory of processes.
    reader: Option<ForeignReader>,
}

/// When the programs began to list a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ListedSince {
    /// They don't list it yet.
    Pending,
    /// At this time of `CLOCK_MONOTONIC`, in nanoseconds. They don't list the children that it forked before.
    Since(u64),
    /// At its fork, on their own.
    FromTheStart,
}

/// A process, and when it was forked, by `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ForkedProcess {
    pub(crate) pid: u32,
    pub(crate) forked_ns: u64,
}

/// The change to make to the programs' list for a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ListChange {
    /// No change.
    None,
    /// Add the process.
    Add,
    /// Add the process, and any other that executes the same program.
    AddProgram,
    /// Remove the process.
    Remove,
    /// The process stays out of scope, and so does any other that executes the same program, by itself.
    RemoveProgram,
}

impl SamplingScope {
    /// Every process in our PID namespace.
    pub fn whole_node() -> Self {
        Self::from_config(&sidewinder_config::Scope::default())
    }

    /// These processes and their descendants.
    pub fn from_pids(pids: impl IntoIterator<Item = u32>) -> Self {
        let mut scope = Self::whole_node();
        scope.include.pids = pids.into_iter().collect();
        scope
    }

    /// A process that is about to execute a command, from that exec on, and its descendants.
    pub fn from_command(pid: u32) -> Self {
        Self { begins_at_exec: true, ..Self::from_pids([pid]) }
    }

    /// Processes with these names, running or started later, and their descendants. `*` and `?` are wildcards.
    pub fn from_names(names: &[String]) -> Self {
        let mut scope = Self::whole_node();
        scope.include.names = names.iter().map(|name| WildMatch::new(name)).collect();
        scope
    }

    /// The scope that a configuration describes.
    pub fn from_config(config: &sidewinder_config::Scope) -> Self {
        use sidewinder_config::ScopeMode;
        Self {
            is_pod: matches!(config.mode, ScopeMode::Pod | ScopeMode::Container),
            by_container: config.mode == ScopeMode::Container,
            include: Matcher::from_selector(&config.include),
            exclude: Matcher::from_selector(&config.exclude),
            begins_at_exec: false,
            has_children: true,
            containers: HashSet::new(),
            pod_bounds: None,
            pids_outside_pod: HashSet::new(),
            listed: HashMap::new(),
            pending: Vec::new(),
            reader: None,
        }
    }

    /// The same processes without their descendants. Only for scopes without exclusions.
    pub fn without_children(self) -> Self {
        Self { has_children: false, ..self }
    }

    /// Sets the reader of command lines.
    pub(crate) fn set_reader(&mut self, reader: ForeignReader) {
        self.reader = Some(reader);
    }

    /// How the programs interpret the list.
    pub fn mode(&self) -> TaskFilter {
        match (self.include.is_empty(), self.exclude.is_empty()) {
            (false, _) => TaskFilter::Listed,
            (true, false) => TaskFilter::Unlisted,
            (true, true) => TaskFilter::All,
        }
    }

    /// Whether the descendants of processes are included or excluded with them.
    pub(crate) fn has_children(&self) -> bool {
        self.has_children
    }

    /// The processes that are included by PID.
    pub fn pids(&self) -> Vec<u32> {
        self.include.pids.iter().copied().collect()
    }

    /// The processes that are excluded by PID.
    pub(crate) fn excluded_pids(&self) -> Vec<u32> {
        self.exclude.pids.iter().copied().collect()
    }

    /// Whether a process comes into scope at its next exec. The programs see to that.
    pub(crate) fn begins_at_exec(&self, pid: u32) -> bool {
        self.begins_at_exec && self.include.pids.contains(&pid)
    }

    /// Restricts the scope to a pod, by the cgroups of processes.
    pub(crate) fn restrict_to_pod(&mut self, pod: PodBounds) {
        self.pod_bounds = Some(pod);
    }

    /// Whether the path of its program alone can bring a process into scope. The programs then list the processes of programs that
    /// have, before an exec is evaluated.
    pub(crate) fn has_programs(&self) -> bool {
        let Matcher { names, executables: _, command_lines, cgroups, pids } = &self.exclude;
        !self.include.executables.is_empty()
            && names.is_empty()
            && command_lines.is_empty()
            && cgroups.is_empty()
            && pids.is_empty()
    }

    /// Whether an exec may bring a process into scope, or out of it.
    pub(crate) fn depends_on_exec(&self) -> bool {
        self.pod_bounds.is_some() || self.has_patterns()
    }

    pub(crate) fn has_patterns(&self) -> bool {
        self.by_container || self.include.has_patterns() || self.exclude.has_patterns()
    }

    /// Whether a process is in scope.
    pub fn contains(&self, pid: u32) -> bool {
        let is_selected = match self.mode() {
            TaskFilter::All => true,
            TaskFilter::Listed => self.listed.contains_key(&pid),
            TaskFilter::Unlisted => !self.listed.contains_key(&pid),
        };
        is_selected && !self.pids_outside_pod.contains(&pid)
    }

    /// Whether an event is about a process in scope. Events must come in order of time, since forks change the scope.
    pub(crate) fn admit_event(&mut self, event: &ProcessEvent) -> bool {
        if matches!(event.kind, ProcessEventKind::Lost { .. }) {
            return true;
        }
        // The kernel writes 0 or -1 if the process has no PID in our PID namespace.
        let pid = event.pid.0;
        if pid == 0 || pid == u32::MAX {
            return false;
        }
        if let ProcessEventKind::Fork { parent, is_thread: false } = event.kind {
            self.fork(parent.0, pid, event.time_ns);
        }
        let is_in_scope = self.contains(pid);
        if matches!(event.kind, ProcessEventKind::Exit { tid } if tid.0 == pid) && !is_in_scope {
            // Nothing else would forget it.
            self.remove_exited(pid);
        }
        is_in_scope
    }

    /// Records a fork: a child is in scope if its parent is, unless the scope has no children. Its PID may have been used by
    /// another process before.
    fn fork(&mut self, parent: u32, child: u32, time_ns: u64) {
        self.remove_exited(child);
        if self.pids_outside_pod.contains(&parent) {
            self.pids_outside_pod.insert(child);
        }
        let listed_since = match self.listed.get(&parent).filter(|_| self.has_children) {
            None => return,
            Some(ListedSince::FromTheStart) => ListedSince::FromTheStart,
            Some(ListedSince::Since(listed_ns)) if *listed_ns < time_ns => ListedSince::FromTheStart,
            Some(ListedSince::Since(_) | ListedSince::Pending) => ListedSince::Pending,
        };
        if listed_since == ListedSince::Pending {
            self.pending.push(ForkedProcess { pid: child, forked_ns: time_ns });
        }
        self.listed.insert(child, listed_since);
    }

    /// Takes the processes that are to be added to the programs' list.
    pub fn take_pending(&mut self) -> Vec<ForkedProcess> {
        std::mem::take(&mut self.pending)
    }

    /// Records that the programs list a process from this time on.
    pub(crate) fn mark_listed(&mut self, pid: u32, now_ns: u64) {
        if let Some(listed_since) = self.listed.get_mut(&pid) {
            *listed_since = ListedSince::Since(now_ns);
        }
    }

    /// The included processes if there are any, else the excluded ones.
    pub(crate) fn listed(&self) -> Vec<u32> {
        self.listed.keys().copied().collect()
    }

    /// Whether a process is excluded. Samples of it can still arrive from before the programs listed it.
    pub(crate) fn excludes(&self, pid: u32) -> bool {
        self.mode() == TaskFilter::Unlisted && self.listed.contains_key(&pid)
    }

    /// Applies the rules to a process, again after each exec. Returns the change to make to the programs' list.
    pub(crate) fn evaluate(&mut self, process: &ProcessDir) -> ListChange {
        self.apply_rules(process, false)
    }

    /// The same for a running child of a process of the list, which was not seen when it was forked.
    pub(crate) fn evaluate_child(&mut self, child: &ProcessDir) -> ListChange {
        self.apply_rules(child, true)
    }

    fn apply_rules(&mut self, process: &ProcessDir, has_listed_parent: bool) -> ListChange {
        let pid = process.pid().0;
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
        let mut traits = ProcessTraits::read(process);
        let (include, exclude) = (&self.include.command_lines, &self.exclude.command_lines);
        let command_line = if include.is_empty() && exclude.is_empty() {
            Some(String::new())
        } else {
            self.command_line(process)
        };
        // A command line that can't be read might match the exclusion.
        let may_be_excluded = command_line.is_none() && !exclude.is_empty();
        traits.command_line = command_line.unwrap_or_default();
        let is_excluded = may_be_excluded || self.exclude.matches(pid, &traits);
        let is_included = self.include.matches(pid, &traits) || self.has_container_of(&traits);
        let is_program_included = self.include.matches_program(&traits) && !is_excluded;
        if self.by_container && is_included && !is_excluded {
            self.containers.extend(traits.container);
        }
        let is_listed = self.listed.contains_key(&pid);
        let should_be_listed = match self.mode() {
            TaskFilter::All => false,
            TaskFilter::Listed => (is_listed || is_included || has_listed_parent) && !is_excluded,
            TaskFilter::Unlisted => is_listed || is_excluded || has_listed_parent,
        };
        match (is_listed, should_be_listed) {
            (false, true) => {
                self.listed.insert(pid, ListedSince::Pending);
                if is_program_included && self.has_programs() {
                    ListChange::AddProgram
                } else {
                    ListChange::Add
                }
            }
            // A process that is about to exit has no program any more.
            (false, false)
                if self.has_programs() && !is_program_included && !traits.executable.is_empty() =>
            {
                ListChange::RemoveProgram
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
        let target = ReadTarget::from_dir(process).ok()?;
        let read = move || target.open_dir().map(|process| read_command_line(&process)).unwrap_or_default();
        match reader.submit_and_wait(target, read) {
            Ok(ReadProgress::Done(text)) => Some(text),
            Ok(ReadProgress::Pending(_)) | Err(_) => None,
        }
    }

    /// The number of containers that have come into scope. When it grows, all processes have to be evaluated again.
    pub fn containers(&self) -> usize {
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
    pub fn is_empty(&self) -> bool {
        self.mode() == TaskFilter::Listed && self.listed.is_empty() && !self.has_patterns()
    }
}

#[cfg(test)]
mod tests {
    use sidewinder_config::Selector;
    use sidewinder_process::{Pid, ProcRoot, Tid};

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

    /// A selector that matches a name.
    fn by_name(name: &str) -> Selector {
        Selector { names: vec![name.to_owned()], ..Selector::default() }
    }

    fn own_process() -> ProcessDir {
        ProcessDir::open(&ProcRoot::default(), Pid(std::process::id())).unwrap()
    }

    fn own_name() -> String {
        std::fs::read_to_string("/proc/self/comm").unwrap().trim_end().to_owned()
    }

    #[test]
    fn a_child_is_in_scope_when_its_parent_is() {
        let own = std::process::id();
        let mut scope = SamplingScope::from_pids([own]);
        assert_eq!(scope.evaluate(&own_process()), ListChange::Add);
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
        for mut scope in [SamplingScope::from_pids([own]), scope(Selector::default(), by_name(&own_name()))] {
            assert_eq!(scope.evaluate(&own_process()), ListChange::Add);
            scope.admit_event(&at(10, own, 11));
            scope.admit_event(&at(11, 11, 12));
            let pending = [(11, 10), (12, 11)].map(|(pid, forked_ns)| ForkedProcess { pid, forked_ns });
            assert_eq!(scope.take_pending(), pending, "they were forked before their parent was listed");
            [own, 11, 12].into_iter().for_each(|pid| scope.mark_listed(pid, 20));
            scope.admit_event(&at(20, own, 13));
            scope.admit_event(&at(21, 12, 14));
            scope.admit_event(&at(22, 14, 15));
            let pending = [ForkedProcess { pid: 13, forked_ns: 20 }];
            assert_eq!(scope.take_pending(), pending, "the programs follow what is forked later");
            assert_eq!(scope.take_pending(), []);
        }
    }

    #[test]
    fn without_children_only_the_process_itself_is_in_scope() {
        let own = std::process::id();
        let mut scope = SamplingScope::from_pids([own]).without_children();
        assert_eq!(scope.evaluate(&own_process()), ListChange::Add);
        assert!(!scope.admit_event(&fork(own, 11)));
        assert_eq!(scope.take_pending(), []);
        scope.remove_exited(own);
        assert!(scope.is_empty(), "nothing else can be in scope");
    }

    #[test]
    fn a_running_child_is_listed_with_its_parent_unless_it_is_excluded() {
        let parent = Selector::from_pids([sidewinder_config::SelectedPid::new(1).unwrap()]);
        let change = |include, exclude| scope(include, exclude).evaluate_child(&own_process());
        assert_eq!(change(parent.clone(), Selector::default()), ListChange::Add);
        assert_eq!(change(parent.clone(), by_name(&own_name())), ListChange::None, "exclusion wins");
        assert_eq!(change(Selector::default(), parent), ListChange::Add, "it is excluded with its parent");
        let mut all = SamplingScope::whole_node();
        assert_eq!(all.evaluate_child(&own_process()), ListChange::None);
    }

    #[test]
    fn the_pid_of_an_excluded_process_may_be_reused() {
        let own = std::process::id();
        let mut scope = scope(Selector::default(), by_name(&own_name()));
        assert_eq!(scope.evaluate(&own_process()), ListChange::Add);
        for child in (11..20_011).filter(|child| *child != own) {
            assert!(!scope.admit_event(&fork(own, child)) && scope.excludes(child));
            assert!(!scope.admit_event(&exit(child)));
        }
        assert_eq!(scope.listed.len(), 1, "processes that have exited are forgotten");
        scope.admit_event(&fork(own, 11));
        assert!(scope.admit_event(&fork(9, 11)), "its exit event was lost");
        assert!(!scope.excludes(11) && scope.contains(11));
    }

    #[test]
    fn no_event_of_a_foreign_namespace_is_admitted() {
        for pid in [0, u32::MAX] {
            assert!(!SamplingScope::whole_node().admit_event(&exit(pid)));
        }
    }

    #[test]
    fn a_process_is_matched_by_each_of_its_attributes() {
        let own = std::process::id();
        let process = own_process();
        let traits =
            ProcessTraits { command_line: read_command_line(&process), ..ProcessTraits::read(&process) };
        let one = |text: &String| vec![text.clone()];
        let by_program = Selector { executables: one(&traits.executable), ..Selector::default() };
        for selector in [
            by_name(&traits.name),
            by_name(&format!("{}*", traits.name.get(..3).unwrap())),
            by_program.clone(),
            Selector { command_lines: one(&traits.command_line), ..Selector::default() },
            Selector { cgroups: one(&traits.cgroup), ..Selector::default() },
            Selector::from_pids([sidewinder_config::SelectedPid::new(own).unwrap()]),
        ] {
            let mut scope = scope(selector.clone(), Selector::default());
            assert!(!scope.contains(own), "{selector:?}");
            let change = if selector == by_program { ListChange::AddProgram } else { ListChange::Add };
            assert_eq!(scope.evaluate(&own_process()), change, "{selector:?}");
            assert!(scope.contains(own) && !scope.contains(own + 1), "{selector:?}");
            assert_eq!(scope.evaluate(&own_process()), ListChange::None, "{selector:?}");
        }
        let mut other = scope(by_name("no-such-name"), Selector::default());
        assert_eq!(other.evaluate(&own_process()), ListChange::None);
        assert!(!other.is_empty(), "a process with this name may still start");
    }

    #[test]
    fn a_program_is_in_scope_only_if_its_path_alone_decides() {
        let path = std::env::current_exe().unwrap().to_str().unwrap().to_owned();
        let by_program = |path: &str| Selector { executables: vec![path.to_owned()], ..Selector::default() };
        let change = |include, exclude| scope(include, exclude).evaluate(&own_process());
        assert_eq!(change(by_program(&path), by_program("/no-such-program")), ListChange::AddProgram);
        assert_eq!(change(by_program(&path), by_name("no-such-name")), ListChange::Add);
        assert_eq!(change(by_program(&path), by_program(&path)), ListChange::RemoveProgram);
        assert_eq!(change(by_program("/no-such-program"), Selector::default()), ListChange::RemoveProgram);
        assert_eq!(change(by_name("no-such-name"), Selector::default()), ListChange::None);
        let both = Selector { names: vec![own_name()], ..by_program("/no-such-program") };
        assert_eq!(change(both, Selector::default()), ListChange::Add, "its name decides");
    }

    #[test]
    fn excluded_processes_are_out_of_scope_in_both_modes() {
        let own = std::process::id();
        let mut all_but = scope(Selector::default(), by_name(&own_name()));
        assert_eq!(all_but.mode(), TaskFilter::Unlisted);
        assert!(all_but.contains(own));
        assert_eq!(all_but.evaluate(&own_process()), ListChange::Add);
        assert!(!all_but.contains(own));
        assert!(!all_but.admit_event(&fork(own, 11)), "its children are excluded too");
        assert!(all_but.admit_event(&fork(9, 12)));

        let mut both = scope(by_name("*"), by_name(&own_name()));
        assert_eq!((both.mode(), both.evaluate(&own_process())), (TaskFilter::Listed, ListChange::None));
        assert!(!both.contains(own));
    }
}
