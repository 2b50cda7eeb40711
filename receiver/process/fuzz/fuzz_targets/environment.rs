//! Any bytes as `/proc/PID/environ`: no key is empty, and nothing but the two variables and the included
//! ones is kept.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sidewinder_process::resource_variables;

fuzz_target!(|environment: &[u8]| {
    let variables = resource_variables(environment, &["A".into()]).expect("memory can be read");
    assert!(variables.attributes.iter().all(|(key, _)| !key.is_empty()));
    let is_mentioned = environment.windows(5).any(|bytes| bytes == b"OTEL_");
    let is_included = environment.windows(2).any(|bytes| bytes == b"A=");
    assert!(is_mentioned || is_included || variables == Default::default());
    assert!(variables.included.iter().all(|(name, value)| &**name == "A" && !value.is_empty()));
});
