//! Keys of the exporters.

use super::key::{Key, key};

#[rustfmt::skip]
pub(super) static KEYS: &[Key] = &[
    key("exporters", "The destinations of profiles, by ID."),
    key("exporters::otlp_grpc", "OTLP over gRPC."),
    key("exporters::otlp", "Deprecated name of `otlp_grpc`."),
    key("exporters::otlp_http", "OTLP over HTTP."),
    key("exporters::otlphttp", "Deprecated name of `otlp_http`."),
    key("exporters::otlp_grpc::endpoint", "The receiver's address."),
    key("exporters::otlp_grpc::authority", "The `:authority` header."),
    key("exporters::otlp_grpc::balancer_name", "How requests are spread over addresses.").refused("round_robin", "omit it"),
    key("exporters::otlp_grpc::wait_for_ready", "Whether a request waits for a connection."),
    key("exporters::otlp_grpc::keepalive", "Pings on an idle connection."),
    key("exporters::otlp_grpc::keepalive::time", "Time without traffic before a ping."),
    key("exporters::otlp_grpc::keepalive::timeout", "The timeout of the response to a ping."),
    key("exporters::otlp_grpc::keepalive::permit_without_stream", "Whether to ping also while there is no request."),
    key("exporters::otlp_grpc::user_agent", "The `user-agent` header.").refused("''", "omit it"),
    key("exporters::otlp_http::endpoint", "The receiver's URL, to which `/v1development/profiles` is appended."),
    key("exporters::otlp_http::profiles_endpoint", "The whole URL, instead of `endpoint`."),
    key("exporters::otlp_http::encoding", "The form of requests.").refused("proto", "omit it: requests are protobuf"),
    key("exporters::otlp_http::proxy_url", "An HTTP proxy.").refused("''", "omit it: proxies are not used"),
    key("exporters::otlp_http::traces_endpoint", "The URL for traces.").refused("''", "omit it: Sidewinder sends profiles"),
    key("exporters::otlp_http::metrics_endpoint", "The URL for metrics.").refused("''", "omit it: Sidewinder sends profiles"),
    key("exporters::otlp_http::logs_endpoint", "The URL for logs.").refused("''", "omit it: Sidewinder sends profiles"),
    key("exporters::otlp_http::compression_params", "The compression level.").refused("{}", "omit it"),
    key("exporters::otlp_http::max_idle_conns", "Connections kept open.").refused("100", "omit it"),
    key("exporters::otlp_http::max_idle_conns_per_host", "Connections kept open to one host.").refused("0", "omit it"),
    key("exporters::otlp_http::max_conns_per_host", "Connections to one host.").refused("0", "use sending_queue::num_consumers"),
    key("exporters::otlp_http::idle_conn_timeout", "How long an idle connection is kept.").refused("1m30s", "omit it"),
    key("exporters::otlp_http::disable_keep_alives", "Whether each request uses a new connection.").refused("false", "omit it"),
    key("exporters::otlp_http::keepalive", "How connections are kept.").refused("null", "omit it"),
    key("exporters::otlp_http::http2_read_idle_timeout", "When an idle connection is tried.").refused("0s", "omit it"),
    key("exporters::otlp_http::http2_ping_timeout", "The timeout of the response to that.").refused("0s", "omit it"),
    key("exporters::otlp_http::force_attempt_http2", "Whether HTTP/2 is tried first.").refused("true", "omit it"),
    key("exporters::otlp_http::cookies", "Whether cookies are kept.").refused("null", "omit it"),
];

