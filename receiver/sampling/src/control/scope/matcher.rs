//! What selects a process: its attributes, and the patterns that match them.

use std::collections::HashSet;

use sidewinder_config::Selector;
use sidewinder_process::{ContainerId, ProcessDir, container_id};
use wildmatch::WildMatch;

/// The length of a command line up to which patterns are matched.
const COMMAND_LINE_BYTES_MAX: u64 = 64 * 1024;

/// A compiled selector.
#[derive(Clone, Debug)]
pub(super) struct Matcher {
    pub(super) names: Vec<WildMatch>,
    pub(super) executables: Vec<WildMatch>,
    pub(super) command_lines: Vec<WildMatch>,
    pub(super) cgroups: Vec<WildMatch>,
    pub(super) pids: HashSet<u32>,
}

impl Matcher {
    pub(super) fn from_selector(selector: &Selector) -> Self {
        let patterns = |texts: &[String]| texts.iter().map(|text| WildMatch::new(text)).collect();
        Self {
            names: patterns(&selector.names),
            executables: patterns(&selector.executables),
            command_lines: patterns(&selector.command_lines),
            cgroups: patterns(&selector.cgroups),
            pids: selector.pids.iter().map(|pid| pid.get()).collect(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pids.is_empty() && !self.has_patterns()
    }

    pub(super) fn has_patterns(&self) -> bool {
        [&self.names, &self.executables, &self.command_lines, &self.cgroups]
            .iter()
            .any(|patterns| !patterns.is_empty())
    }

    pub(super) fn matches(&self, pid: u32, traits: &ProcessTraits) -> bool {
        let any = |patterns: &[WildMatch], text: &str| patterns.iter().any(|pattern| pattern.matches(text));
        self.pids.contains(&pid)
            || any(&self.names, &traits.name)
            || self.matches_program(traits)
            || any(&self.command_lines, &traits.command_line)
            || any(&self.cgroups, &traits.cgroup)
    }

    pub(super) fn matches_program(&self, traits: &ProcessTraits) -> bool {
        self.executables.iter().any(|pattern| pattern.matches(&traits.executable))
    }
}

/// The attributes of a process that patterns match. One that can't be read is empty. The command line is read separately, if
/// a pattern needs it.
#[derive(Debug, Default)]
pub(super) struct ProcessTraits {
    pub(super) name: String,
    pub(super) executable: String,
    pub(super) command_line: String,
    /// Its path in the cgroup v2 hierarchy, else in the first hierarchy.
    pub(super) cgroup: String,
    pub(super) container: Option<ContainerId>,
}

impl ProcessTraits {
    pub(super) fn read(process: &ProcessDir) -> Self {
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

/// The command line of a process, its arguments separated by spaces. May block without limit, since it is memory of the
/// process.
pub(super) fn read_command_line(process: &ProcessDir) -> String {
    let bytes = process.read_at_most("cmdline", COMMAND_LINE_BYTES_MAX).unwrap_or_default();
    let arguments: Vec<_> = bytes.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
    arguments.join(" ").trim_end().to_owned()
}

/// The path in the line `0::PATH`; without such a line, the path in the first line.
fn cgroup_path(cgroups: &str) -> String {
    let unified = cgroups.lines().find_map(|line| line.strip_prefix("0::"));
    let first = || cgroups.lines().next().and_then(|line| line.splitn(3, ':').nth(2));
    unified.or_else(first).unwrap_or_default().to_owned()
}
