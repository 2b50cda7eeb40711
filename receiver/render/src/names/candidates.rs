//! The candidates of a name, by its language.

use super::scan::group_length;
use super::{go, java, path};
use crate::category::FrameCategory;
use crate::label::{GUESSED, ParsedLabel, looks_like_marker};

/// The forms that a name can be shown in, the shortest first and without the name itself. Each has fewer characters than the
/// name. Names of Python, of the kernel and of what is no function have none: they are short.
pub(super) fn candidates(label: &str, kind: FrameCategory) -> Vec<String> {
    let ParsedLabel { name, is_guessed, is_marker } = ParsedLabel::new(label);
    if is_marker {
        return Vec::new();
    }
    let mut candidates = match kind {
        FrameCategory::Native if is_import_path(name) => go::candidates(name),
        FrameCategory::Go if !name.contains("::") => go::candidates(name),
        FrameCategory::Native | FrameCategory::Rust | FrameCategory::Go => path::candidates(name),
        FrameCategory::Jit => java::candidates(name),
        FrameCategory::Python | FrameCategory::Kernel | FrameCategory::Lock | FrameCategory::Marker => {
            return Vec::new();
        }
    };
    let length = name.chars().count();
    candidates.iter_mut().for_each(bracket_type);
    let is_shorter = |candidate: &str| !candidate.is_empty() && candidate.chars().count() < length;
    candidates.retain(|candidate| is_shorter(candidate) && !looks_like_marker(candidate));
    candidates.dedup();
    if is_guessed {
        candidates.iter_mut().for_each(|candidate| candidate.insert_str(0, GUESSED));
    }
    candidates
}

/// Writes the type with which a form begins as rustc does, `<[T]>::sort` instead of `[T]::sort`, which looks like a marker.
fn bracket_type(candidate: &mut String) {
    if candidate.starts_with('[')
        && let Some(end) = group_length(candidate)
    {
        candidate.insert(end, '>');
        candidate.insert(0, '<');
    }
}

/// Whether it is `folder/package.function`, as in a profile of Go or Java that does not say what it is of.
fn is_import_path(name: &str) -> bool {
    let head = name.find(['(', '[']).map_or(name, |end| name.split_at(end).0);
    let has_function = head.rsplit_once('/').is_some_and(|(_, last)| last.contains('.'));
    has_function && !name.starts_with(['/', '[']) && !name.contains([' ', '<', '+']) && !name.contains("::")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_language_decides() {
        let first = |name, kind| candidates(name, kind).into_iter().next();
        for (name, kind, short) in [
            ("net/http.(*conn).serve", FrameCategory::Go, Some("http.(*conn).serve")),
            ("net/http.(*conn).serve", FrameCategory::Native, Some("http.(*conn).serve")),
            ("java/util/HashMap.get", FrameCategory::Native, Some("HashMap.get")),
            ("java.util.HashMap.get(Object)", FrameCategory::Jit, Some("HashMap.get")),
            ("a::b::c(int)", FrameCategory::Native, Some("b::c")),
            ("[guessed] a::b::c(int)", FrameCategory::Rust, Some("[guessed] b::c")),
            // A short form must not look like a marker either.
            ("\\[guessed] a::b::c(int)", FrameCategory::Native, None),
            ("\\\\a::b::c(int)", FrameCategory::Native, Some("b::c")),
            ("core::slice::<impl [T]>::sort", FrameCategory::Rust, Some("<[T]>::sort")),
            ("[jvm: a.b.c]", FrameCategory::Jit, None),
            ("outer.<locals>.inner", FrameCategory::Python, None),
            ("do_syscall_64", FrameCategory::Kernel, None),
            ("/usr/lib/a.so.6", FrameCategory::Native, None),
            ("libc.so.6+0x1234", FrameCategory::Native, None),
            ("runtime.mallocgc", FrameCategory::Go, None),
            ("main", FrameCategory::Native, None),
        ] {
            assert_eq!(first(name, kind).as_deref(), short, "{name}");
        }
    }
}
