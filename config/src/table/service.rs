//! Keys of the service: pipelines and self-telemetry.

use super::key::{ABSENT, Key, key};

/// The keys of an OTLP exporter of self-telemetry at `$at`.
#[rustfmt::skip]
macro_rules! otlp_keys {
    ($at:literal) => {
        &[
            key($at, "By OTLP."),
            key(concat!($at, "::protocol"), "The protocol. `http/protobuf` is not supported in this version."),
            key(concat!($at, "::endpoint"), "The destination."),
            key(concat!($at, "::insecure"), "Whether to connect without TLS if the endpoint has no scheme."),
            key(concat!($at, "::headers"), "Headers of each request. Values are secret."),
            key(concat!($at, "::headers::*"), "One header."),
            key(concat!($at, "::headers_list"), "Headers as one string.").refused("''", "use headers"),
            key(concat!($at, "::timeout"), "The timeout of one attempt.").unit("ms"),
            key(concat!($at, "::temporality_preference"), "The aggregation temporality: whether a sum starts at the program's start or at the last report."),
            key(concat!($at, "::compression"), "The compression of requests.").refused("gzip", "omit it: by gzip")
                .deviates("`gzip`, where the Collector has none"),
            key(concat!($at, "::certificate"), "Authorities of the server's certificate.").refused("''", "omit it"),
            key(concat!($at, "::client_certificate"), "The client's certificate.").refused("''", "omit it"),
            key(concat!($at, "::client_key"), "Its private key.").refused("''", "omit it"),
            key(concat!($at, "::default_histogram_aggregation"), "The form of histograms.").refused("explicit_bucket_histogram", "omit it"),
        ]
    };
}

#[rustfmt::skip]
pub(super) static KEYS: &[Key] = &[
    key("service", "The components that run."),
    key("service::extensions", "IDs of the extensions that run."),
    key("service::pipelines", "Which receivers feed which exporters, by ID: `profiles` or `profiles/name`."),
    key("service::pipelines::profiles", "One pipeline of profiles."),
    key("service::pipelines::profiles::receivers", "IDs of receivers."),
    key("service::pipelines::profiles::processors", "IDs of processors, in order of execution."),
    key("service::pipelines::profiles::exporters", "IDs of exporters."),
    key("service::pipelines::traces", "Traces.").refused(ABSENT, "remove it: Sidewinder only produces profiles"),
    key("service::pipelines::metrics", "Metrics.").refused(ABSENT, "remove it: Sidewinder only produces profiles"),
    key("service::pipelines::logs", "Logs.").refused(ABSENT, "remove it: Sidewinder only produces profiles"),
    key("service::telemetry", "Sidewinder's own logs and metrics."),
    key("service::telemetry::logs", "The log."),
    key("service::telemetry::logs::level", "The minimum level."),
    key("service::telemetry::logs::encoding", "The format of a line."),
    key("service::telemetry::logs::output_paths", "The outputs of lines."),
    key("service::telemetry::logs::error_output_paths", "Where the log's own errors go.").meaningless("a log that can't be opened refuses the configuration"),
    key("service::telemetry::logs::sampling", "The sampling of repeated lines from one source location."),
    key("service::telemetry::logs::sampling::enabled", "Whether lines are sampled."),
    key("service::telemetry::logs::sampling::tick", "The interval after which counting restarts."),
    key("service::telemetry::logs::sampling::initial", "The number of lines that are written at first in each interval."),
    key("service::telemetry::logs::sampling::thereafter", "After these, one of this many lines is written, 0 for none."),
    key("service::telemetry::logs::development", "Whether the log is a developer's.").meaningless("there is one kind of log"),
    key("service::telemetry::logs::disable_caller", "Whether lines name no place in the source.").meaningless("lines name none"),
    key("service::telemetry::logs::disable_stacktrace", "Whether lines have no stack.").meaningless("lines have none"),
    key("service::telemetry::logs::disable_zap_resource", "Whether lines have no resource.").meaningless("lines have none"),
    key("service::telemetry::logs::initial_fields", "Fields of every line.").refused("{}", "omit it"),
    key("service::telemetry::logs::processors[]", "Where records are sent in addition."),
    key("service::telemetry::logs::processors[]::batch", "They are sent in batches."),
    key("service::telemetry::logs::processors[]::batch::exporter", "The destination."),
    key("service::telemetry::logs::processors[]::batch::exporter::console", "To standard output.").refused(ABSENT, "use output_paths"),
    key("service::telemetry::logs::processors[]::batch::schedule_delay", "The interval between exports.").unit("ms").refused("1000", "omit it"),
    key("service::telemetry::logs::processors[]::batch::export_timeout", "The timeout of one export.").unit("ms").refused("30000", "use exporter::otlp::timeout"),
    key("service::telemetry::logs::processors[]::batch::max_queue_size", "Records that may wait.").refused("2048", "omit it"),
    key("service::telemetry::logs::processors[]::batch::max_export_batch_size", "Records sent at a time.").refused("512", "omit it"),
    key("service::telemetry::logs::processors[]::simple", "Each is sent immediately.").refused(ABSENT, "use batch"),
    key("service::telemetry::metrics", "The metrics."),
    key("service::telemetry::metrics::level", "The level of detail."),
    key("service::telemetry::metrics::views", "How metrics are changed.").refused("[]", "omit it"),
    key("service::telemetry::metrics::address", "Older form of a reader.").refused("''", "use readers with pull"),
    key("service::telemetry::metrics::readers[]", "The readers of metrics.")
        .deviates("empty, where the Collector has Prometheus on localhost:8888: a Collector in the same pod may own that port"),
    key("service::telemetry::metrics::readers[]::periodic", "They are pushed periodically."),
    key("service::telemetry::metrics::readers[]::periodic::interval", "The interval between exports.").unit("ms"),
    key("service::telemetry::metrics::readers[]::periodic::timeout", "The timeout of collecting them.").unit("ms")
        .refused("30000", "use exporter::otlp::timeout: collecting them takes negligible time"),
    key("service::telemetry::metrics::readers[]::periodic::exporter", "The destination."),
    key("service::telemetry::metrics::readers[]::periodic::exporter::console", "To standard output.").refused(ABSENT, "use otlp"),
];

