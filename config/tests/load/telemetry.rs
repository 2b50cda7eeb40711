//! Self-telemetry, and exporters that the environment configures.

use super::*;

#[test]
fn telemetry_has_the_collectors_shape() {
    let text = "
service:
  telemetry:
    logs: {level: WARN, encoding: json}
    metrics:
      level: detailed
      readers:
      - periodic: {interval: 1000, exporter: {otlp: {protocol: grpc, endpoint: 'c:4317'}}}
      - pull: {exporter: {prometheus: {host: 127.0.0.1, port: 9999, without_units: true}}}
    resource:
      attributes: [{name: service.name, value: mine}]
";
    let telemetry = load_over(&[text]).unwrap().config.telemetry;
    assert_eq!((telemetry.logs.level, telemetry.logs.encoding), (LogLevel::Warn, LogEncoding::Json));
    assert_eq!(telemetry.resource["service.name"].as_deref(), Some("mine"));
    let [MetricReader::Periodic(periodic), MetricReader::Prometheus(prometheus)] =
        telemetry.metrics.readers.as_slice()
    else {
        panic!("two readers were given: {telemetry:?}")
    };
    assert_eq!(periodic.interval, Duration::from_secs(1));
    assert_eq!(periodic.exporter.protocol, OtlpProtocol::Grpc);
    assert_eq!((prometheus.host.as_str(), prometheus.port), ("127.0.0.1", 9999));
    let reader = |keys: &str| error(&format!("service: {{telemetry: {{metrics: {{readers: [{keys}]}}}}}}"));
    assert!(reader("{}").contains("readers[0]: takes exactly one of periodic, pull"));
    assert!(reader("{periodic: {}}").contains("exactly one of exporter"));
    assert!(reader("{pull: {exporter: {prometheus: {port: 0}}}}").contains("expected a port"));
}

#[test]
fn the_environment_describes_an_exporter_where_nothing_is_configured() {
    let environment = variables(&[
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://general:4317"),
        ("OTEL_EXPORTER_OTLP_PROFILES_ENDPOINT", "http://profiles:4317"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20x,x-a = b"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "1500"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "none"),
        ("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", "/c.pem"),
        ("OTEL_EXPORTER_OTLP_CLIENT_KEY", "/k.pem"),
    ]);
    let loaded = load(&[], &[], &environment).unwrap();
    let Some(ExporterConfig::OtlpGrpc(exporter)) = loaded.config.exporters.values().next() else {
        panic!("an endpoint makes an exporter: {loaded:?}")
    };
    assert_eq!(exporter.endpoint.as_str(), "http://profiles:4317");
    assert!(!exporter.uses_tls(), "in the environment http:// switches TLS off");
    assert_eq!(exporter.headers["authorization"].reveal(), "Bearer x");
    assert_eq!(exporter.headers["x-a"].reveal(), "b");
    assert_eq!(exporter.timeout, Some(Duration::from_millis(1500)));
    assert_eq!(exporter.compression, Compression::None);
    assert!(exporter.tls.identity.is_some());
    assert_eq!(loaded.config.exporters.len(), 1);

    let configured = load(&[yaml(MINIMAL)], &[], &environment).unwrap();
    assert!(
        matches!(configured.config.exporters.values().next(), Some(ExporterConfig::File(_))),
        "YAML wins"
    );
}

#[test]
fn a_wrong_variable_is_named_by_its_error() {
    let environment = variables(&[
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "5s"),
        ("OTEL_EXPORTER_OTLP_INSECURE", "yes"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "hunter2"),
    ]);
    let errors = load(&[], &[], &environment).unwrap_err().to_string();
    for name in ["PROTOCOL", "TIMEOUT", "INSECURE", "HEADERS"] {
        assert!(errors.contains(&format!("environment variable OTEL_EXPORTER_OTLP_{name}: ")), "{errors}");
    }
    assert!(!errors.contains("hunter2"), "{errors}");
    let endpoint = load(&[], &[], &variables(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "collector")])).unwrap_err();
    let expected = "environment variable OTEL_EXPORTER_OTLP_ENDPOINT: exporters::otlp_grpc::endpoint: expected host:port";
    assert!(endpoint.to_string().starts_with(expected), "{endpoint}");
}
