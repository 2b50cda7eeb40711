//! Properties of arbitrary texts.

use std::collections::BTreeMap;

use proptest::prelude::*;
use sidewinder_config::*;

/// Words of configurations, so that random texts get past the first error.
fn word() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("receivers"),
        Just("profiling"),
        Just("exporters"),
        Just("otlp_grpc"),
        Just("file"),
        Just("service"),
        Just("pipelines"),
        Just("profiles"),
        Just("telemetry"),
        Just("metrics"),
        Just("readers"),
        Just("scope"),
        Just("unwind"),
        Just("overrides"),
        Just("headers"),
        Just("tls"),
        Just("path"),
        Just("endpoint"),
        Just("<<"),
        Just("${env:A}"),
        Just("${A}"),
        Just("${yaml:{a: 1}}"),
        Just("$$"),
        Just("a::b"),
        Just("1m30s"),
        Just("5"),
        Just("0.5"),
        Just("true"),
        Just("null"),
        Just("''"),
        Just("*a"),
        Just("&a x"),
        Just("!t x"),
    ]
    .prop_map(str::to_owned)
}

fn tree() -> impl Strategy<Value = String> {
    word().prop_recursive(5, 40, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(|items| format!("[{}]", items.join(", "))),
            prop::collection::vec((word(), inner), 0..4).prop_map(|entries| {
                let entries: Vec<String> =
                    entries.iter().map(|(key, value)| format!("{key}: {value}")).collect();
                format!("{{{}}}", entries.join(", "))
            }),
        ]
    })
}

/// Loads a text; the result must be formatted without a panic and, if it is valid, read back unchanged.
fn try_load(text: &str) {
    let environment = BTreeMap::from([("A".to_owned(), text.to_owned())]);
    match load(&[ConfigSource::Yaml(text.to_owned())], &[], &environment) {
        Ok(loaded) => {
            let printed = print_config(&loaded.config, PrintMode::Unredacted, PrintFormat::Yaml);
            if !printed.contains('$') {
                let again = load(&[ConfigSource::Yaml(printed)], &[], &environment);
                assert_eq!(again.map(|again| again.config), Ok(loaded.config));
            }
        }
        Err(errors) => {
            assert!(!errors.as_slice().is_empty());
            assert!(!errors.to_string().is_empty());
        }
    }
    drop(load(&[], &[text.to_owned()], &environment));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_makes_it_panic(text in "\\PC{0,200}") {
        try_load(&text);
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        try_load(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn no_yaml_makes_it_panic(text in tree()) {
        try_load(&text);
    }

    #[test]
    fn no_value_of_a_key_makes_it_panic(index in any::<prop::sample::Index>(), value in tree()) {
        let keys = reference();
        let path = keys[index.index(keys.len())].path.replace("[]", "");
        drop(load(&[], &[format!("{path}={value}")], &BTreeMap::new()));
        try_load(&format!("{path}: {value}"));
    }
}

/// Texts of the maximum size, each of which makes the time of some parser grow fast.
#[test]
fn hostile_texts_are_refused_or_read_in_bounded_time() {
    const SIZE: usize = 1 << 20;
    let fill = |unit: &str| unit.repeat(SIZE / unit.len());
    let texts = [
        fill("["),
        fill("[]"),
        fill("[],"),
        format!("[{}]", fill("[],").trim_end_matches(',').get(..SIZE - 2).unwrap_or_default()),
        fill("{a: "),
        fill("- "),
        fill("? "),
        fill("a: "),
        fill("a:\n"),
        fill("a\n"),
        fill("x"),
        fill("\""),
        fill("\"\\"),
        fill("'"),
        fill("#"),
        fill("# \n"),
        fill("\n"),
        fill("\t"),
        fill("---\n"),
        fill("%YAML 1.2\n"),
        fill("&a "),
        fill("*a "),
        fill("!a "),
        fill("|\n"),
        fill(">\n "),
        fill("${"),
        fill("}"),
        fill("${a}"),
        fill("$"),
        fill("::"),
        format!("a: '{}'", fill("${A}").get(..SIZE - 8).unwrap_or_default()),
        format!("\"{}\": 1", fill("::").get(..SIZE - 8).unwrap_or_default()),
        format!("a: &a [{}]\nb: [{}]", "x, ".repeat(SIZE / 8), "*a, ".repeat(SIZE / 16)),
    ];
    for text in texts {
        let begun = std::time::Instant::now();
        let environment = BTreeMap::from([("A".to_owned(), "y".repeat(SIZE))]);
        drop(load(&[ConfigSource::Yaml(text.clone())], &[], &environment));
        let taken = begun.elapsed();
        let start: String = text.chars().take(12).collect();
        assert!(taken < std::time::Duration::from_secs(20), "{start:?} took {taken:?}");
    }
}
