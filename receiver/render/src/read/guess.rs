//! Kinds of code, told by names alone.

use crate::profile::FrameKind;

/// What kind of code a frame is, as far as its names tell: these forms do not say it.
pub(super) fn guessed_kind(name: &str, source: &str, binary: &str) -> FrameKind {
    let is = |suffix: &str| source.ends_with(suffix);
    match name {
        name if name.starts_with("[truncated: ") => FrameKind::Marker,
        _ if binary.starts_with("[kernel") || binary == "vmlinux" => FrameKind::Kernel,
        _ if is(".rs") => FrameKind::Rust,
        _ if is(".go") => FrameKind::Go,
        _ if is(".py") => FrameKind::Python,
        _ => FrameKind::Native,
    }
}
