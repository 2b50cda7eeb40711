//! Any bytes as `/proc/PID/environ`: no key is empty, and nothing but the two variables is kept.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sidewinder_process::resource_variables;

fuzz_target!(|environment: &[u8]| {
    let variables = resource_variables(environment).expect("memory can be read");
    assert!(variables.attributes.iter().all(|(key, _)| !key.is_empty()));
    let is_mentioned = environment.windows(5).any(|bytes| bytes == b"OTEL_");
    assert!(is_mentioned || variables == Default::default());
});
