//! Keys of the receiver.

use super::key::{Key, key};

#[rustfmt::skip]
pub(super) static KEYS: &[Key] = &[
    key("receivers", "Profilers, by ID: `profiling` or `profiling/name`."),
    key("receivers::profiling", "One profiler."),
    key("receivers::profiling::samples_per_second", "Interrupts per second and CPU.").unit("Hz")
        .deviates("at most 10000, where OpenTelemetry's profiler accepts any number: the kernel refuses more").restarts(),
    key("receivers::profiling::events[]", "Counters of the kernel and the CPU to sample besides the clock; `sidewinder check` lists those that a machine has.").restarts(),
    key("receivers::profiling::events[]::name", "The counter, by its name in `perf list`.").restarts(),
    key("receivers::profiling::events[]::period", "The number of counts from one event to the next; the default depends on the counter.").restarts(),
    key("receivers::profiling::events[]::frequency", "The number of events per second and CPU instead, from which the kernel derives the period; by default samples_per_second, for a counter without a default period.").unit("Hz").restarts(),
    key("receivers::profiling::reporter_interval", "The interval between reports.")
        .deviates("100ms to 1h, where OpenTelemetry's profiler accepts any duration: shorter intervals cost more than they are worth, longer ones exceed the memory budget"),
    key("receivers::profiling::reporter_jitter", "The fraction of an interval by which each report is randomized, in both directions."),
    key("receivers::profiling::monitor_interval", "The interval between reads of the profiler's own counters.")
        .deviates("100ms to 1h, for the same reason as reporter_interval"),
    key("receivers::profiling::send_idle_frames", "Whether interrupts of the idle task are sent.")
        .refused("false", "omit it: interrupts of idle CPUs are counted in sidewinder_interrupts"),
    key("receivers::profiling::send_error_frames", "Whether a failed walk is sent as a separate frame.")
        .meaningless("a truncated stack always ends in a frame that names the reason"),
    key("receivers::profiling::filter_min_process_age", "Samples of processes younger than this are omitted, and counted as `young_process`.").restarts(),
    key("receivers::profiling::off_cpu_threshold", "The minimum fraction of waits that are sampled for off-CPU time, 0 for none.")
        .deviates("a thread's waits are sampled more often the longer they are, and each counts for the inverse of its probability, where OpenTelemetry's profiler samples all alike and counts them once").restarts(),
    key("receivers::profiling::lock_threshold", "The minimum fraction of futex waits that are sampled for the number and time of lock waits, 0 for none. As with `off_cpu_threshold`, a thread's waits are sampled more often the longer they are, and each counts for the inverse of its probability.").restarts(),
    key("receivers::profiling::lock_wakers", "Whether the threads that end these waits are sampled too: a profile of the waits' time, by the stack of the thread that released the lock. Every wake-up on the node, in any pod, takes about 0.1 us longer. Needs Linux 5.17.").restarts(),
    key("receivers::profiling::wall_threshold", "The minimum fraction of context switches that are sampled for wall time, 0 for none. Its profile is sent besides CPU time's and shares samples with it and with off_cpu_threshold; the higher threshold of the two applies.").restarts(),
    key("receivers::profiling::probabilistic_interval", "The interval for which it is decided at random whether to profile or pause.").restarts(),
    key("receivers::profiling::probabilistic_threshold", "The percentage of these intervals in which it profiles. Pauses cost nothing, as the clock doesn't interrupt.").unit("%").restarts(),
    key("receivers::profiling::include_env_vars", "Comma-separated names of environment variables that are sent with their values as resource attributes `process.environment_variable.NAME`. A process's variables are those it was started with.").restarts(),
    key("receivers::profiling::bpf_verifier_log_level", "What to log from the kernel's verifier when programs are loaded: 0 nothing, 1 why it refuses a program, 2 also statistics of accepted programs.")
        .deviates("2 logs statistics, where OpenTelemetry's profiler logs every instruction, which is megabytes").restarts(),
    key("receivers::profiling::error_mode", "What to do if profiling can't start: `ignore` keeps running, reports it and retries; `propagate` exits.")
        .deviates("`ignore`, where OpenTelemetry's profiler has `propagate`: a sidecar that exits makes its pod unready"),
    key("receivers::profiling::pid_namespace_translation", "Whether process IDs are translated to Sidewinder's PID namespace.")
        .meaningless("process IDs are always those of Sidewinder's PID namespace"),
    key("receivers::profiling::probes[]", "Probes in programs and at kernel tracepoints, besides the clock: every hit is counted, and as many as `max_overhead` allows are sampled. Each probe has a separate profile.").restarts(),
    key("receivers::profiling::probes[]::type", "`uprobe`: a function's entry. `uretprobe`: its return. `usdt`: a static probe. `tracepoint`: a kernel tracepoint. `kprobe`: see `mode`.").restarts(),
    key("receivers::profiling::probes[]::mode", "The type, in the notation of OpenTelemetry's profiler, whose `type` is then `kprobe`.")
        .deviates("`uprobe`, `uretprobe`, `usdt` or `tracepoint`, where OpenTelemetry's profiler also probes kernel functions").restarts(),
    key("receivers::profiling::probes[]::target", "The path of the program or library, as the profiled processes see it; it is probed for every process in scope that has it. For `tracepoint`: the category.").restarts(),
    key("receivers::profiling::probes[]::symbol", "The function: its symbol, its C++ or Rust name, or its address `0x...`; for `uprobe`, optionally `+` and an offset in bytes. For `usdt`: `PROVIDER:NAME`. For `tracepoint`: its name.").restarts(),
    key("receivers::profiling::probes[]::value", "The value whose sum is profiled instead of the number of hits: `arg0` to `arg5`, `retval`, or a register such as `%rdi`; for tracepoints, any numeric argument. `:u8` to `:u64` or `:s8` to `:s64` after it sets its type. Negative values count as 0.").restarts(),
    key("receivers::profiling::probes[]::unit", "The unit of the value.").restarts(),
    key("receivers::profiling::probes[]::max_overhead", "The share of each CPU's time that this probe's samples may take. Beyond it, fewer hits are sampled, and each counts for more.").restarts(),
    key("receivers::profiling::pin_cpu_ids", "The CPUs to profile, if they are online, for example `0-3,8`. Empty: all.").restarts(),
    key("receivers::profiling::obi_process_ctx", "Whether spans are read from a pinned map of OpenTelemetry's eBPF instrumentation.")
        .refused("false", "omit it: spans are read from the processes themselves (trace_context)"),
    key("receivers::profiling::interpreters", "The interpreters whose frames are read.").restarts(),
    key("receivers::profiling::interpreters::python", "CPython 3.8 to 3.14.").restarts(),
    key("receivers::profiling::interpreters::python::disabled", "Whether to show only the native frames of Python programs.").restarts(),
    key("receivers::profiling::interpreters::hotspot", "HotSpot, the JVM of OpenJDK 8 to 26.").restarts(),
    key("receivers::profiling::interpreters::hotspot::disabled", "Whether stacks of Java programs end where Java methods begin.").restarts(),
    key("receivers::profiling::interpreters::v8", "V8, the JavaScript engine of Node.js 18 to 26.").restarts(),
    key("receivers::profiling::interpreters::v8::disabled", "Whether JavaScript functions are shown as generated code, without names.").restarts(),
    key("receivers::profiling::interpreters::perl", "Perl; not read yet.").not_yet("{disabled: true}"),
    key("receivers::profiling::interpreters::php", "PHP; not read yet.").not_yet("{disabled: true}"),
    key("receivers::profiling::interpreters::ruby", "Ruby; not read yet.").not_yet("{disabled: true}"),
    key("receivers::profiling::interpreters::dotnet", ".NET; not read yet.").not_yet("{disabled: true}"),
    key("receivers::profiling::interpreters::beam", "Erlang; not read yet.").not_yet("{disabled: true}"),
    key("receivers::profiling::interpreters::luajit", "LuaJIT; not read yet.").not_yet("{disabled: true}"),
    key("receivers::profiling::interpreters::go", "Go: its code is native, its labels are read with `trace_context`.").not_yet("{disabled: false, labels: {disabled: false}, symbolization: {disabled: false}}"),
    key("receivers::profiling::tracers", "Former name of `interpreters`.")
        .meaningless("interpreters chooses them"),
    key("receivers::profiling::frame_cache_size", "Size of a cache of frames.")
        .meaningless("memory is divided by memory_limit_mib"),
    key("receivers::profiling::map_scale_factor", "Size of eBPF maps.")
        .meaningless("memory is divided by memory_limit_mib"),
    key("receivers::profiling::go_labels_map_scale_factor", "Size of an eBPF map.")
        .meaningless("memory is divided by memory_limit_mib"),
    key("receivers::profiling::bpf_fs_root", "Where eBPF objects are pinned.")
        .meaningless("nothing is pinned, so that nothing is left behind"),
    key("receivers::profiling::clock_sync_interval", "The interval between comparisons of clocks.")
        .meaningless("clocks are compared at each report"),
    key("receivers::profiling::verbose_mode", "Whether the log is more detailed.")
        .meaningless("service::telemetry::logs::level sets the level of the log"),
    key("receivers::profiling::no_kernel_version_check", "Whether old kernels are tried.")
        .meaningless("features are probed, versions are not checked"),
    key("receivers::profiling::max_grpc_retries", "How often a request is retried.")
        .meaningless("the exporter's retry_on_failure decides"),
    key("receivers::profiling::max_rpc_msg_size", "Size of a request.")
        .meaningless("requests stay below what a Collector takes"),
    key("receivers::profiling::probe_links", "More probes, as `TYPE:TARGET:SYMBOL`, followed by other keys of `probes` as `,KEY=VALUE`.").restarts(),
    key("receivers::profiling::load_probe", "Whether to load the probe program even if nothing here attaches it: hits where other tools attach it are in the profile `events`.").restarts(),
    key("receivers::profiling::memory_limit_mib", "The total memory limit for maps, tables, names, aggregation and queues; by default three quarters of the cgroup's limit, or 48 if there is none.").unit("MiB").restarts(),
    key("receivers::profiling::scope", "The processes to sample; other processes' memory is never read.").restarts(),
    key("receivers::profiling::scope::mode", "`pod`: the containers of the pod that Sidewinder runs in, whose PID namespace it shares. `container`: only the containers in which a process runs that `include` names. `processes`: those that `include` names, and their descendants, those that run already and those that start later. `node`: every process that Sidewinder's PID namespace knows.").restarts(),
    key("receivers::profiling::scope::include", "The processes of `container` and `processes`: those that match any of these.").restarts(),
    key("receivers::profiling::scope::include::names", "Names, which the kernel truncates to 15 bytes; `*` matches any text, `?` one character.").restarts(),
    key("receivers::profiling::scope::include::executables", "Whole paths of programs, as the process sees them, with `*` and `?`.").restarts(),
    key("receivers::profiling::scope::include::command_lines", "Whole command lines, with single spaces between arguments, with `*` and `?`.").restarts(),
    key("receivers::profiling::scope::include::cgroups", "Whole paths of cgroups, as Sidewinder's own cgroup namespace shows them in `/proc/PID/cgroup`, with `*` and `?`.").restarts(),
    key("receivers::profiling::scope::include::pids", "Process IDs, as seen by Sidewinder.").restarts(),
    key("receivers::profiling::scope::exclude", "Processes to exclude nevertheless, with their descendants.").restarts(),
    key("receivers::profiling::scope::exclude::names", "Names, which the kernel truncates to 15 bytes; `*` matches any text, `?` one character.").restarts(),
    key("receivers::profiling::scope::exclude::executables", "Whole paths of programs, as the process sees them, with `*` and `?`.").restarts(),
    key("receivers::profiling::scope::exclude::command_lines", "Whole command lines, with single spaces between arguments, with `*` and `?`.").restarts(),
    key("receivers::profiling::scope::exclude::cgroups", "Whole paths of cgroups, as Sidewinder's own cgroup namespace shows them in `/proc/PID/cgroup`, with `*` and `?`.").restarts(),
    key("receivers::profiling::scope::exclude::pids", "Process IDs, as seen by Sidewinder.").restarts(),
    key("receivers::profiling::unwind", "How stacks are walked.").restarts(),
    key("receivers::profiling::unwind::mode", "`auto`: by frame pointers where they are proven, by tables elsewhere.").restarts(),
    key("receivers::profiling::unwind::overrides[]", "Modes for single binaries; the first match applies.").restarts(),
    key("receivers::profiling::unwind::overrides[]::name", "The last component of the binary's path.").restarts(),
    key("receivers::profiling::unwind::overrides[]::path", "The binary's path as its process sees it.").restarts(),
    key("receivers::profiling::unwind::overrides[]::build_id", "The binary's GNU build ID.").restarts(),
    key("receivers::profiling::unwind::overrides[]::mode", "How stacks are walked through it.").restarts(),
    key("receivers::profiling::unwind::trust", "What to trust if a binary's unwind information contradicts its code: `rows`, or `code`, which takes long to check.").restarts(),
    key("receivers::profiling::unwind::max_frames", "The number of frames after which a stack is truncated, and marked as such.").unit("frames").restarts(),
    key("receivers::profiling::unwind::kernel", "Whether stacks include kernel frames.").restarts(),
    key("receivers::profiling::unwind::tables_directory", "The absolute path of a directory in which to save unwind tables, which are read back when a file with the same build ID is seen again. It is created if missing; only Sidewinder's user may have write access. By default nothing is saved.").restarts(),
    key("receivers::profiling::unwind::tables_directory_mib", "The size limit of that directory; the least recently used tables are removed.").unit("MiB").restarts(),
    key("receivers::profiling::symbolize", "How addresses are symbolized.").restarts(),
    key("receivers::profiling::symbolize::mode", "`local`: from the binaries on this machine. `none`: the backend has the symbols. Interpreted functions have names in either mode.").restarts(),
    key("receivers::profiling::symbolize::lines", "Whether frames have source files and lines, if a binary or its debug file contains them.").restarts(),
    key("receivers::profiling::symbolize::inlines", "Whether inlined calls are separate frames, from the same source.").restarts(),
    key("receivers::profiling::symbolize::debug_directories", "Additional directories of debug files, as absolute paths that Sidewinder sees, with the layout of `/usr/lib/debug`. That directory itself is always searched: Sidewinder's own, the machine's if it is accessible, and the target's.").restarts(),
    key("receivers::profiling::symbolize::kernel", "Whether kernel frames are symbolized.").restarts(),
    key("receivers::profiling::symbolize::vm_internals", "Whether to show (`show`) or omit (`hide`) the native frames of an interpreter's loop, in addition to the interpreted functions.").restarts(),
    key("receivers::profiling::symbolize::source_maps", "Whether JavaScript functions have the file, line and name of the original source, such as TypeScript, if the script has a source map on disk. Maps take up to a quarter of the memory for names.").restarts(),
    key("receivers::profiling::trace_context", "The data that processes publish about themselves through OpenTelemetry's process context.").restarts(),
    key("receivers::profiling::trace_context::enabled", "Whether it is read: the resource of their SDK, and the span of each thread.").restarts(),
    key("receivers::profiling::trace_context::attributes", "Keys of thread attributes to add to samples. Use only keys with few distinct values: a backend may create a series for each.").restarts(),
    key("receivers::profiling::trace_context::trace_id_labels", "Keys of the pprof labels that hold the trace ID, in hexadecimal, in Go programs; the first existing one is used.").restarts(),
    key("receivers::profiling::trace_context::span_id_labels", "The same for the span ID.").restarts(),
    key("receivers::profiling::trace_context::custom_labels", "Whether to read labels of the custom-labels library (ABI 1) too, in any process: nothing announces them, so every file of every process is searched for their variable, once. They are treated like Go programs' labels.").restarts(),
];
