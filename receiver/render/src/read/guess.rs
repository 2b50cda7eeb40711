//! Kinds of code, told by names alone.

use crate::profile::FrameCategory;

/// What kind of code a frame is, as far as its names tell: these forms do not say it.
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
