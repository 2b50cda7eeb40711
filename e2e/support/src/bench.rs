//! Command-line options of the benches.

/// Whether this is `cargo test --benches`, which only asks whether a bench starts.
#[must_use]
pub fn is_to_start_only() -> bool {
    std::env::args().any(|argument| argument == "--test")
}

/// What is to be measured, by name; all of it where nothing is named.
#[must_use]
pub fn named() -> Vec<String> {
    std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect()
}