/// The keys that both OTLP exporters have, below `$at`.
#[rustfmt::skip]
macro_rules! client_keys {
    ($at:literal) => {
        &[
            key(concat!($at, "::headers"), "Metadata of each request. Values are secret.")
                .deviates("names of the protocol itself and binary headers (-bin) are refused"),
            key(concat!($at, "::headers::*"), "One header."),
            key(concat!($at, "::compression"), "The compression of requests.")
                .deviates("snappy is refused: it is not supported in this version"),
            key(concat!($at, "::timeout"), "The timeout of one attempt, 0 for none."),
            key(concat!($at, "::auth"), "Credentials of each request. Over gRPC they need TLS, as in the Collector."),
            key(concat!($at, "::auth::authenticator"), "The extension that adds them: `bearertokenauth` or `basicauth`."),
            key(concat!($at, "::middlewares"), "Extensions that see each request.").refused("[]", "omit it"),
            key(concat!($at, "::read_buffer_size"), "Size of a buffer.").unit("bytes").refused("0", "omit it"),
            key(concat!($at, "::write_buffer_size"), "Size of a buffer.").unit("bytes").refused("524288", "omit it"),
            key(concat!($at, "::tls"), "How the server is verified, and the client's certificate."),
            key(concat!($at, "::tls::insecure"), "Whether to connect without TLS. With an authority or an https endpoint, TLS stays on."),
            key(concat!($at, "::tls::ca_file"), "Certificate authorities to trust for the server's certificate; by default the system's."),
            key(concat!($at, "::tls::ca_pem"), "The same as text. Secret."),
            key(concat!($at, "::tls::include_system_ca_certs_pool"), "Whether the system's authorities are trusted as well."),
            key(concat!($at, "::tls::cert_file"), "The client's certificate."),
            key(concat!($at, "::tls::cert_pem"), "The same as text. Secret."),
            key(concat!($at, "::tls::key_file"), "The certificate's private key."),
            key(concat!($at, "::tls::key_pem"), "The same as text. Secret."),
            key(concat!($at, "::tls::server_name_override"), "The name expected in the server's certificate instead of the endpoint's host."),
            key(concat!($at, "::tls::insecure_skip_verify"), "Whether to accept any certificate."),
            key(concat!($at, "::tls::min_version"), "The oldest TLS version."),
            key(concat!($at, "::tls::max_version"), "The newest TLS version."),
            key(concat!($at, "::tls::cipher_suites"), "Cipher suites by name.").refused("[]", "omit it: weak ones are not supported"),
            key(concat!($at, "::tls::include_insecure_cipher_suites"), "Whether weak cipher suites may be named.").refused("false", "omit it"),
            key(concat!($at, "::tls::curve_preferences"), "Curves by name.").refused("[]", "omit it"),
            key(concat!($at, "::tls::reload_interval"), "How long loaded files may be reused for later connections.")
                .deviates("if absent, files are read for each connection; the Collector reads them once"),
            key(concat!($at, "::tls::tpm"), "A key inside a TPM.").refused("{}", "use key_file"),
            key(concat!($at, "::retry_on_failure"), "Retries of requests that failed temporarily."),
            key(concat!($at, "::retry_on_failure::enabled"), "Whether they are retried."),
            key(concat!($at, "::retry_on_failure::initial_interval"), "The first interval."),
            key(concat!($at, "::retry_on_failure::multiplier"), "The factor between successive intervals."),
            key(concat!($at, "::retry_on_failure::randomization_factor"), "The fraction of an interval by which it is randomized, in both directions."),
            key(concat!($at, "::retry_on_failure::max_interval"), "The longest interval before randomization."),
            key(concat!($at, "::retry_on_failure::max_elapsed_time"), "The time after which a request is dropped, 0 for never."),
            key(concat!($at, "::sending_queue"), "The queue of waiting requests."),
            key(concat!($at, "::sending_queue::enabled"), "Whether there is a queue.").refused("true", "omit it: there always is one"),
            key(concat!($at, "::sending_queue::sizer"), "What queue_size counts. `items` and `requests` are not supported in this version.")
                .deviates("`bytes`, where the Collector has `requests`: a thousand requests of 4 MiB exceed a sidecar's memory"),
            key(concat!($at, "::sending_queue::queue_size"), "The capacity; give `sizer: bytes` with it.").unit("bytes")
                .deviates("8 MiB, where the Collector has 1000 requests; refused without a sizer, because there it would count requests"),
            key(concat!($at, "::sending_queue::num_consumers"), "Concurrent requests.")
                .deviates("2, where the Collector has 10: each holds a request in memory"),
            key(concat!($at, "::sending_queue::block_on_overflow"), "Whether a full queue makes the profiler wait.").refused("false", "omit it: what does not fit is dropped and counted"),
            key(concat!($at, "::sending_queue::wait_for_result"), "Whether the profiler waits for each response.").refused("false", "omit it"),
            key(concat!($at, "::sending_queue::storage"), "The extension that keeps the queue on disk."),
            key(concat!($at, "::sending_queue::batch"), "How requests are batched.").refused("null", "omit it: a report is one request, split below what a Collector takes"),
        ]
    };
}

pub(super) static OTLP_GRPC: &[Key] = client_keys!("exporters::otlp_grpc");
pub(super) static OTLP_HTTP: &[Key] = client_keys!("exporters::otlp_http");

/// The exporters that write to a file or the log.
#[rustfmt::skip]
pub(super) static WRITERS: &[Key] = &[
    key("exporters::file", "One file of OTLP messages."),
    key("exporters::file::path", "The file."),
    key("exporters::file::format", "The format of the messages.")
        .deviates("`proto`, where the Collector has `json`: profiles as JSON are not supported in this version"),
    key("exporters::file::append", "Whether to write on at the file's end.").refused("false", "omit it: the file is replaced at start"),
    key("exporters::file::rotation", "When to begin a new file.").refused("null", "omit it"),
    key("exporters::file::encoding", "The extension that encodes.").refused("null", "omit it"),
    key("exporters::file::compression", "How the file is compressed.").refused("''", "omit it"),
    key("exporters::file::compression_params", "The compression level.").refused("{}", "omit it"),
    key("exporters::file::flush_interval", "Time between two writings.").refused("1s", "omit it"),
    key("exporters::file::group_by", "One file for each value of an attribute.").refused("null", "omit it"),
    key("exporters::file::create_directory", "Whether to create the file's directory.").refused("false", "create the directory first"),
    key("exporters::file::directory_permissions", "Permissions of that directory.").refused("''", "create the directory first"),
    key("exporters::debug", "A summary of each request in the log."),
    key("exporters::debug::verbosity", "The level of detail."),
    key("exporters::debug::sampling_initial", "Lines per second before some are dropped.").refused("2", "omit it: no line is dropped"),
    key("exporters::debug::sampling_thereafter", "Which lines are dropped then.").refused("1", "omit it: no line is dropped"),
    key("exporters::debug::use_internal_logger", "Whether it writes to the log.").refused("true", "omit it"),
    key("exporters::debug::output_paths", "Where it writes instead.").refused("[]", "omit it"),
    key("exporters::debug::sending_queue", "The queue of waiting requests.").refused("null", "omit it"),
];
