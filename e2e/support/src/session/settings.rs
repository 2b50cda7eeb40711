//! What a profiler is told, as the service's configuration and as options of `record`.

use anyhow::{Result, ensure};

/// Whose interrupts a session looks at, and what it changes in the receiver's configuration.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Settings {
    /// Interrupts per second and CPU.
    pub samples_per_second: u32,
    /// The process to look at; `None`: the whole node.
    pub pid: Option<u32>,
    /// Further processes, where there is one.
    pub other_pids: Vec<u32>,
    /// Patterns of the programs to look at, where there is no process: the service alone can be told these.
    pub executables: Vec<String>,
    /// Whether there is a report every five seconds, the default, rather than every second.
    pub reports_at_default_interval: bool,
    /// What both forms can be told.
    pub switches: Vec<Switch>,
    /// Lines of the receiver's YAML, each a key of `profiling`: the service alone can be told these, and the two below.
    pub more: Vec<String>,
    /// More lines of `service`.
    pub service: Vec<String>,
    /// More lines at the top.
    pub top: Vec<String>,
}

/// A key of the receiver for which `record` has an option.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Switch {
    /// Off-CPU time, by at least this fraction of waits.
    OffCpu(&'static str),
    /// Wall time, by at least this fraction of context switches.
    Wall(&'static str),
    /// Waits for locks, at least this fraction.
    Locks(&'static str),
    /// Who ends these waits.
    LockWakers,
    /// What is done on this CPU, and on no other.
    Cpu(&'static str),
    /// Stacks are walked by frame pointers alone.
    FramePointers,
    /// The loops of interpreters are shown.
    VmInternals,
    /// Interpreters aren't read.
    NoInterpreters,
    /// Functions of JavaScript are shown as in their sources.
    SourceMaps,
}

impl Switch {
    fn yaml(self) -> String {
        match self {
            Self::OffCpu(fraction) => format!("off_cpu_threshold: {fraction}"),
            Self::Wall(fraction) => format!("wall_threshold: {fraction}"),
            Self::Locks(fraction) => format!("lock_threshold: {fraction}"),
            Self::LockWakers => "lock_wakers: true".to_owned(),
            Self::Cpu(cpu) => format!("pin_cpu_ids: '{cpu}'"),
            Self::FramePointers => "unwind: { mode: frame_pointers }".to_owned(),
            Self::VmInternals => "symbolize: { vm_internals: show }".to_owned(),
            Self::NoInterpreters => {
                let disabled =
                    ["python", "hotspot", "v8"].map(|name| format!("{name}: {{ disabled: true }}"));
                format!("interpreters: {{ {} }}", disabled.join(", "))
            }
            Self::SourceMaps => "symbolize: { source_maps: true }".to_owned(),
        }
    }

    fn option(self) -> String {
        match self {
            Self::OffCpu(fraction) => format!("--off-cpu={fraction}"),
            Self::Wall(fraction) => format!("--wall={fraction}"),
            Self::Locks(fraction) => format!("--locks={fraction}"),
            Self::LockWakers => "--lock-wakers".to_owned(),
            Self::Cpu(cpu) => format!("--cpus={cpu}"),
            Self::FramePointers => "--unwind=frame-pointers".to_owned(),
            Self::VmInternals => "--vm-internals".to_owned(),
            Self::NoInterpreters => "--no-interpreters".to_owned(),
            Self::SourceMaps => "--source-maps".to_owned(),
        }
    }
}

impl Settings {
    /// So many interrupts per second and CPU.
    #[must_use]
    pub fn at(samples_per_second: u32) -> Self {
        Self { samples_per_second, ..Self::default() }
    }

    /// 997 Hz of one process.
    #[must_use]
    pub fn of_process(pid: u32) -> Self {
        Self { pid: Some(pid), ..Self::at(997) }
    }

    /// The same of these processes.
    #[must_use]
    pub fn of(self, pids: &[u32]) -> Self {
        let (pid, other_pids) =
            pids.split_first().map_or((None, &[][..]), |(pid, others)| (Some(*pid), others));
        Self { pid, other_pids: other_pids.to_vec(), ..self }
    }

    /// The same with these switches.
    #[must_use]
    pub fn with(self, switches: &[Switch]) -> Self {
        Self { switches: switches.to_vec(), ..self }
    }

    /// The configuration as a user would write it, with one gRPC exporter.
    #[must_use]
    pub fn yaml(&self, endpoint: &str) -> String {
        let scope = match self.pid {
            Some(pid) => {
                let others: String = self.other_pids.iter().map(|pid| format!(", {pid}")).collect();
                format!("{{ mode: processes, include: {{ pids: [{pid}{others}] }} }}")
            }
            None if !self.executables.is_empty() => {
                format!("{{ mode: processes, include: {{ executables: {:?} }} }}", self.executables)
            }
            None => "{ mode: node }".to_owned(),
        };
        let switches = self.switches.iter().map(|switch| switch.yaml());
        let more: String =
            switches.chain(self.more.iter().cloned()).map(|line| format!("    {line}\n")).collect();
        let service: String = self.service.iter().map(|line| format!("  {line}\n")).collect();
        let top: String = self.top.iter().map(|line| format!("{line}\n")).collect();
        format!(
            "receivers:
  profiling:
    samples_per_second: {}
    reporter_interval: {}
    error_mode: propagate
    scope: {scope}
{more}exporters:
  otlp_grpc:
    endpoint: {endpoint}
    tls: {{ insecure: true }}
service:
  pipelines:
    profiles: {{ receivers: [profiling], exporters: [otlp_grpc] }}
{service}{top}",
            self.samples_per_second,
            if self.reports_at_default_interval { "5s" } else { "1s" },
        )
    }

    /// The options of `record`, but for the processes.
    ///
    /// # Errors
    /// When it has none for some of this.
    pub(super) fn options(&self) -> Result<Vec<String>> {
        let lines = [&self.executables, &self.more, &self.service, &self.top];
        ensure!(lines.iter().all(|lines| lines.is_empty()), "record has no option for {lines:?}");
        let rate = format!("--frequency={}", self.samples_per_second);
        Ok([rate].into_iter().chain(self.switches.iter().map(|switch| switch.option())).collect())
    }

    pub(super) fn pids(&self) -> Vec<u32> {
        self.pid.into_iter().chain(self.other_pids.iter().copied()).collect()
    }
}
