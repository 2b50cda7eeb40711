//! Errors and warnings.

use super::*;

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
    let name = path.to_str().unwrap().to_owned();
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
    for value in [".nan", "'1.5'", "'inf'", "'0.1 '", "''"] {
        let error = error(&format!("receivers: {{profiling: {{reporter_jitter: {value}}}}}"));
        assert!(error.contains("expected a number from 0 to 1"), "{error}");
    }
}

/// `helm --set` makes text of every number that is not whole.
#[test]
fn a_number_that_need_not_be_whole_may_be_quoted() {
    for (value, expected) in [("'0.01'", 0.01), ("\"1\"", 1.0), ("'1e-3'", 0.001), ("0.5", 0.5)] {
        let loaded =
            load_over(&[&format!("receivers: {{profiling: {{off_cpu_threshold: {value}}}}}")]).unwrap();
        assert_eq!(receiver(&loaded).off_cpu_threshold, Fraction::new(expected).unwrap(), "{value}");
    }
}

#[test]
fn what_this_version_does_not_have_is_refused_with_a_way_out() {
    for (text, part) in [
        (
            "exporters: {otlp_http: {endpoint: 'http://x', encoding: json}}",
            "exporters::otlp_http::encoding: is not supported in this version",
        ),
        (
            "exporters: {otlphttp/a: {endpoint: 'http://x', proxy_url: 'http://p:1'}}",
            "exporters::otlphttp/a::proxy_url: is not supported in this version",
        ),
        ("processors: {batch: }", "processors::batch: is not supported in this version"),
        (
            "extensions: {file_storage: {directory: /x, recreate: true}}",
            "extensions::file_storage::recreate: is not supported in this version",
        ),
        ("service: {pipelines: {traces: }}", "service::pipelines::traces: is not supported in this version"),
        ("processors: {filter: }", "processors::filter: is not supported in this version"),
        (
            &grpc("balancer_name: pick_first"),
            "exporters::otlp_grpc::balancer_name: is not supported in this version",
        ),
        (&grpc("sending_queue: {wait_for_result: true}"), "sending_queue::wait_for_result: is not supported"),
        (&grpc("tls: {cipher_suites: [TLS_X]}"), "tls::cipher_suites: is not supported in this version"),
    ] {
        let errors = errors(text).join("\n");
        assert!(errors.contains(part), "{text}: {errors}");
    }
}

#[test]
fn a_key_that_is_not_in_this_version_may_have_its_default() {
    let exporter = grpc_exporter(
        "balancer_name: round_robin, wait_for_ready: false, auth: null, tls: {min_version: '1.2', reload_interval: 0s}",
    );
    assert_eq!(exporter, OtlpGrpcExporter::new("collector:4317".parse().unwrap()));
}

#[test]
fn a_key_without_effect_yet_causes_a_warning_unless_it_has_its_default() {
    let quiet = load_over(&["receivers: {profiling: {interpreters: {perl: {disabled: true}}}}"]).unwrap();
    assert_eq!(warnings(&quiet), [""; 0]);
    let loud = load_over(&[
        "receivers: {profiling: {interpreters: {perl: {disabled: false}, php: {disabled: false}}}}",
    ])
    .unwrap();
    assert_eq!(loud.warnings.len(), 2, "{:?}", loud.warnings);
    assert!(warnings(&loud)[0].contains("does not act on it yet"));
}

