//! Any text is refused, or gives a configuration that is read back unchanged.
#![no_main]

use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use sidewinder_config::{ConfigSource, PrintFormat, PrintMode, load, print_config};

fuzz_target!(|text: &str| {
    // References to files would make the result depend on the machine.
    if text.contains("file:") {
        return;
    }
    let environment = BTreeMap::from([("A".to_owned(), text.to_owned())]);
    let Ok(loaded) = load(&[ConfigSource::Yaml(text.to_owned())], &[text.to_owned()], &environment) else {
        return;
    };
    let printed = print_config(&loaded.config, PrintMode::Unredacted, PrintFormat::Yaml);
    // A dollar sign is printed undoubled, and would have to be doubled to be read.
    if !printed.contains('$') {
        let again = load(&[ConfigSource::Yaml(printed)], &[], &environment);
        assert_eq!(again.map(|again| again.config), Ok(loaded.config));
    }
});
