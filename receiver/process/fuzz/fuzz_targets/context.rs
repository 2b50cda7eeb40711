//! Any bytes as the payload of a process context: parsed or refused, within all limits.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sidewinder_process::context::{ProcessContext, ThreadContexts};

fuzz_target!(|payload: &[u8]| {
    let Ok(context) = ProcessContext::parse(payload) else { return };
    assert!(context.resource.len() <= 128);
    for (number, (key, _)) in context.resource.iter().enumerate() {
        assert!(!key.is_empty());
        assert!(context.resource.iter().take(number).all(|(before, _)| before != key));
    }
    if let Some(ThreadContexts::Records { attribute_keys }) = context.threads {
        assert!(attribute_keys.len() <= 256);
    }
});
