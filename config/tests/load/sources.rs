//! Sources of settings, and their precedence.

use super::*;

#[test]
fn nothing_given_is_the_default_that_writes_a_file() {
    let loaded = load(&[], &[], &Variables::new()).unwrap();
    assert_eq!(loaded.config, Config::default());
    assert_eq!(warnings(&loaded), [""; 0]);
}

#[test]
fn the_annotated_example_is_valid_and_states_the_defaults() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../sidewinder.yaml");
    let loaded = load(&[path.parse().unwrap()], &[], &Variables::new()).unwrap();
    assert_eq!(loaded.config, Config::default());
    assert_eq!(warnings(&loaded), [""; 0]);
}

/// A line marked `#~` replaces the line directly above it if both have the same key.
#[test]
fn the_commented_parts_of_the_annotated_example_are_valid() {
    let mut lines: Vec<String> = Vec::new();
    for line in include_str!("../../../sidewinder.yaml").lines() {
        let Some((indent, rest)) = line.split_once("#~ ") else {
            lines.push(line.to_owned());
            continue;
        };
        let uncommented = format!("{indent}{rest}");
        let key = uncommented.split_inclusive(':').next();
        lines.pop_if(|above| key.is_some_and(|key| above.starts_with(key)));
        lines.push(uncommented);
    }
    let text = lines.join("\n");
    let loaded =
        load(&[yaml(&text)], &[], &variables(&[("TOKEN", "t")])).unwrap_or_else(|e| panic!("{e}\n{text}"));
    assert_eq!(warnings(&loaded), [""; 0]);
    assert_eq!(receiver(&loaded).scope.include.pids, [SelectedPid::new(4711).unwrap()]);
    let mut otlp = OtlpGrpcExporter::new(Endpoint::localhost());
    otlp.headers.insert("authorization".to_owned(), Secret::new("Bearer t".to_owned()));
    otlp.tls.insecure = true;
    otlp.sending_queue.storage = Some("file_storage".parse().unwrap());
    let expected = [
        ExporterConfig::Debug(DebugExporter::default()),
        ExporterConfig::File(FileExporter::new("profile.otlp".into())),
        ExporterConfig::OtlpGrpc(Box::new(otlp)),
        ExporterConfig::OtlpHttp(Box::new(OtlpHttpExporter::new("https://collector:4318".parse().ok()))),
    ];
    assert!(loaded.config.exporters.into_values().eq(expected), "the example shows the exporters' defaults");
    assert_eq!(loaded.config.processors.len(), 1);
    assert_eq!(loaded.config.extensions.len(), 5);
    assert_eq!(loaded.config.telemetry.logs.processors.len(), 1);
    assert_eq!(loaded.config.telemetry.metrics.readers.len(), 2);
}

#[test]
fn the_default_configuration_of_opentelemetrys_profiler_is_valid() {
    let text = "
receivers:
  profiling:
    reporter_interval: 5s
    reporter_jitter: 0.2
    monitor_interval: 5s
    samples_per_second: 20
    frame_cache_size: 16384
    probabilistic_interval: 1m
    probabilistic_threshold: 100
    interpreters: {python: {}, perl: {}, php: {}, hotspot: {}, ruby: {}, v8: {}, dotnet: {}, go: {}}
    clock_sync_interval: 3m
    send_error_frames: false
    send_idle_frames: false
    filter_min_process_age: 0s
    verbose_mode: false
    off_cpu_threshold: 0
    include_env_vars: ''
    map_scale_factor: 0
    bpf_verifier_log_level: 0
    no_kernel_version_check: false
    max_grpc_retries: 5
    max_rpc_msg_size: 33554432
    bpf_fs_root: /sys/fs/bpf/
    error_mode: propagate
    obi_process_ctx: false
    pid_namespace_translation: false
    pin_cpu_ids: ''
    probes: []
";
    let loaded = load_over(&[text]).unwrap();
    let expected = ProfilingReceiver { error_mode: ErrorMode::Propagate, ..ProfilingReceiver::default() };
    assert_eq!(receiver(&loaded), &expected);
    assert!(
        warnings(&loaded).iter().all(|warning| warning.contains("has no effect")),
        "{:?}",
        loaded.warnings
    );
}

