//! What the benches share: their command-line options, and the median of several turns.

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

/// The middle of some figures; NaN if there are none.
#[must_use]
pub fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}
