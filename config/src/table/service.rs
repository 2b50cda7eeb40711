//! Keys of the service: pipelines and self-telemetry.

use super::key::{ABSENT, Key, key};

/// The keys of an OTLP exporter of self-telemetry at `$at`.
#[rustfmt::skip]
macro_rules! otlp_keys {
    ($at:literal) => {
        &[
            key($at, "By OTLP."),
            key(concat!($at, "::protocol"), "How it travels. `http/protobuf` is not in this version."),
            key(concat!($at, "::endpoint"), "Where to."),
            key(concat!($at, "::insecure"), "Whether to speak without TLS where the endpoint has no scheme."),
            key(concat!($at, "::headers"), "Headers of each request. Values are secret."),
            key(concat!($at, "::headers::*"), "One header."),
            key(concat!($at, "::headers_list"), "Headers in one text.").refused("''", "use headers"),
            key(concat!($at, "::timeout"), "How long one attempt may take.").unit("ms"),
            key(concat!($at, "::temporality_preference"), "Whether a sum is told since the start or since the last time."),
            key(concat!($at, "::compression"), "How requests are compressed.").refused("gzip", "leave it out: by gzip")
                .deviates("`gzip`, where the Collector has none"),
            key(concat!($at, "::certificate"), "Authorities of the server's certificate.").refused("''", "leave it out"),
            key(concat!($at, "::client_certificate"), "The client's certificate.").refused("''", "leave it out"),
            key(concat!($at, "::client_key"), "Its private key.").refused("''", "leave it out"),
            key(concat!($at, "::default_histogram_aggregation"), "The form of histograms.").refused("explicit_bucket_histogram", "leave it out"),
        ]
    };
}

#[rustfmt::skip]
pub(super) static KEYS: &[Key] = &[
    key("service", "What runs."),
    key("service::extensions", "Ids of extensions that run."),
    key("service::pipelines", "Which receivers feed which exporters, by id: `profiles` or `profiles/name`."),
    key("service::pipelines::profiles", "One flow of profiles."),
    key("service::pipelines::profiles::receivers", "Ids of receivers."),
    key("service::pipelines::profiles::processors", "Ids of processors, in the order in which they act."),
    key("service::pipelines::profiles::exporters", "Ids of exporters."),
    key("service::pipelines::traces", "Traces.").refused(ABSENT, "remove it: Sidewinder makes profiles only"),
    key("service::pipelines::metrics", "Metrics.").refused(ABSENT, "remove it: Sidewinder makes profiles only"),
    key("service::pipelines::logs", "Logs.").refused(ABSENT, "remove it: Sidewinder makes profiles only"),
    key("service::telemetry", "What Sidewinder says about itself."),
    key("service::telemetry::logs", "Its log."),
    key("service::telemetry::logs::level", "The least that is said."),
    key("service::telemetry::logs::encoding", "The form of a line."),
    key("service::telemetry::logs::output_paths", "Where lines go."),
    key("service::telemetry::logs::error_output_paths", "Where the log's own errors go.").meaningless("a log that can't be opened refuses the configuration"),
    key("service::telemetry::logs::sampling", "How lines that repeat, of one place in the source, are left out."),
    key("service::telemetry::logs::sampling::enabled", "Whether they are."),
    key("service::telemetry::logs::sampling::tick", "How long lines are counted before counting begins anew."),
    key("service::telemetry::logs::sampling::initial", "Lines that pass in that time."),
    key("service::telemetry::logs::sampling::thereafter", "After these, one line in so many passes, 0 for none."),
    key("service::telemetry::logs::development", "Whether the log is a developer's.").meaningless("there is one kind of log"),
    key("service::telemetry::logs::disable_caller", "Whether lines name no place in the source.").meaningless("lines name none"),
    key("service::telemetry::logs::disable_stacktrace", "Whether lines have no stack.").meaningless("lines have none"),
    key("service::telemetry::logs::disable_zap_resource", "Whether lines have no resource.").meaningless("lines have none"),
    key("service::telemetry::logs::initial_fields", "Fields of every line.").refused("{}", "leave it out"),
    key("service::telemetry::logs::processors[]", "Where records are sent besides."),
    key("service::telemetry::logs::processors[]::batch", "They are sent a number at a time."),
    key("service::telemetry::logs::processors[]::batch::exporter", "Where they go."),
    key("service::telemetry::logs::processors[]::batch::exporter::console", "To standard output.").refused(ABSENT, "use output_paths"),
    key("service::telemetry::logs::processors[]::batch::schedule_delay", "Time between two sendings.").unit("ms").refused("1000", "leave it out"),
    key("service::telemetry::logs::processors[]::batch::export_timeout", "How long one sending may take.").unit("ms").refused("30000", "use exporter::otlp::timeout"),
    key("service::telemetry::logs::processors[]::batch::max_queue_size", "Records that may wait.").refused("2048", "leave it out"),
    key("service::telemetry::logs::processors[]::batch::max_export_batch_size", "Records sent at a time.").refused("512", "leave it out"),
    key("service::telemetry::logs::processors[]::simple", "Each is sent at once.").refused(ABSENT, "use batch"),
    key("service::telemetry::metrics", "Its metrics."),
    key("service::telemetry::metrics::level", "How much is measured."),
    key("service::telemetry::metrics::views", "How metrics are changed.").refused("[]", "leave it out"),
    key("service::telemetry::metrics::address", "Older form of a reader.").refused("''", "use readers with pull"),
    key("service::telemetry::metrics::readers[]", "Who reads the metrics.")
        .deviates("empty, where the Collector has Prometheus on localhost:8888: a Collector in the same pod may own that port"),
    key("service::telemetry::metrics::readers[]::periodic", "They are sent every so often."),
    key("service::telemetry::metrics::readers[]::periodic::interval", "Time between two sendings.").unit("ms"),
    key("service::telemetry::metrics::readers[]::periodic::timeout", "How long reading them may take.").unit("ms")
        .refused("30000", "use exporter::otlp::timeout: reading takes no time worth a limit"),
    key("service::telemetry::metrics::readers[]::periodic::exporter", "Where they go."),
    key("service::telemetry::metrics::readers[]::periodic::exporter::console", "To standard output.").refused(ABSENT, "use otlp"),
];

