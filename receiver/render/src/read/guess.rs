//! Guesses the category of code from names.

use crate::profile::FrameCategory;

/// The category of a frame, as far as its names allow a guess: these formats do not state it.
pub(super) fn guess_category(name: &str, source: &str, binary: &str) -> FrameCategory {
    let is = |suffix: &str| source.ends_with(suffix);
    match name {
        name if name.starts_with("[truncated: ") => FrameCategory::Marker,
        _ if binary.starts_with("[kernel") || binary == "vmlinux" => FrameCategory::Kernel,
        _ if is(".rs") => FrameCategory::Rust,
        _ if is(".go") => FrameCategory::Go,
        _ if is(".py") => FrameCategory::Python,
        _ => FrameCategory::Native,
    }
}
