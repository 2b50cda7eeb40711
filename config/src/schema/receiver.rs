//! Keys of the receiver `profiling`.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use super::fields::{FieldVisitor, KeyGroup};
use super::scalar::{InvalidScalar, Scalar, ValueShape, as_text, words};
use super::{event, probe};
use crate::diagnostics::ConfigProblem;
use crate::model::*;
use crate::tree::{ConfigNode, ConfigValue};
use sidewinder_kind::CpuIds;

/// Longer intervals need more memory than a sidecar has; shorter ones cost more than they are worth.
const REPORTS: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(3_600);
const AGES: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(24 * 3_600);

impl KeyGroup for ProfilingReceiver {
    fn fields(&mut self, fields: &mut FieldVisitor<'_>) {
        let [least, most] = Self::PROBABILISTIC_INTERVALS;
        fields.value("samples_per_second", &mut self.samples_per_second);
        event::read_or_write(fields, &mut self.events);
        probe::read_or_write(fields, &mut self.probes);
        fields.list("probe_links", &mut self.probe_links);
        fields.value("load_probe", &mut self.load_probe);
        probe::check_count(fields, self.probes.iter().chain(&self.probe_links), self.load_probe);
        fields.duration("reporter_interval", &mut self.reporter_interval, &REPORTS);
        fields.value("reporter_jitter", &mut self.reporter_jitter);
        fields.duration("monitor_interval", &mut self.monitor_interval, &REPORTS);
        fields.duration("filter_min_process_age", &mut self.filter_min_process_age, &AGES);
        fields.value("off_cpu_threshold", &mut self.off_cpu_threshold);
        fields.value("lock_threshold", &mut self.lock_threshold);
        fields.value("lock_wakers", &mut self.lock_wakers);
        if self.lock_wakers && self.lock_threshold.get() == 0.0 {
            let reason =
                "without lock_threshold, no waits for locks are sampled that threads could end".to_owned();
            fields.error("lock_wakers", ConfigProblem::Contradiction(reason));
        }
        fields.value("wall_threshold", &mut self.wall_threshold);
        fields.duration("probabilistic_interval", &mut self.probabilistic_interval, &(least..=most));
        fields.value("probabilistic_threshold", &mut self.probabilistic_threshold);
        let mut names = VariableNames(std::mem::take(&mut self.include_env_vars));
        fields.value("include_env_vars", &mut names);
        self.include_env_vars = names.0;
        fields.value("bpf_verifier_log_level", &mut self.bpf_verifier_log_level);
        fields.value("pin_cpu_ids", &mut self.pin_cpu_ids);
        fields.value("error_mode", &mut self.error_mode);
        fields.group("scope", &mut self.scope);
        fields.group("unwind", &mut self.unwind);
        fields.group("symbolize", &mut self.symbolize);
        fields.group("interpreters", &mut self.interpreters);
        fields.group("trace_context", &mut self.trace_context);
        fields.optional("memory_limit_mib", &mut self.memory_limit_mib);
    }
}

/// Names of environment variables in one text, separated by commas.
struct VariableNames(Vec<String>);

impl Scalar for VariableNames {
    fn allowed() -> String {
        "names of environment variables, separated by commas".to_owned()
    }

    fn read(node: &ConfigNode) -> Result<Self, InvalidScalar> {
        let text = as_text(node).ok_or_else(InvalidScalar::default)?;
        let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
        Ok(Self(names.map(str::to_owned).collect()))
    }

    fn write(&self) -> ConfigValue {
        ConfigValue::Text(self.0.join(","))
    }
}

impl Scalar for CpuIds {
    fn allowed() -> String {
        "CPUs, such as '0-3,8'".to_owned()
    }

    /// A single CPU may be a number.
    fn shape() -> ValueShape {
        ValueShape::Any
    }

    fn read(node: &ConfigNode) -> Result<Self, InvalidScalar> {
        let list = match (as_text(node), &node.value) {
            (Some(text), _) => text.to_owned(),
            (None, ConfigValue::Integer(cpu)) => cpu.to_string(),
            (None, _) => return Err(InvalidScalar::default()),
        };
        list.parse().map_err(InvalidScalar::new)
    }

    fn write(&self) -> ConfigValue {
        ConfigValue::Text(self.to_string())
    }
}

words! {
    ScopeMode: "node" => Node, "pod" => Pod, "container" => Container, "processes" => Processes;
}

impl KeyGroup for Scope {
    fn fields(&mut self, fields: &mut FieldVisitor<'_>) {
        fields.value("mode", &mut self.mode);
        let mut include = SelectorForm { selector: std::mem::take(&mut self.include), is_right: true };
        fields.group("include", &mut include);
        self.include = include.selector;
        let mut exclude = SelectorForm { selector: std::mem::take(&mut self.exclude), is_right: true };
        fields.group("exclude", &mut exclude);
        self.exclude = exclude.selector;
        let takes_all = matches!(self.mode, ScopeMode::Node | ScopeMode::Pod);
        if takes_all && !self.include.is_empty() {
            let reason = "has no effect without mode: processes or mode: container".to_owned();
            fields.error("include", ConfigProblem::Contradiction(reason));
        }
        if !takes_all && self.include.is_empty() && include.is_right {
            let allowed =
                "the names, executables, command_lines, pids or cgroups that this mode looks at".to_owned();
            fields.error("include", ConfigProblem::Missing { allowed });
        }
    }
}

