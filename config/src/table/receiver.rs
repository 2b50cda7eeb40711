//! Keys of the receiver.

use super::key::{Key, key};

#[rustfmt::skip]
pub(super) static KEYS: &[Key] = &[
    key("receivers", "Profilers, by id: `profiling` or `profiling/name`."),
    key("receivers::profiling", "One profiler."),
    key("receivers::profiling::samples_per_second", "How often each CPU is interrupted.").unit("Hz")
        .deviates("at most 10000, where OpenTelemetry's profiler takes any number: the kernel refuses more").restarts(),
    key("receivers::profiling::reporter_interval", "Time between two reports.")
        .deviates("100ms to 1h, where OpenTelemetry's profiler takes any duration: closer reports cost more than they tell, rarer ones outgrow the memory budget"),
    key("receivers::profiling::reporter_jitter", "Share by which each report's time is shifted at random, either way."),
    key("receivers::profiling::monitor_interval", "Time between two readings of the profiler's own counters.")
        .deviates("100ms to 1h, for the reason of reporter_interval"),
    key("receivers::profiling::send_idle_frames", "Whether interrupts of the idle task are sent.").not_yet("false"),
    key("receivers::profiling::send_error_frames", "Whether a failed walk is sent as a frame of its own.").not_yet("false"),
    key("receivers::profiling::filter_min_process_age", "Processes younger than this are left out.").not_yet("0s"),
    key("receivers::profiling::off_cpu_threshold", "Share of context switches recorded as off-CPU events, 0 for none.").not_yet("0"),
    key("receivers::profiling::probabilistic_interval", "For how long one probabilistic decision holds.").not_yet("1m0s"),
    key("receivers::profiling::probabilistic_threshold", "Share of intervals in which this machine profiles.").unit("%").not_yet("100"),
    key("receivers::profiling::include_env_vars", "Environment variables of targets that are sent.").not_yet("''"),
    key("receivers::profiling::bpf_verifier_log_level", "What the kernel's verifier writes while programs load: 0 nothing, 1 on failure, 2 always.").not_yet("0"),
    key("receivers::profiling::error_mode", "What happens when profiling can't start: `ignore` stays up, says so and tries again, `propagate` exits.")
        .deviates("`ignore`, where OpenTelemetry's profiler has `propagate`: a sidecar that exits makes its pod unready"),
    key("receivers::profiling::pid_namespace_translation", "Whether process ids are translated to Sidewinder's PID namespace.").not_yet("false"),
    key("receivers::profiling::probes", "Probes besides the clock.").not_yet("[]"),
    key("receivers::profiling::pin_cpu_ids", "CPUs that are profiled, all where empty.").not_yet("''"),
    key("receivers::profiling::obi_process_ctx", "Whether process context is shared with OpenTelemetry's eBPF instrumentation.").not_yet("false"),
    key("receivers::profiling::interpreters", "Which interpreters' frames are read.")
        .meaningless("this version reads no interpreter's frames"),
    key("receivers::profiling::tracers", "Older name of `interpreters`.")
        .meaningless("this version reads no interpreter's frames"),
    key("receivers::profiling::frame_cache_size", "Size of a cache of frames.")
        .meaningless("memory is divided by memory_limit_mib"),
    key("receivers::profiling::map_scale_factor", "Size of eBPF maps.")
        .meaningless("memory is divided by memory_limit_mib"),
    key("receivers::profiling::go_labels_map_scale_factor", "Size of an eBPF map.")
        .meaningless("memory is divided by memory_limit_mib"),
    key("receivers::profiling::bpf_fs_root", "Where eBPF objects are pinned.")
        .meaningless("nothing is pinned, so that nothing is left behind"),
    key("receivers::profiling::clock_sync_interval", "Time between two comparisons of clocks.")
        .meaningless("clocks are compared at each report"),
    key("receivers::profiling::verbose_mode", "Whether the log says more.")
        .meaningless("service::telemetry::logs::level says how much the log says"),
    key("receivers::profiling::no_kernel_version_check", "Whether old kernels are tried.")
        .meaningless("features are probed, versions are not looked at"),
    key("receivers::profiling::max_grpc_retries", "How often a request is tried again.")
        .meaningless("the exporter's retry_on_failure says so"),
    key("receivers::profiling::max_rpc_msg_size", "Size of a request.")
        .meaningless("requests stay below what a Collector takes"),
    key("receivers::profiling::probe_links", "Older form of `probes`.").not_yet("[]"),
    key("receivers::profiling::load_probe", "Older form of `probes`.").not_yet("false"),
    key("receivers::profiling::memory_limit_mib", "One budget for maps, tables, names, aggregation and queues; where absent, three quarters of what the cgroup allows, or 48 where it allows anything.").unit("MiB").restarts(),
    key("receivers::profiling::scope", "Whose interrupts are looked at; the memory of anything else is never read.").restarts(),
    key("receivers::profiling::scope::mode", "`pod`: the containers of the pod that Sidewinder runs in, whose PID namespace it shares. `container`: those of them in which a process runs that `include` names. `processes`: those that `include` names, and what they fork. `node`: every process that Sidewinder's PID namespace knows.").restarts(),
    key("receivers::profiling::scope::include", "Processes that `container` and `processes` look at: each that any of these names.").restarts(),
    key("receivers::profiling::scope::include::names", "Names, which the kernel cuts to 15 bytes; `*` stands for any text, `?` for one character.").restarts(),
    key("receivers::profiling::scope::include::executables", "Whole paths of programs, as the process sees them, with `*` and `?`.").restarts(),
    key("receivers::profiling::scope::include::command_lines", "Whole command lines, their words separated by single spaces, with `*` and `?`.").restarts(),
    key("receivers::profiling::scope::include::cgroups", "Whole paths of cgroups, as Sidewinder's own cgroup namespace shows them in `/proc/PID/cgroup`, with `*` and `?`.").restarts(),
    key("receivers::profiling::scope::include::pids", "Process ids, as seen from Sidewinder.").restarts(),
    key("receivers::profiling::scope::exclude", "Processes that are left out all the same, with what they fork.").restarts(),
    key("receivers::profiling::scope::exclude::names", "Names, which the kernel cuts to 15 bytes; `*` stands for any text, `?` for one character.").restarts(),
    key("receivers::profiling::scope::exclude::executables", "Whole paths of programs, as the process sees them, with `*` and `?`.").restarts(),
    key("receivers::profiling::scope::exclude::command_lines", "Whole command lines, their words separated by single spaces, with `*` and `?`.").restarts(),
    key("receivers::profiling::scope::exclude::cgroups", "Whole paths of cgroups, as Sidewinder's own cgroup namespace shows them in `/proc/PID/cgroup`, with `*` and `?`.").restarts(),
    key("receivers::profiling::scope::exclude::pids", "Process ids, as seen from Sidewinder.").restarts(),
    key("receivers::profiling::unwind", "How stacks are walked.").restarts(),
    key("receivers::profiling::unwind::mode", "`auto`: by frame pointers where they are proven, by tables elsewhere.").restarts(),
    key("receivers::profiling::unwind::overrides[]", "Other ways for single binaries; the first that matches holds.").restarts(),
    key("receivers::profiling::unwind::overrides[]::name", "The last component of the binary's path.").restarts(),
    key("receivers::profiling::unwind::overrides[]::path", "The binary's path as its process sees it.").restarts(),
    key("receivers::profiling::unwind::overrides[]::build_id", "The binary's GNU build ID.").restarts(),
    key("receivers::profiling::unwind::overrides[]::mode", "How stacks are walked through it.").restarts(),
    key("receivers::profiling::unwind::trust", "Where a binary's unwind information contradicts its code: `rows` holds, or `code`, which takes long to check.").restarts(),
    key("receivers::profiling::unwind::max_frames", "Frames after which a stack is cut, visibly.").unit("frames").restarts(),
    key("receivers::profiling::unwind::kernel", "Whether the kernel's frames are part of stacks.").restarts(),
    key("receivers::profiling::symbolize", "How addresses get names.").restarts(),
    key("receivers::profiling::symbolize::mode", "`local`: from the binaries on this machine. `none`: the backend has the symbols.").restarts(),
    key("receivers::profiling::symbolize::lines", "Whether frames get source files and lines, where a binary or its debug file has them.").restarts(),
    key("receivers::profiling::symbolize::inlines", "Whether inlined calls become frames of their own, from the same source.").restarts(),
    key("receivers::profiling::symbolize::debug_directories", "Further directories of debug files, as absolute paths that Sidewinder sees. Each is laid out as `/usr/lib/debug`, which is looked at in any case: Sidewinder's own, the machine's where it can be reached, and the target's.").restarts(),
    key("receivers::profiling::symbolize::kernel", "Whether kernel frames get names.").restarts(),
    key("receivers::profiling::trace_context", "What processes publish of themselves through OpenTelemetry's process context.").restarts(),
    key("receivers::profiling::trace_context::enabled", "Whether it is read from targets: the resource that their SDK has, and the span that each thread is in.").restarts(),
    key("receivers::profiling::trace_context::attributes", "Keys of what threads publish besides their span that become attributes of samples. Those of few values: a backend may make a series of each.").restarts(),
    key("receivers::profiling::trace_context::trace_id_labels", "Keys of the pprof labels in which Go programs have the trace, in hexadecimal digits; the first that is there counts.").restarts(),
    key("receivers::profiling::trace_context::span_id_labels", "Keys of the pprof labels in which Go programs have the span, likewise.").restarts(),
    key("receivers::profiling::trace_context::custom_labels", "Whether the labels of the library custom-labels (ABI 1) are read too, of any process: nothing announces them, so that every file of every process is searched for their variable, once. They are treated as the labels of Go programs.").restarts(),
];