#[test]
fn later_sources_and_sets_lie_over_earlier_ones() {
    let sources = [
        yaml(MINIMAL),
        yaml("receivers: {profiling: {samples_per_second: 97, reporter_interval: 10s}}"),
        yaml("receivers::profiling::samples_per_second: 19"),
    ];
    let sets = [
        "receivers.profiling.reporter_jitter=0.5".to_owned(),
        "receivers::profiling::scope = {mode: processes, include: {pids: [7, 3]}}".to_owned(),
    ];
    let loaded = load(&sources, &sets, &Variables::new()).unwrap();
    let receiver = receiver(&loaded);
    assert_eq!(receiver.samples_per_second.get(), 19);
    assert_eq!(receiver.reporter_interval, Duration::from_secs(10));
    assert_eq!(receiver.reporter_jitter, Fraction::new(0.5).unwrap());
    assert_eq!(receiver.scope.mode, ScopeMode::Processes);
    assert_eq!(
        receiver.scope.include,
        Selector::from_pids([SelectedPid::new(3).unwrap(), SelectedPid::new(7).unwrap()])
    );
}

#[test]
fn a_list_is_replaced_and_a_null_takes_back_to_the_default() {
    let loaded = load_over(&[
        "service: {telemetry: {logs: {output_paths: [stdout, /var/log/s.log], level: debug}}}",
        "service: {telemetry: {logs: {output_paths: [stderr], level: }}}",
    ])
    .unwrap();
    assert_eq!(loaded.config.telemetry, Telemetry::default());
}

#[test]
fn sets_apply_to_the_default_where_no_source_is_given() {
    let loaded = load(&[], &["exporters.file.path=other.otlp".to_owned()], &Variables::new()).unwrap();
    let exporter = &loaded.config.exporters[&"file".parse().unwrap()];
    assert_eq!(exporter, &ExporterConfig::File(FileExporter::new("other.otlp".into())));
}

#[test]
fn files_and_variables_are_sources() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.yaml");
    std::fs::write(&path, MINIMAL).unwrap();
    let sources = [path.to_str().unwrap().parse().unwrap(), "env:MORE".parse().unwrap()];
    let environment = variables(&[("MORE", "receivers: {profiling: {samples_per_second: 97}}")]);
    let loaded = load(&sources, &[], &environment).unwrap();
    assert_eq!(receiver(&loaded).samples_per_second.get(), 97);
}

#[test]
fn a_set_without_a_key_is_refused() {
    let errors = load(&[], &["97".to_owned(), "=1".to_owned()], &Variables::new()).unwrap_err();
    assert_eq!(errors.as_slice().len(), 2, "{errors}");
}

#[test]
fn text_keeps_the_letters_of_a_variable_that_looks_like_a_number() {
    let text = grpc("headers: {x-org: '${env:ORG}', x-auth: 'Bearer ${TOKEN}'}");
    let environment = variables(&[("ORG", "0123"), ("TOKEN", "s3cr3t")]);
    let loaded = load(&[yaml(MINIMAL), yaml(&text)], &[], &environment).unwrap();
    let ExporterConfig::OtlpGrpc(exporter) = &loaded.config.exporters[&"otlp_grpc".parse().unwrap()] else {
        panic!("otlp_grpc was configured")
    };
    assert_eq!(exporter.headers["x-org"].reveal(), "0123");
    assert_eq!(exporter.headers["x-auth"].reveal(), "Bearer s3cr3t");
}

#[test]
fn a_section_may_come_from_a_file_with_lines_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("receiver.yaml");
    std::fs::write(&path, "samples_per_second: 97\nsend_idel_frames: true\n").unwrap();
    let error = error(&format!("receivers: {{profiling: '${{file:{}}}'}}", path.to_str().unwrap()));
    assert!(
        error.contains(&format!("{}:2:1: receivers::profiling::send_idel_frames", path.to_str().unwrap())),
        "{error}"
    );
}