/// A selector, and whether all given values are valid.
struct SelectorForm {
    selector: Selector,
    is_right: bool,
}

impl KeyGroup for SelectorForm {
    fn fields(&mut self, fields: &mut FieldVisitor<'_>) {
        let Selector { names, executables, command_lines, pids, cgroups } = &mut self.selector;
        for (key, patterns) in [
            ("names", names),
            ("executables", executables),
            ("command_lines", command_lines),
            ("cgroups", cgroups),
        ] {
            self.is_right &= fields.list(key, patterns);
            if patterns.iter().any(String::is_empty) {
                fields.error(key, ConfigProblem::Contradiction("an empty pattern names nothing".to_owned()));
            }
        }
        self.is_right &= fields.list("pids", pids);
        let given = pids.len();
        pids.sort_unstable();
        pids.dedup();
        if pids.len() < given {
            fields.error("pids", ConfigProblem::Contradiction("a process id is given twice".to_owned()));
        }
    }
}

impl KeyGroup for Unwind {
    fn fields(&mut self, fields: &mut FieldVisitor<'_>) {
        fields.value("mode", &mut self.mode);
        let mut overrides: Vec<OverrideForm> =
            std::mem::take(&mut self.overrides).into_iter().map(OverrideForm::from).collect();
        fields.groups("overrides", &mut overrides);
        self.overrides = overrides.into_iter().filter_map(OverrideForm::finish).collect();
        fields.value("trust", &mut self.trust);
        fields.value("max_frames", &mut self.max_frames);
        fields.value("kernel", &mut self.kernel);
        fields.optional("tables_directory", &mut self.tables_directory);
        if self.tables_directory.as_ref().is_some_and(|directory| !directory.is_absolute()) {
            fields.error("tables_directory", ConfigProblem::Contradiction("is an absolute path".to_owned()));
        }
        fields.value("tables_directory_mib", &mut self.tables_directory_mib);
    }
}

/// An override before it is known to name a binary.
#[derive(Default)]
struct OverrideForm {
    binary: Option<BinaryMatch>,
    mode: UnwindMode,
}

impl From<UnwindOverride> for OverrideForm {
    fn from(from: UnwindOverride) -> Self {
        Self { binary: Some(from.binary), mode: from.mode }
    }
}

impl OverrideForm {
    fn finish(self) -> Option<UnwindOverride> {
        self.binary.map(|binary| UnwindOverride { binary, mode: self.mode })
    }
}

impl KeyGroup for OverrideForm {
    fn fields(&mut self, fields: &mut FieldVisitor<'_>) {
        let (mut name, mut path, mut build_id) = (None::<String>, None::<PathBuf>, None::<GnuBuildId>);
        let current = match self.binary.take() {
            Some(BinaryMatch::Name(text)) => (name = Some(text), "name").1,
            Some(BinaryMatch::Path(text)) => (path = Some(text), "path").1,
            Some(BinaryMatch::BuildId(id)) => (build_id = Some(id), "build_id").1,
            None => "",
        };
        let chosen = fields.choice(&["name", "path", "build_id"], true, Some(current));
        fields.optional("name", &mut name);
        fields.optional("path", &mut path);
        fields.optional("build_id", &mut build_id);
        self.binary = match chosen {
            Some("name") => name.map(BinaryMatch::Name),
            Some("path") => path.map(BinaryMatch::Path),
            Some("build_id") => build_id.map(BinaryMatch::BuildId),
            _ => None,
        };
        if let Some(BinaryMatch::Name(name)) = &self.binary
            && (name.is_empty() || name.contains('/'))
        {
            let reason = "is the last component of a path: not empty, without slashes".to_owned();
            fields.error("name", ConfigProblem::Contradiction(reason));
        }
        fields.required("mode", &mut self.mode);
    }
}

impl KeyGroup for Interpreters {
    fn fields(&mut self, fields: &mut FieldVisitor<'_>) {
        fields.group("python", &mut self.python);
        fields.group("hotspot", &mut self.hotspot);
        fields.group("v8", &mut self.v8);
    }
}

impl KeyGroup for Interpreter {
    fn fields(&mut self, fields: &mut FieldVisitor<'_>) {
        fields.value("disabled", &mut self.disabled);
    }
}

impl KeyGroup for Symbolize {
    fn fields(&mut self, fields: &mut FieldVisitor<'_>) {
        fields.value("mode", &mut self.mode);
        fields.value("lines", &mut self.lines);
        fields.value("inlines", &mut self.inlines);
        fields.list("debug_directories", &mut self.debug_directories);
        if self.debug_directories.iter().any(|directory| !directory.is_absolute()) {
            fields.error("debug_directories", ConfigProblem::Contradiction("is an absolute path".to_owned()));
        }
        fields.value("kernel", &mut self.kernel);
        fields.value("vm_internals", &mut self.vm_internals);
        fields.value("source_maps", &mut self.source_maps);
    }
}

impl KeyGroup for TraceContext {
    fn fields(&mut self, fields: &mut FieldVisitor<'_>) {
        fields.value("enabled", &mut self.enabled);
        fields.list("attributes", &mut self.attributes);
        fields.list("trace_id_labels", &mut self.trace_id_labels);
        fields.list("span_id_labels", &mut self.span_id_labels);
        fields.value("custom_labels", &mut self.custom_labels);
    }
}
