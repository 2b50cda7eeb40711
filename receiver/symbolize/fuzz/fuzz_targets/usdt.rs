//! Arbitrary bytes as the notes of static trace points (USDT).
//!
//! `make fuzz`
#![no_main]

use libfuzzer_sys::fuzz_target;
use sidewinder_symbolize::{Image, find_usdt};
use sidewinder_unwind_fuzz::file_of;

fuzz_target!(|data: &[u8]| {
    let file = Image::from(file_of(&[(".note.stapsdt", data), (".stapsdt.base", &[0])]));
    for (provider, name) in [("shop", "sale"), ("", "")] {
        if let Ok(sites) = find_usdt(&file, provider, name) {
            assert!(!sites.is_empty() && sites.len() <= 64);
            assert!(sites.iter().all(|site| site.arguments.len() <= 12));
        }
    }
});
