//! What users meet: texts in, configurations or errors out.
#![expect(clippy::unwrap_used, clippy::panic, reason = "what goes wrong in a test fails it")]

use std::collections::BTreeMap;
use std::time::Duration;

use sidewinder_config::*;

type Variables = BTreeMap<String, String>;

/// A pipeline from a profiler to a file, to which tests add.
const MINIMAL: &str = "
receivers: {profiling: }
exporters: {file: {path: p.otlp}}
service: {pipelines: {profiles: {receivers: [profiling], exporters: [file]}}}
";

fn yaml(text: &str) -> Source {
    Source::Yaml(text.to_owned())
}

fn variables(pairs: &[(&str, &str)]) -> Variables {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// Loads [`MINIMAL`] with `texts` laid over it.
fn load_over(texts: &[&str]) -> Result<Loaded, ConfigErrors> {
    let sources: Vec<Source> = std::iter::once(&MINIMAL).chain(texts).map(|text| yaml(text)).collect();
    load(&sources, &[], &Variables::new())
}

fn errors(text: &str) -> Vec<String> {
    let errors = load_over(&[text]).unwrap_err();
    errors.as_slice().iter().map(ToString::to_string).collect()
}

fn error(text: &str) -> String {
    let errors = errors(text);
    assert_eq!(errors.len(), 1, "{errors:?}");
    errors.into_iter().next().unwrap()
}

fn warnings(loaded: &Loaded) -> Vec<String> {
    loaded.warnings.iter().map(ToString::to_string).collect()
}

fn receiver(loaded: &Loaded) -> &ProfilingReceiver {
    loaded.config.receivers.values().next().unwrap()
}

fn grpc(keys: &str) -> String {
    format!(
        "exporters: {{otlp_grpc: {{endpoint: 'collector:4317', {keys}}}}}\n\
         service: {{pipelines: {{profiles: {{exporters: [file, otlp_grpc]}}}}}}"
    )
}

fn grpc_exporter(keys: &str) -> OtlpGrpcExporter {
    let loaded = load_over(&[&grpc(keys)]).unwrap();
    match loaded.config.exporters.get(&"otlp_grpc".parse().unwrap()) {
        Some(Exporter::OtlpGrpc(exporter)) => exporter.as_ref().clone(),
        other => panic!("otlp_grpc was configured, not {other:?}"),
    }
}

#[test]
fn nothing_given_is_the_default_that_writes_a_file() {
    let loaded = load(&[], &[], &Variables::new()).unwrap();
    assert_eq!(loaded.config, Config::default());
    assert_eq!(warnings(&loaded), [""; 0]);
}

#[test]
fn the_annotated_example_is_valid_and_says_the_defaults() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../sidewinder.yaml");
    let loaded = load(&[path.parse().unwrap()], &[], &Variables::new()).unwrap();
    assert_eq!(loaded.config, Config::default());
    assert_eq!(warnings(&loaded), [""; 0]);
}