/// `type: kprobe` with a mode, and `probe_links`, are OpenTelemetry's.
#[test]
fn probes_of_each_notation_are_read_and_errors_say_what_is_wrong() {
    let text = "receivers: {profiling: {probes: [
        {type: kprobe, mode: uprobe, symbol: 'a::b+16', target: /bin/a, value: '%rdi:s32', unit: bytes},
        {type: usdt, symbol: 'shop:sale', target: /bin/a, max_overhead: 0.5},
        {type: tracepoint, symbol: sys_exit, target: raw_syscalls, value: 'arg1:s32'}],
        probe_links: ['uretprobe:/bin/a:f'], load_probe: true}}";
    let loaded = load_over(&[text]).unwrap();
    let receiver = receiver(&loaded);
    let shown = |probes: &[ProbeSpec]| probes.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(
        shown(&receiver.probes),
        [
            "uprobe:/bin/a:a::b+0x10,value=%rdi:s32,unit=bytes",
            "usdt:/bin/a:shop:sale,max_overhead=0.5",
            "tracepoint:raw_syscalls:sys_exit,value=arg1:s32"
        ]
    );
    assert_eq!(
        (shown(&receiver.probe_links), receiver.load_probe),
        (vec!["uretprobe:/bin/a:f".to_owned()], true)
    );
    for (keys, reason) in [
        ("probes: [{type: uprobe, symbol: f}]", "probes[0]::target: must be given"),
        ("probes: [{type: kprobe, symbol: f, target: /a}]", "kernel function probes (kprobe)"),
        ("probes: [{type: uprobe, symbol: f, target: a}]", "is not absolute"),
        ("probes: [{type: usdt, symbol: f, target: /a}]", "usdt:PATH:PROVIDER:NAME"),
        ("probes: [{type: uprobe, symbol: f, target: /a, value: size}]", "expected argN"),
        ("probes: [{type: uprobe, symbol: f, target: /a, unit: bytes}]", "needs a value"),
        ("probes: [{type: uprobe, symbol: f, target: /a, max_overhead: 0}]", "above 0"),
        ("probe_links: ['kprobe:vfs_open']", "kernel function probes (kprobe)"),
        ("lock_wakers: true", "without lock_threshold"),
        ("probe_links: ['uprobe:/a']", "uprobe:PATH:FUNCTION"),
        (
            &format!("load_probe: true, probe_links: [{}]", "'uprobe:/a:f',".repeat(8)),
            "9 are more than the 8 probes",
        ),
        (
            &format!("probe_links: [{}]", "'tracepoint:sched:sched_switch',".repeat(5)),
            "5 are more than the 4 tracepoints",
        ),
    ] {
        let error = error(&format!("receivers: {{profiling: {{{keys}}}}}"));
        assert!(error.contains(reason), "{keys}: {error}");
    }
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
fn an_event_names_a_counter_once_and_its_rate_in_one_way() {
    let text = "receivers: {profiling: {samples_per_second: 19, events: [
        {name: page-faults}, {name: major-faults, period: 3}, {name: cycles, frequency: 97}, {name: branches}]}}";
    let loaded = load_over(&[text]).unwrap();
    let receiver = receiver(&loaded);
    let sampled = receiver.events.iter().map(|event| event.sampled(receiver.samples_per_second.get()));
    let expected = [
        (Counter::PageFaults, CounterRate::Period(64)),
        (Counter::MajorFaults, CounterRate::Period(3)),
        (Counter::Cycles, CounterRate::Frequency(97)),
        (Counter::Branches, CounterRate::Frequency(19)),
    ]
    .map(|(counter, rate)| SampledCounter { counter, rate });
    assert_eq!(sampled.collect::<Vec<_>>(), expected);
    for (items, part) in [
        ("{period: 1}", "events[0]::name: must be given"),
        ("{name: page-fault}", "did you mean page-faults?"),
        ("{name: page-faults:u}", "did you mean page-faults?"),
        ("{name: cycles, period: 1, frequency: 1}", "at most one of period, frequency"),
        ("{name: cycles, period: 0}", "at least 1"),
        ("{name: cycles, frequency: 20000}", "1 to 10000"),
        ("{name: cycles}, {name: cpu-cycles}", "cpu-cycles is given twice"),
        ("{name: cycles}, {name: faults}, {name: cs}, {name: branches}, {name: migrations}", "more than 4"),
    ] {
        let error = error(&format!("receivers: {{profiling: {{events: [{items}]}}}}"));
        assert!(error.contains(part), "{items}: {error}");
    }
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
