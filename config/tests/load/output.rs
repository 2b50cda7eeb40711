//! The printed configuration, and what it must not contain.

use super::*;

#[test]
fn a_variable_that_is_wrong_is_named_and_not_shown() {
    let text = "receivers: {profiling: {samples_per_second: '${env:RATE}', error_mode: 'x${env:RATE}'}}";
    let errors = load(&[yaml(MINIMAL), yaml(text)], &[], &variables(&[("RATE", "hunter2")])).unwrap_err();
    let errors = errors.to_string();
    assert!(errors.contains("got what ${env:RATE} stands for"), "{errors}");
    assert!(!errors.contains("hunter2"), "{errors}");
}

const SECRETS: &str = "
exporters:
  otlp_grpc:
    endpoint: collector:4317
    headers: {authorization: hunter2}
    tls: {ca_pem: hunter2, cert_pem: hunter2, key_pem: hunter2}
service:
  pipelines: {profiles: {exporters: [otlp_grpc]}}
  telemetry:
    metrics:
      readers:
      - periodic: {exporter: {otlp: {protocol: grpc, endpoint: 'c:4317', headers: [{name: a, value: hunter2}]}}}
";

#[test]
fn secrets_are_in_no_output_but_the_unredacted_one() {
    let config = load_over(&[SECRETS]).unwrap().config;
    assert!(!format!("{config:?}").contains("hunter2"));
    for format in [PrintFormat::Yaml, PrintFormat::Json] {
        let redacted = print_config(&config, PrintMode::Redacted, format);
        assert!(!redacted.contains("hunter2"), "{redacted}");
        assert_eq!(redacted.matches("[REDACTED]").count(), 5, "{redacted}");
        let unredacted = print_config(&config, PrintMode::Unredacted, format);
        assert_eq!(unredacted.matches("hunter2").count(), 5, "{unredacted}");
    }
}

#[test]
fn what_is_printed_is_read_back_as_the_same() {
    let text = "
receivers:
  profiling/a:
    scope: {mode: processes, include: {pids: [1, 2], names: [x*]}}
    include_env_vars: A,B
    probes: [{type: uretprobe, symbol: f, target: /bin/a, value: retval, unit: bytes}, {type: usdt, symbol: 'a:b', target: /c}]
    probe_links: ['uprobe:/bin/a:a::b(int, char),value=%rax:s8']
    events: [{name: faults, period: 64}, {name: cycles, frequency: 97}, {name: instructions}]
    unwind: {mode: tables, kernel: false, overrides: [{build_id: 00ff, mode: auto}]}
exporters: {debug: {verbosity: detailed}}
service:
  pipelines: {profiles/x: {receivers: [profiling/a], exporters: [debug, file]}}
  telemetry:
    logs: {level: debug, encoding: json, output_paths: [stdout, /x.log]}
    metrics: {level: detailed, readers: [{pull: {exporter: {prometheus: {host: 0.0.0.0, port: 9}}}}]}
    resource: {service.name: mine, service.version: null}
";
    for text in [text, SECRETS] {
        let config = load_over(&[text]).unwrap().config;
        for format in [PrintFormat::Yaml, PrintFormat::Json] {
            let printed = print_config(&config, PrintMode::Unredacted, format);
            let again =
                load(&[yaml(&printed)], &[], &Variables::new()).unwrap_or_else(|e| panic!("{e}\n{printed}"));
            assert_eq!(again.config, config, "{printed}");
        }
    }
}

#[test]
fn the_same_sources_give_the_same_errors_and_warnings() {
    let text = "{a: 1, b: 2, receivers: {c: , d: , profiling: {e: 1, probes: [1]}}, service: {f: }}";
    let first = load_over(&[text]).unwrap_err();
    for _ in 0..10 {
        assert_eq!(load_over(&[text]).unwrap_err(), first);
    }
}