/// A line marked `#~` takes the place of the line right above it where both give the same key.
#[test]
fn the_commented_parts_of_the_annotated_example_are_valid() {
    let mut lines: Vec<String> = Vec::new();
    for line in include_str!("../../sidewinder.yaml").lines() {
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
    assert_eq!(receiver(&loaded).scope.include.pids, [Pid::new(4711).unwrap()]);
    let mut otlp = OtlpGrpcExporter::new(Endpoint::local());
    otlp.headers.insert("authorization".to_owned(), Secret::new("Bearer t".to_owned()));
    otlp.tls.insecure = true;
    otlp.sending_queue.storage = Some("file_storage".parse().unwrap());
    let expected = [
        Exporter::Debug(DebugExporter::default()),
        Exporter::File(FileExporter::new("profile.otlp".into())),
        Exporter::OtlpGrpc(Box::new(otlp)),
        Exporter::OtlpHttp(Box::new(OtlpHttpExporter::new("https://collector:4318".parse().ok()))),
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
    assert_eq!(receiver.scope.include, Selector::of_pids([Pid::new(3).unwrap(), Pid::new(7).unwrap()]));
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
    assert_eq!(exporter, &Exporter::File(FileExporter::new("other.otlp".into())));
}

#[test]
fn files_and_variables_are_sources() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.yaml");
    std::fs::write(&path, MINIMAL).unwrap();
    let sources = [path.display().to_string().parse().unwrap(), "env:MORE".parse().unwrap()];
    let environment = variables(&[("MORE", "receivers: {profiling: {samples_per_second: 97}}")]);
    let loaded = load(&sources, &[], &environment).unwrap();
    assert_eq!(receiver(&loaded).samples_per_second.get(), 97);
}

#[test]
fn every_error_is_reported_at_once_with_its_path_and_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bad.yaml");
    let text = "\
receivers:
  profiling:
    sample_per_second: 97
    reporter_interval: 5
    scope: {mode: nodes}
exporters:
  otlp_gprc: {endpoint: 'x:1'}
  file:
    path: p.otlp
service:
  pipelines:
    profiles:
      receivers: [profilng]
      exporters: [file]
";
    std::fs::write(&path, text).unwrap();
    let name = path.display().to_string();
    let errors = load(&[name.parse().unwrap()], &[], &Variables::new()).unwrap_err().to_string();
    let expected = [
        "3:5: receivers::profiling::sample_per_second: unknown key, did you mean \"samples_per_second\"?",
        "4:24: receivers::profiling::reporter_interval: expected a duration from 100ms to 1h0m0s, got 5: it has no unit",
        "5:19: receivers::profiling::scope::mode: expected node | pod | container | processes, got \"nodes\"",
        "7:3: exporters::otlp_gprc: unknown type \"otlp_gprc\", did you mean \"otlp_grpc\"?",
        "13:19: service::pipelines::profiles::receivers[0]: receivers has no \"profilng\", did you mean \"profiling\"?",
    ]
    .map(|line| format!("{name}:{line}"));
    assert_eq!(errors.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn an_unknown_key_that_resembles_none_gets_the_list() {
    let error = error("exporters: {debug: {zzzz: 1}}");
    assert!(error.ends_with("exporters::debug::zzzz: unknown key, known here: verbosity"), "{error}");
}

#[test]
fn wrong_yaml_names_its_line_and_an_absent_file_its_reason() {
    let text = load_over(&["receivers:\n  profiling: [\n"]).unwrap_err().to_string();
    assert!(text.starts_with("--config #2:") && text.contains("is not usable YAML"), "{text}");
    let errors = load(&["/nonexistent.yaml".parse().unwrap()], &[], &Variables::new()).unwrap_err();
    assert!(errors.to_string().starts_with("/nonexistent.yaml: can't be read: No such file"), "{errors}");
    let errors = load(&[yaml("[1]")], &[], &Variables::new()).unwrap_err();
    assert_eq!(errors.to_string(), "--config #1: expected a map of sections, got a list");
}

#[test]
fn a_set_without_a_key_is_refused() {
    let errors = load(&[], &["97".to_owned(), "=1".to_owned()], &Variables::new()).unwrap_err();
    assert_eq!(errors.as_slice().len(), 2, "{errors}");
}

#[test]
fn a_range_is_named_where_it_is_left() {
    let keys = [
        "samples_per_second: 0",
        "samples_per_second: 10001",
        "samples_per_second: '97'",
        "samples_per_second: 1.5",
    ];
    for key in keys {
        let error = error(&format!("receivers: {{profiling: {{{key}}}}}"));
        assert!(error.contains("expected a whole number from 1 to 10000, got"), "{error}");
    }
    let error = error("receivers: {profiling: {reporter_jitter: .nan}}");
    assert!(error.contains("expected a number from 0 to 1"), "{error}");
}

#[test]
fn what_this_version_does_not_have_is_refused_with_a_way_out() {
    for (text, part) in [
        (
            "exporters: {otlp_http: {endpoint: 'http://x', encoding: json}}",
            "exporters::otlp_http::encoding: is not in this version",
        ),
        (
            "exporters: {otlphttp/a: {endpoint: 'http://x', proxy_url: 'http://p:1'}}",
            "exporters::otlphttp/a::proxy_url: is not in this version",
        ),
        ("processors: {batch: }", "processors::batch: is not in this version"),
        (
            "extensions: {file_storage: {directory: /x, recreate: true}}",
            "extensions::file_storage::recreate: is not in this version",
        ),
        ("service: {pipelines: {traces: }}", "service::pipelines::traces: is not in this version"),
        ("processors: {filter: }", "processors::filter: is not in this version"),
        (&grpc("balancer_name: pick_first"), "exporters::otlp_grpc::balancer_name: is not in this version"),
        (&grpc("sending_queue: {wait_for_result: true}"), "sending_queue::wait_for_result: is not in this"),
        (&grpc("tls: {cipher_suites: [TLS_X]}"), "tls::cipher_suites: is not in this version"),
    ] {
        let errors = errors(text).join("\n");
        assert!(errors.contains(part), "{text}: {errors}");
    }
}

/// An exporter of each kind, with all that extensions do for them.
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
    let Exporter::OtlpGrpc(grpc) = &exporters[&"otlp_grpc".parse().unwrap()] else { panic!("{exporters:?}") };
    assert_eq!(grpc.sending_queue.storage, Some("file_storage/a".parse().unwrap()));
    assert_eq!(grpc.auth, Some("bearertokenauth".parse().unwrap()));
    let Exporter::OtlpHttp(http) = &exporters[&"otlphttp".parse().unwrap()] else { panic!("{exporters:?}") };
    assert_eq!(http.url(), "https://c:4318/v1development/profiles");
    assert_eq!(loaded.config.extensions.len(), 3);
}

#[test]
fn a_key_that_is_not_in_this_version_may_say_its_default() {
    let exporter = grpc_exporter(
        "balancer_name: round_robin, wait_for_ready: false, auth: null, tls: {min_version: '1.2', reload_interval: 0s}",
    );
    assert_eq!(exporter, OtlpGrpcExporter::new("collector:4317".parse().unwrap()));
}

#[test]
fn a_key_that_is_not_acted_on_yet_warns_unless_it_says_its_default() {
    let quiet = load_over(&[
        "receivers: {profiling: {off_cpu_threshold: 0.0, probes: [], probabilistic_interval: 60s}}",
    ])
    .unwrap();
    assert_eq!(warnings(&quiet), [""; 0]);
    let loud =
        load_over(&["receivers: {profiling: {off_cpu_threshold: 0.1, probes: [{type: kprobe}]}}"]).unwrap();
    assert_eq!(loud.warnings.len(), 2, "{:?}", loud.warnings);
    assert!(warnings(&loud)[0].contains("does not act on it yet"));
}

#[test]
fn the_deprecated_name_of_the_exporter_works_and_warns() {
    let text = "
exporters: {otlp/a: {endpoint: 'c:4317'}}
service: {pipelines: {profiles/b: {receivers: [profiling], exporters: [otlp/a]}}}";
    let loaded = load_over(&[text]).unwrap();
    assert!(loaded.config.pipelines.contains_key(&"profiles/b".parse().unwrap()));
    assert!(matches!(loaded.config.exporters[&"otlp/a".parse().unwrap()], Exporter::OtlpGrpc(_)));
    assert!(warnings(&loaded).iter().any(|warning| warning.contains("deprecated")), "{:?}", loaded.warnings);
}

#[test]
fn an_unused_component_warns() {
    let loaded = load_over(&["exporters: {debug: }"]).unwrap();
    assert_eq!(warnings(&loaded), ["--config #2:1:13: exporters::debug: is in no pipeline and does nothing"]);
}

#[test]
fn pipelines_need_receivers_and_exporters_and_name_each_once() {
    assert!(
        error("service: {pipelines: {profiles: {exporters: []}}}").contains("at least one of the exporters")
    );
    assert!(error("service: {pipelines: {profiles: {exporters: [file, file]}}}").contains("given twice"));
    assert!(error("service: {pipelines: {profiles: {exporters: file}}}").contains("expected a list of ids"));
    let none = load(&[yaml("receivers: {profiling: }")], &[], &Variables::new()).unwrap_err();
    assert!(none.to_string().contains("service: must be given"), "{none}");
    let empty = load(&[yaml("service: {pipelines: {}}")], &[], &Variables::new()).unwrap_err();
    assert!(empty.to_string().contains("service::pipelines: must be given"), "{empty}");
}

#[test]
fn what_is_included_is_named_where_not_all_is() {
    let scope = |keys: &str| error(&format!("receivers: {{profiling: {{scope: {{{keys}}}}}}}"));
    for mode in ["processes", "container"] {
        assert!(scope(&format!("mode: {mode}")).contains("scope::include: must be given"));
        assert!(
            scope(&format!("mode: {mode}, include: {{pids: []}}")).contains("scope::include: must be given")
        );
    }
    for mode in ["node", "pod"] {
        let named = scope(&format!("mode: {mode}, include: {{names: [x]}}"));
        assert!(named.contains("no effect without mode: processes"), "{named}");
    }
    assert!(scope("mode: processes, include: {pids: [1, 1]}").contains("given twice"));
    assert!(
        scope("mode: processes, include: {pids: [0]}").contains("include::pids[0]: expected a process id")
    );
    assert!(scope("mode: pod, exclude: {names: ['']}").contains("exclude::names: an empty pattern"));
}

#[test]
fn an_override_names_one_binary_in_one_way() {
    let text = "receivers: {profiling: {unwind: {overrides: [
        {name: libc.so.6, mode: tables}, {path: /usr/bin/go, mode: frame_pointers}, {build_id: 00ff, mode: auto}]}}}";
    let loaded = load_over(&[text]).unwrap();
    let expected = [
        (BinaryMatch::Name("libc.so.6".to_owned()), UnwindMode::Tables),
        (BinaryMatch::Path("/usr/bin/go".into()), UnwindMode::FramePointers),
        (BinaryMatch::BuildId("00ff".parse().unwrap()), UnwindMode::Auto),
    ]
    .map(|(binary, mode)| UnwindOverride { binary, mode });
    assert_eq!(receiver(&loaded).unwind.overrides, expected);
    for (item, part) in [
        ("{mode: auto}", "exactly one of name, path, build_id"),
        ("{name: a, path: /b, mode: auto}", "exactly one of name, path, build_id"),
        ("{name: a}", "overrides[0]::mode: must be given"),
        ("{name: a/b, mode: auto}", "last component"),
        ("{build_id: xyz, mode: auto}", "hexadecimal"),
    ] {
        let error = error(&format!("receivers: {{profiling: {{unwind: {{overrides: [{item}]}}}}}}"));
        assert!(error.contains(part), "{item}: {error}");
    }
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
    assert!(refused("sizer: requests, queue_size: 5000").contains("sizer: is not in this version"));
    assert!(refused("enabled: false").contains("enabled: is not in this version"));
}

