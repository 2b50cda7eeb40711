//! The table itself.

use super::{Key, Support};

const fn key(path: &'static str, description: &'static str) -> Key {
    Key { path, description, unit: "", deviation: None, support: Support::Acts }
}

impl Key {
    const fn unit(self, unit: &'static str) -> Self {
        Self { unit, ..self }
    }

    const fn deviates(self, deviation: &'static str) -> Self {
        Self { deviation: Some(deviation), ..self }
    }

    const fn not_yet(self, default: &'static str) -> Self {
        Self { support: Support::NotYet { default }, ..self }
    }

    const fn refused(self, default: &'static str, instead: &'static str) -> Self {
        Self { support: Support::Refused { default, instead }, ..self }
    }

    const fn meaningless(self, why: &'static str) -> Self {
        Self { support: Support::Meaningless { why }, ..self }
    }
}

/// What a refused component is called in its own default: it has none, being there is giving it.
const ABSENT: &str = "absent";

/// Every key, section by section, in the order of the documentation.
#[rustfmt::skip]
pub(crate) static KEYS: &[Key] = &[
    key("receivers", "Profilers, by id: `profiling` or `profiling/name`."),
    key("receivers::profiling", "One profiler."),
    key("receivers::profiling::samples_per_second", "How often each CPU is interrupted.").unit("Hz")
        .deviates("at most 10000, where OpenTelemetry's profiler takes any number: the kernel refuses more"),
    key("receivers::profiling::reporter_interval", "Time between two reports.")
        .deviates("100ms to 1h, where OpenTelemetry's profiler takes any duration: closer reports cost more than they tell, rarer ones outgrow the memory budget"),
    key("receivers::profiling::reporter_jitter", "Share by which each report's time is shifted at random, either way.").not_yet("0.2"),
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
    key("receivers::profiling::memory_limit_mib", "One budget for maps, tables, names, aggregation and queues.").unit("MiB"),
    key("receivers::profiling::scope", "Whose interrupts are looked at; the memory of anything else is never read."),
    key("receivers::profiling::scope::mode", "`node`: every process. `processes`: those in `pids`. `pod` and `container` are not in this version."),
    key("receivers::profiling::scope::pids", "Process ids, as seen from Sidewinder."),
    key("receivers::profiling::scope::include", "Processes by name, executable, command line or cgroup.")
        .refused("[]", "use pids"),
    key("receivers::profiling::scope::exclude", "Processes that are left out.")
        .refused("[]", "use pids"),
    key("receivers::profiling::unwind", "How stacks are walked."),
    key("receivers::profiling::unwind::mode", "`auto`: by frame pointers where they are proven, by tables elsewhere."),
    key("receivers::profiling::unwind::overrides[]", "Other ways for single binaries; the first that matches holds."),
    key("receivers::profiling::unwind::overrides[]::name", "The last component of the binary's path."),
    key("receivers::profiling::unwind::overrides[]::path", "The binary's path as its process sees it."),
    key("receivers::profiling::unwind::overrides[]::build_id", "The binary's GNU build ID."),
    key("receivers::profiling::unwind::overrides[]::mode", "How stacks are walked through it."),
    key("receivers::profiling::unwind::trust", "Where a binary's unwind information contradicts its code: `rows` holds, or `code`, which takes long to check."),
    key("receivers::profiling::unwind::max_frames", "Frames after which a stack is cut, visibly.").unit("frames"),
    key("receivers::profiling::unwind::kernel", "Whether the kernel's frames are part of stacks."),
    key("receivers::profiling::symbolize", "How addresses get names."),
    key("receivers::profiling::symbolize::mode", "`local`: from the binaries on this machine. `none`: the backend has the symbols."),
    key("receivers::profiling::symbolize::kernel", "Whether kernel frames get names."),
    key("receivers::profiling::trace_context", "Which trace a sample belongs to."),
    key("receivers::profiling::trace_context::enabled", "Whether trace and span ids are read from targets.")
        .refused("false", "leave it out: samples carry no trace ids yet"),

    key("exporters", "Where profiles go, by id."),
    key("exporters::otlp_grpc", "OTLP over gRPC."),
    key("exporters::otlp", "Deprecated name of `otlp_grpc`."),
    key("exporters::otlp_http", "OTLP over HTTP.")
        .refused(ABSENT, "use otlp_grpc, which a Collector takes on port 4317"),
    key("exporters::otlphttp", "Deprecated name of `otlp_http`.")
        .refused(ABSENT, "use otlp_grpc, which a Collector takes on port 4317"),
    key("exporters::otlp_grpc::endpoint", "The receiver's address."),
    key("exporters::otlp_grpc::headers", "Metadata of each request. Values are secret.")
        .deviates("names of the protocol itself and binary headers (-bin) are refused"),
    key("exporters::otlp_grpc::headers::*", "One header."),
    key("exporters::otlp_grpc::compression", "How requests are compressed.")
        .deviates("snappy is refused: it is not in this version"),
    key("exporters::otlp_grpc::timeout", "How long one attempt may take, 0 for as long as it likes."),
    key("exporters::otlp_grpc::auth", "The extension that authenticates requests.")
        .refused("null", "put the token into headers, as in authorization: Bearer ${env:TOKEN}"),
    key("exporters::otlp_grpc::authority", "The `:authority` header.").refused("''", "leave it out"),
    key("exporters::otlp_grpc::balancer_name", "How requests are spread over addresses.").refused("round_robin", "leave it out"),
    key("exporters::otlp_grpc::wait_for_ready", "Whether a request waits for a connection.").refused("false", "leave it out: retry_on_failure waits"),
    key("exporters::otlp_grpc::keepalive", "Pings on an idle connection.").refused("null", "leave it out"),
    key("exporters::otlp_grpc::middlewares", "Extensions that see each request.").refused("[]", "leave it out"),
    key("exporters::otlp_grpc::read_buffer_size", "Size of a buffer.").unit("bytes").refused("0", "leave it out"),
    key("exporters::otlp_grpc::write_buffer_size", "Size of a buffer.").unit("bytes").refused("524288", "leave it out"),
    key("exporters::otlp_grpc::user_agent", "The `user-agent` header.").refused("''", "leave it out"),
    key("exporters::otlp_grpc::tls", "How the server is checked and what it is shown."),
    key("exporters::otlp_grpc::tls::insecure", "Whether to speak without TLS. An authority or an https endpoint keeps TLS on."),
    key("exporters::otlp_grpc::tls::ca_file", "Authorities that may have signed the server's certificate; the system's where absent."),
    key("exporters::otlp_grpc::tls::ca_pem", "The same as text. Secret."),
    key("exporters::otlp_grpc::tls::include_system_ca_certs_pool", "Whether the system's authorities are trusted as well."),
    key("exporters::otlp_grpc::tls::cert_file", "The client's certificate."),
    key("exporters::otlp_grpc::tls::cert_pem", "The same as text. Secret."),
    key("exporters::otlp_grpc::tls::key_file", "The certificate's private key."),
    key("exporters::otlp_grpc::tls::key_pem", "The same as text. Secret."),
    key("exporters::otlp_grpc::tls::server_name_override", "The name expected in the server's certificate instead of the endpoint's host."),
    key("exporters::otlp_grpc::tls::insecure_skip_verify", "Whether any certificate will do.")
        .refused("false", "name the certificate's authority by ca_file"),
    key("exporters::otlp_grpc::tls::min_version", "The oldest TLS version.").refused("'1.2'", "leave it out for 1.2"),
    key("exporters::otlp_grpc::tls::max_version", "The newest TLS version.").refused("''", "leave it out"),
    key("exporters::otlp_grpc::tls::cipher_suites", "Cipher suites by name.").refused("[]", "leave it out"),
    key("exporters::otlp_grpc::tls::include_insecure_cipher_suites", "Whether weak cipher suites may be named.").refused("false", "leave it out"),
    key("exporters::otlp_grpc::tls::curve_preferences", "Curves by name.").refused("[]", "leave it out"),
    key("exporters::otlp_grpc::tls::reload_interval", "After how long certificates are read again.").refused("0s", "leave it out and restart when they change"),
    key("exporters::otlp_grpc::tls::tpm", "A key inside a TPM.").refused("{}", "use key_file"),
    key("exporters::otlp_grpc::retry_on_failure", "What happens to a request that failed for now."),
    key("exporters::otlp_grpc::retry_on_failure::enabled", "Whether it is tried again."),
    key("exporters::otlp_grpc::retry_on_failure::initial_interval", "The first waiting time."),
    key("exporters::otlp_grpc::retry_on_failure::multiplier", "Each waiting time over the one before."),
    key("exporters::otlp_grpc::retry_on_failure::randomization_factor", "Share by which a waiting time is shifted at random, either way."),
    key("exporters::otlp_grpc::retry_on_failure::max_interval", "The longest waiting time."),
    key("exporters::otlp_grpc::retry_on_failure::max_elapsed_time", "After how long a request is given up, 0 for never."),
    key("exporters::otlp_grpc::sending_queue", "Where requests wait."),
    key("exporters::otlp_grpc::sending_queue::enabled", "Whether there is a queue.").refused("true", "leave it out: there always is one"),
    key("exporters::otlp_grpc::sending_queue::sizer", "What queue_size counts. `items` and `requests` are not in this version.")
        .deviates("`bytes`, where the Collector has `requests`: a thousand requests of 4 MiB are no sidecar's"),
    key("exporters::otlp_grpc::sending_queue::queue_size", "How much may wait; give `sizer: bytes` with it.").unit("bytes")
        .deviates("8 MiB, where the Collector has 1000 requests; refused without a sizer, because there it would count requests"),
    key("exporters::otlp_grpc::sending_queue::num_consumers", "Requests under way at once.")
        .deviates("2, where the Collector has 10: each holds a request in memory"),
    key("exporters::otlp_grpc::sending_queue::block_on_overflow", "Whether a full queue makes the profiler wait.").refused("false", "leave it out: what does not fit is dropped and counted"),
    key("exporters::otlp_grpc::sending_queue::wait_for_result", "Whether the profiler waits for each answer.").refused("false", "leave it out"),
    key("exporters::otlp_grpc::sending_queue::storage", "The extension that keeps the queue on disk.").refused("null", "leave it out: the queue is in memory"),
    key("exporters::otlp_grpc::sending_queue::batch", "How requests are put together.").refused("null", "leave it out: a report is one request, split below what a Collector takes"),
    key("exporters::file", "One file of OTLP messages."),
    key("exporters::file::path", "The file."),
    key("exporters::file::format", "The form of the messages.")
        .deviates("`proto`, where the Collector has `json`: profiles as JSON are not in this version"),
    key("exporters::file::append", "Whether to write on at the file's end.").refused("false", "leave it out: the file is replaced at start"),
    key("exporters::file::rotation", "When to begin a new file.").refused("null", "leave it out"),
    key("exporters::file::encoding", "The extension that encodes.").refused("null", "leave it out"),
    key("exporters::file::compression", "How the file is compressed.").refused("''", "leave it out"),
    key("exporters::file::compression_params", "How hard to compress.").refused("{}", "leave it out"),
    key("exporters::file::flush_interval", "Time between two writings.").refused("1s", "leave it out"),
    key("exporters::file::group_by", "One file for each value of an attribute.").refused("null", "leave it out"),
    key("exporters::file::create_directory", "Whether to create the file's folder.").refused("false", "create the folder before"),
    key("exporters::file::directory_permissions", "Permissions of that folder.").refused("''", "create the folder before"),
    key("exporters::debug", "A summary of each request in the log."),
    key("exporters::debug::verbosity", "How much it says."),
    key("exporters::debug::sampling_initial", "Lines a second before some are left out.").refused("2", "leave it out: no line is left out"),
    key("exporters::debug::sampling_thereafter", "Which lines are left out then.").refused("1", "leave it out: no line is left out"),
    key("exporters::debug::use_internal_logger", "Whether it writes to the log.").refused("true", "leave it out"),
    key("exporters::debug::output_paths", "Where it writes instead.").refused("[]", "leave it out"),
    key("exporters::debug::sending_queue", "Where requests wait.").refused("null", "leave it out"),

    key("processors", "What changes profiles on their way; none in this version."),
    key("processors::resource", "Changes resource attributes.").refused(ABSENT, "use the Collector's processor"),
    key("processors::k8s_attributes", "Adds what Kubernetes knows.").refused(ABSENT, "use the Collector's processor"),
    key("processors::k8sattributes", "Deprecated name of `k8s_attributes`.").refused(ABSENT, "use the Collector's processor"),
    key("processors::batch", "Puts requests together.").refused(ABSENT, "leave it out: a report is one request"),
    key("processors::memory_limiter", "Refuses data when memory is short.").refused(ABSENT, "use the receiver's memory_limit_mib"),
    key("processors::filter", "Leaves data out.").refused(ABSENT, "use the receiver's scope"),
    key("connectors", "What joins pipelines; none in this version."),
    key("extensions", "What helps components; none in this version."),
    key("extensions::file_storage", "Keeps queues on disk.").refused(ABSENT, "leave it out: queues are in memory"),
    key("extensions::bearertokenauth", "Sends a token.").refused(ABSENT, "put the token into the exporter's headers"),
    key("extensions::basicauth", "Sends a user's name and password.").refused(ABSENT, "put them into the exporter's headers"),
    key("extensions::health_check", "Says over HTTP whether all is well.").refused(ABSENT, "leave it out"),
    key("extensions::zpages", "Shows the inside over HTTP.").refused(ABSENT, "leave it out"),

    key("service", "What runs."),
    key("service::extensions", "Extensions that run; none in this version."),
    key("service::pipelines", "Which receivers feed which exporters, by id: `profiles` or `profiles/name`."),
    key("service::pipelines::profiles", "One flow of profiles."),
    key("service::pipelines::profiles::receivers", "Ids of receivers."),
    key("service::pipelines::profiles::processors", "Ids of processors.").refused("[]", "leave it out: there are no processors"),
    key("service::pipelines::profiles::exporters", "Ids of exporters."),
    key("service::pipelines::traces", "Traces.").refused(ABSENT, "remove it: Sidewinder makes profiles only"),
    key("service::pipelines::metrics", "Metrics.").refused(ABSENT, "remove it: Sidewinder makes profiles only"),
    key("service::pipelines::logs", "Logs.").refused(ABSENT, "remove it: Sidewinder makes profiles only"),
    key("service::telemetry", "What Sidewinder says about itself."),
    key("service::telemetry::logs", "Its log."),
    key("service::telemetry::logs::level", "The least that is said."),
    key("service::telemetry::logs::encoding", "The form of a line."),
    key("service::telemetry::logs::output_paths", "Where lines go."),
    key("service::telemetry::logs::error_output_paths", "Where the log's own errors go.").not_yet("[stderr]"),
    key("service::telemetry::logs::sampling", "How lines that repeat are left out.").not_yet("{}"),
    key("service::telemetry::logs::development", "Whether the log is a developer's.").not_yet("false"),
    key("service::telemetry::logs::disable_caller", "Whether lines name no place in the source.").meaningless("lines name none"),
    key("service::telemetry::logs::disable_stacktrace", "Whether lines have no stack.").meaningless("lines have none"),
    key("service::telemetry::logs::disable_zap_resource", "Whether lines have no resource.").meaningless("lines have none"),
    key("service::telemetry::logs::initial_fields", "Fields of every line.").refused("{}", "leave it out"),
    key("service::telemetry::logs::processors", "Where the log is sent.").refused("[]", "use output_paths"),
    key("service::telemetry::metrics", "Its metrics."),
    key("service::telemetry::metrics::level", "How much is measured.").not_yet("normal"),
    key("service::telemetry::metrics::views", "How metrics are changed.").refused("[]", "leave it out"),
    key("service::telemetry::metrics::address", "Older form of a reader.").refused("''", "use readers with pull"),
    key("service::telemetry::metrics::readers[]", "Who reads the metrics.").not_yet("[]")
        .deviates("empty, where the Collector has Prometheus on localhost:8888: a Collector in the same pod may own that port"),
    key("service::telemetry::metrics::readers[]::periodic", "They are sent every so often."),
    key("service::telemetry::metrics::readers[]::periodic::interval", "Time between two sendings.").unit("ms"),
    key("service::telemetry::metrics::readers[]::periodic::timeout", "How long reading them may take.").unit("ms"),
    key("service::telemetry::metrics::readers[]::periodic::exporter", "Where they go."),
    key("service::telemetry::metrics::readers[]::periodic::exporter::console", "To standard output.").refused(ABSENT, "use otlp"),
    key("service::telemetry::metrics::readers[]::periodic::exporter::otlp", "By OTLP."),
    key("service::telemetry::metrics::readers[]::periodic::exporter::otlp::protocol", "How they travel."),
    key("service::telemetry::metrics::readers[]::periodic::exporter::otlp::endpoint", "Where to."),
    key("service::telemetry::metrics::readers[]::periodic::exporter::otlp::insecure", "Whether to speak without TLS where the endpoint has no scheme."),
    key("service::telemetry::metrics::readers[]::periodic::exporter::otlp::headers", "Headers of each request. Values are secret."),
    key("service::telemetry::metrics::readers[]::periodic::exporter::otlp::headers::*", "One header."),
    key("service::telemetry::metrics::readers[]::periodic::exporter::otlp::headers_list", "Headers in one text.").refused("''", "use headers"),
    key("service::telemetry::metrics::readers[]::periodic::exporter::otlp::timeout", "How long one attempt may take.").unit("ms"),
    key("service::telemetry::metrics::readers[]::periodic::exporter::otlp::temporality_preference", "Whether a sum is told since the start or since the last time."),
    key("service::telemetry::metrics::readers[]::periodic::exporter::otlp::compression", "How requests are compressed.").refused("none", "leave it out"),
    key("service::telemetry::metrics::readers[]::periodic::exporter::otlp::certificate", "Authorities of the server's certificate.").refused("''", "leave it out"),
    key("service::telemetry::metrics::readers[]::periodic::exporter::otlp::client_certificate", "The client's certificate.").refused("''", "leave it out"),
    key("service::telemetry::metrics::readers[]::periodic::exporter::otlp::client_key", "Its private key.").refused("''", "leave it out"),
    key("service::telemetry::metrics::readers[]::periodic::exporter::otlp::default_histogram_aggregation", "The form of histograms.").refused("explicit_bucket_histogram", "leave it out"),
    key("service::telemetry::metrics::readers[]::pull", "They are fetched."),
    key("service::telemetry::metrics::readers[]::pull::exporter", "How they are fetched."),
    key("service::telemetry::metrics::readers[]::pull::exporter::prometheus", "By Prometheus."),
    key("service::telemetry::metrics::readers[]::pull::exporter::prometheus::host", "The address that is listened on."),
    key("service::telemetry::metrics::readers[]::pull::exporter::prometheus::port", "The port that is listened on."),
    key("service::telemetry::metrics::readers[]::pull::exporter::prometheus::without_scope_info", "Whether scopes are left out.").refused("true", "leave it out"),
    key("service::telemetry::metrics::readers[]::pull::exporter::prometheus::without_units", "Whether names have no units.").refused("true", "leave it out"),
    key("service::telemetry::metrics::readers[]::pull::exporter::prometheus::without_type_suffix", "Whether names have no types.").refused("true", "leave it out"),
    key("service::telemetry::metrics::readers[]::pull::exporter::prometheus::with_resource_constant_labels", "Resource attributes as labels.").refused("null", "leave it out"),
    key("service::telemetry::traces", "Its traces.").refused("{}", "remove it: Sidewinder makes none of itself"),
    key("service::telemetry::resource", "Attributes of its own resource; null takes one away.").not_yet("{}"),
    key("service::telemetry::resource::*", "One attribute."),
];