pub(super) static METRIC_EXPORTER: &[Key] =
    otlp_keys!("service::telemetry::metrics::readers[]::periodic::exporter::otlp");
pub(super) static LOG_EXPORTER: &[Key] =
    otlp_keys!("service::telemetry::logs::processors[]::batch::exporter::otlp");

/// The rest of self-telemetry, and the page.
#[rustfmt::skip]
pub(super) static REST: &[Key] = &[
    key("service::telemetry::metrics::readers[]::pull", "They are fetched."),
    key("service::telemetry::metrics::readers[]::pull::exporter", "How they are fetched."),
    key("service::telemetry::metrics::readers[]::pull::exporter::prometheus", "By Prometheus."),
    key("service::telemetry::metrics::readers[]::pull::exporter::prometheus::host", "The address that is listened on."),
    key("service::telemetry::metrics::readers[]::pull::exporter::prometheus::port", "The port that is listened on."),
    key("service::telemetry::metrics::readers[]::pull::exporter::prometheus::without_scope_info", "Whether scopes are left out.")
        .deviates("true also where a reader is given, where the Collector has false then: names are those of its own default reader"),
    key("service::telemetry::metrics::readers[]::pull::exporter::prometheus::without_units", "Whether names have no units.")
        .deviates("true also where a reader is given, where the Collector has false then: names are those of its own default reader"),
    key("service::telemetry::metrics::readers[]::pull::exporter::prometheus::without_type_suffix", "Whether names have no types.")
        .deviates("true also where a reader is given, where the Collector has false then: names are those of its own default reader"),
    key("service::telemetry::metrics::readers[]::pull::exporter::prometheus::with_resource_constant_labels", "Resource attributes as labels.").refused("null", "leave it out"),
    key("service::telemetry::traces", "Its traces.").refused("{}", "remove it: Sidewinder makes none of itself"),
    key("service::telemetry::resource", "Attributes of its own resource; null takes one away."),
    key("service::telemetry::resource::attributes[]", "Newer form: a list of names and values."),
    key("service::telemetry::resource::attributes[]::name", "The attribute."),
    key("service::telemetry::resource::attributes[]::value", "Its value."),
    key("service::telemetry::resource::schema_url", "Version of the attributes' meaning.").meaningless("it is that of the release"),
    key("service::telemetry::resource::detection/development", "What finds attributes.").refused("null", "leave it out: name attributes"),
    key("service::telemetry::resource::*", "One attribute."),
    key("service::ui", "The page that follows what is profiled: a flame graph that fills."),
    key("service::ui::enabled", "Whether there is the page, as with `run --ui`."),
    key("service::ui::endpoint", "Where to listen. Whoever reaches it sees the names of functions; one other than this machine's is a warning."),
    key("service::ui::window", "How long samples are held for it."),
    key("service::ui::memory_limit_mib", "What they may take for each receiver, beside its own `memory_limit_mib`; older ones are let go, and the page says how many.").unit("MiB"),
];