#[test]
fn waiting_longer_than_allowed_altogether_is_refused() {
    assert!(
        error(&grpc("retry_on_failure: {max_elapsed_time: 10s}"))
            .contains("must not be less than max_interval")
    );
}

#[test]
fn tls_is_off_only_where_insecure_says_so_and_nothing_else_asks_for_it() {
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
fn text_keeps_the_letters_of_a_variable_that_looks_like_a_number() {
    let text = grpc("headers: {x-org: '${env:ORG}', x-auth: 'Bearer ${TOKEN}'}");
    let environment = variables(&[("ORG", "0123"), ("TOKEN", "s3cr3t")]);
    let loaded = load(&[yaml(MINIMAL), yaml(&text)], &[], &environment).unwrap();
    let Exporter::OtlpGrpc(exporter) = &loaded.config.exporters[&"otlp_grpc".parse().unwrap()] else {
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
    let error = error(&format!("receivers: {{profiling: '${{file:{}}}'}}", path.display()));
    assert!(
        error.contains(&format!("{}:2:1: receivers::profiling::send_idel_frames", path.display())),
        "{error}"
    );
}

#[test]
fn a_variable_that_is_wrong_is_named_and_not_shown() {
    let text = "receivers: {profiling: {samples_per_second: '${env:RATE}', error_mode: 'x${env:RATE}'}}";
    let errors = load(&[yaml(MINIMAL), yaml(text)], &[], &variables(&[("RATE", "hunter2")])).unwrap_err();
    let errors = errors.to_string();
    assert!(errors.contains("got what ${env:RATE} stands for"), "{errors}");
    assert!(!errors.contains("hunter2"), "{errors}");
}

#[test]
fn credentials_in_an_endpoint_are_refused_and_not_shown() {
    let error = error(&grpc("").replace("'collector", "'https://me:hunter2@collector"));
    assert!(error.contains("has no path, query or user") && !error.contains("hunter2"), "{error}");
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
    let Some(Exporter::OtlpGrpc(exporter)) = loaded.config.exporters.values().next() else {
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
    assert!(matches!(configured.config.exporters.values().next(), Some(Exporter::File(_))), "YAML wins");
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

#[test]
fn the_same_sources_give_the_same_errors_and_warnings() {
    let text = "{a: 1, b: 2, receivers: {c: , d: , profiling: {e: 1, probes: [1]}}, service: {f: }}";
    let first = load_over(&[text]).unwrap_err();
    for _ in 0..10 {
        assert_eq!(load_over(&[text]).unwrap_err(), first);
    }
}
