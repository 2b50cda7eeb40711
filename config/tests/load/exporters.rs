//! Exporters and their requirements.

use super::*;

/// An exporter of each kind, with all services of extensions.
#[test]
fn exporters_refer_to_extensions_for_credentials_and_storage() {
    let loaded = load_over(&["
extensions:
  file_storage/a: {directory: /x, fsync: true, max_size: 4096}
  bearertokenauth: {filename: /run/token}
  basicauth/b: {client_auth: {username: me, password_file: /run/password}}
exporters:
  otlp_grpc: {endpoint: 'c:4317', auth: {authenticator: bearertokenauth}, sending_queue: {storage: file_storage/a}}
  otlphttp: {endpoint: 'https://c:4318', auth: {authenticator: basicauth/b}}
service:
  extensions: [file_storage/a, bearertokenauth, basicauth/b]
  pipelines: {profiles: {exporters: [otlp_grpc, otlphttp]}}"])
    .unwrap();
    let exporters = &loaded.config.exporters;
    let ExporterConfig::OtlpGrpc(grpc) = &exporters[&"otlp_grpc".parse().unwrap()] else {
        panic!("{exporters:?}")
    };
    assert_eq!(grpc.sending_queue.storage, Some("file_storage/a".parse().unwrap()));
    assert_eq!(grpc.auth, Some("bearertokenauth".parse().unwrap()));
    let ExporterConfig::OtlpHttp(http) = &exporters[&"otlphttp".parse().unwrap()] else {
        panic!("{exporters:?}")
    };
    assert_eq!(http.url(), "https://c:4318/v1development/profiles");
    assert_eq!(loaded.config.extensions.len(), 3);
}

#[test]
fn the_deprecated_name_of_the_exporter_works_and_warns() {
    let text = "
exporters: {otlp/a: {endpoint: 'c:4317'}}
service: {pipelines: {profiles/b: {receivers: [profiling], exporters: [otlp/a]}}}";
    let loaded = load_over(&[text]).unwrap();
    assert!(loaded.config.pipelines.contains_key(&"profiles/b".parse().unwrap()));
    assert!(matches!(loaded.config.exporters[&"otlp/a".parse().unwrap()], ExporterConfig::OtlpGrpc(_)));
    assert!(warnings(&loaded).iter().any(|warning| warning.contains("deprecated")), "{:?}", loaded.warnings);
}

#[test]
fn the_exporters_defaults_are_the_collectors_save_the_queue() {
    let exporter = grpc_exporter("");
    assert_eq!(exporter, OtlpGrpcExporter::new("collector:4317".parse().unwrap()));
    assert_eq!(exporter.compression, Compression::Gzip);
    assert_eq!(exporter.timeout, Some(Duration::from_secs(5)));
    let retry = &exporter.retry_on_failure;
    assert!(retry.enabled);
    assert_eq!(retry.initial_interval, Duration::from_secs(5));
    assert_eq!(retry.multiplier.get(), 1.5);
    assert_eq!(retry.randomization_factor.get(), 0.5);
    assert_eq!(retry.max_interval, Duration::from_secs(30));
    assert_eq!(retry.max_elapsed_time, Some(Duration::from_secs(300)));
    let queue = exporter.sending_queue;
    assert_eq!((queue.enabled, queue.sizer, queue.queue_size), (true, Sizer::Bytes, 8 << 20));
    assert_eq!(queue.num_consumers.get(), 2);
}

#[test]
fn zero_means_no_limit_for_the_timeout_and_the_elapsed_time() {
    let exporter = grpc_exporter("timeout: 0, retry_on_failure: {max_elapsed_time: 0s}");
    assert_eq!((exporter.timeout, exporter.retry_on_failure.max_elapsed_time), (None, None));
}

#[test]
fn a_queue_counts_bytes_and_a_size_that_would_count_requests_is_refused() {
    let queue = grpc_exporter("sending_queue: {sizer: bytes, queue_size: 65536}").sending_queue;
    assert_eq!((queue.sizer, queue.queue_size), (Sizer::Bytes, 65_536));
    let refused = |keys: &str| error(&grpc(&format!("sending_queue: {{{keys}}}")));
    assert!(refused("queue_size: 5000").contains("counts requests where sizer is absent"));
    assert!(refused("sizer: requests, queue_size: 5000").contains("sizer: is not supported in this version"));
    assert!(refused("enabled: false").contains("enabled: is not supported in this version"));
}

#[test]
fn waiting_longer_than_allowed_altogether_is_refused() {
    assert!(
        error(&grpc("retry_on_failure: {max_elapsed_time: 10s}"))
            .contains("must not be less than max_interval")
    );
}

#[test]
fn tls_is_off_only_if_insecure_is_set_and_nothing_else_requires_it() {
    let mut exporter = grpc_exporter("tls: {insecure: true}");
    assert!(!exporter.uses_tls());
    exporter.endpoint = "https://collector:4317".parse().unwrap();
    assert!(exporter.uses_tls());
    assert!(grpc_exporter("").uses_tls());
    assert!(grpc_exporter("tls: {insecure: true, ca_file: /ca.pem}").uses_tls());
}

#[test]
fn a_plaintext_scheme_that_does_not_switch_tls_off_warns() {
    let text = grpc("").replace("'collector", "'http://collector");
    let loaded = load_over(&[&text]).unwrap();
    assert!(warnings(&loaded).iter().any(|warning| warning.contains("does not switch TLS off")));
}

#[test]
fn tls_material_comes_once_and_in_pairs() {
    let exporter = grpc_exporter("tls: {ca_file: /ca.pem, cert_pem: C, key_file: /k.pem}");
    assert_eq!(exporter.tls.ca, Some(Pem::File("/ca.pem".into())));
    let identity = exporter.tls.identity.unwrap();
    assert_eq!(identity.certificate, Pem::Text(Secret::new("C".to_owned())));
    assert_eq!(identity.key, Pem::File("/k.pem".into()));
    let tls = |keys: &str| error(&grpc(&format!("tls: {{{keys}}}")));
    assert!(tls("ca_file: /a, ca_pem: A").contains("at most one of ca_file, ca_pem"));
    assert!(tls("cert_file: /a").contains("a certificate needs its key"));
}

#[test]
fn headers_come_as_a_map_or_a_list_and_are_checked() {
    let map = grpc_exporter("headers: {Authorization: Bearer x, x-org: '1'}").headers;
    let list =
        grpc_exporter("headers: [{name: authorization, value: Bearer x}, {name: x-org, value: '1'}]").headers;
    assert_eq!(map, list);
    assert_eq!(map["authorization"].reveal(), "Bearer x");
    for (headers, part) in [
        ("{x-org: 123456}", "put it in quotes"),
        ("{'x org': a}", "letters, digits"),
        ("{grpc-timeout: a}", "the protocol's own"),
        ("{Otlp-Profiles-Development-Version: '1'}", "the protocol's own"),
        ("{x-bin: a}", "binary"),
        ("{X-a: v1, x-a: v2}", "given twice"),
        ("{x: \"hunter2\\n\"}", "not printable ASCII"),
        ("hunter2", "expected a map of names to text"),
    ] {
        let error = error(&grpc(&format!("headers: {headers}")));
        assert!(error.contains(part), "{headers}: {error}");
        assert!(!error.contains("hunter2") && !error.contains("123456"), "{error}");
    }
}

#[test]
fn credentials_in_an_endpoint_are_refused_and_not_shown() {
    let error = error(&grpc("").replace("'collector", "'https://me:hunter2@collector"));
    assert!(error.contains("has no path, query or user") && !error.contains("hunter2"), "{error}");
}