pub(super) static METRIC_EXPORTER: &[Key] =
    otlp_keys!("service::telemetry::metrics::readers[]::periodic::exporter::otlp");
pub(super) static LOG_EXPORTER: &[Key] =
    otlp_keys!("service::telemetry::logs::processors[]::batch::exporter::otlp");

/// The rest of self-telemetry, and the page.
#[rustfmt::skip]
pub(super) static REST: &[Key] = &[
    key("service::telemetry::metrics::readers[]::pull", "They are scraped."),
    key("service::telemetry::metrics::readers[]::pull::exporter", "How they are scraped."),
    key("service::telemetry::metrics::readers[]::pull::exporter::prometheus", "By Prometheus."),
    key("service::telemetry::metrics::readers[]::pull::exporter::prometheus::host", "The host to listen on."),
    key("service::telemetry::metrics::readers[]::pull::exporter::prometheus::port", "The port to listen on."),
    key("service::telemetry::metrics::readers[]::pull::exporter::prometheus::without_scope_info", "Whether scope labels are omitted.")
        .deviates("also true if a reader is given, where the Collector then has false: names are those of its default reader"),
    key("service::telemetry::metrics::readers[]::pull::exporter::prometheus::without_units", "Whether unit suffixes of names are omitted.")
        .deviates("also true if a reader is given, where the Collector then has false: names are those of its default reader"),
    key("service::telemetry::metrics::readers[]::pull::exporter::prometheus::without_type_suffix", "Whether type suffixes of names are omitted.")
        .deviates("also true if a reader is given, where the Collector then has false: names are those of its default reader"),
    key("service::telemetry::metrics::readers[]::pull::exporter::prometheus::with_resource_constant_labels", "Resource attributes as labels.").refused("null", "omit it"),
    key("service::telemetry::traces", "Its traces.").refused("{}", "remove it: Sidewinder has none"),
    key("service::telemetry::resource", "Attributes of its own resource; null removes one."),
    key("service::telemetry::resource::attributes[]", "Newer form: a list of names and values."),
    key("service::telemetry::resource::attributes[]::name", "The attribute."),
    key("service::telemetry::resource::attributes[]::value", "Its value."),
    key("service::telemetry::resource::schema_url", "Version of the attributes' meaning.").meaningless("it is determined by the release"),
    key("service::telemetry::resource::detection/development", "What finds attributes.").refused("null", "omit it: name attributes"),
    key("service::telemetry::resource::*", "One attribute."),
    key("service::ui", "The live page: a flame graph that grows."),
    key("service::ui::enabled", "Whether the page is served, as with `run --ui`."),
    key("service::ui::endpoint", "The address to listen on. Anyone who can connect sees function names; an address that is not on the loopback interface causes a warning."),
    key("service::ui::window", "How long samples are kept for the page."),
    key("service::ui::memory_limit_mib", "The memory limit of these samples per receiver, in addition to its own `memory_limit_mib`; older ones are evicted, and the page shows how many.").unit("MiB"),
];
