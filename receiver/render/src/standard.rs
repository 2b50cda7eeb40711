//! Code of standard libraries and language runtimes, told by names.

use crate::category::FrameCategory;
use crate::label::ParsedLabel;
use crate::names::path::is_in_scope;
use crate::profile::Profile;

/// The beginnings of the file names of C libraries, dynamic loaders and runtimes.
const FILES: [&str; 11] = [
    "libc.so",
    "libc-2.",
    "libc.musl",
    "libm.so",
    "libpthread",
    "ld-linux",
    "ld-musl",
    "libstdc++.",
    "libc++",
    "libgcc_s.",
    "libjvm.so",
];
/// Namespaces of C++'s and crates of Rust's standard library, and crates that do no more than lock.
const SCOPES: [&str; 10] = [
    "std",
    "core",
    "alloc",
    "__gnu_cxx",
    "__cxxabiv1",
    "hashbrown",
    "compiler_builtins",
    "parking_lot",
    "parking_lot_core",
    "lock_api",
];
/// The beginnings of names of a C library that is linked statically, and of locks of other libraries; without leading underscores.
const NAMES: [&str; 4] = ["pthread_", "lll_lock", "absl::Mutex", "absl::ReaderMutex"];
/// The first folder or the name of packages of Go's standard library that other code is built of.
const GO_PACKAGES: [&str; 13] = [
    "runtime", "internal", "sync", "slices", "maps", "sort", "strings", "bytes", "unicode", "strconv",
    "math", "reflect", "cmp",
];

/// Whether each frame of a profile is code of a standard library, of a runtime, or of a library of locks: code that says little about
/// the program that calls it.
pub(crate) fn standard_frames(profile: &Profile) -> Vec<bool> {
    let frames = profile.dictionary.frames();
    frames.map(|frame| is_standard(&frame.name(), frame.file_name(), FrameCategory::of(&frame))).collect()
}

/// The same of a function, by its label, the name of its file and its category.
pub(crate) fn is_standard(label: &str, file: &str, kind: FrameCategory) -> bool {
    let name = ParsedLabel::new(label).name;
    FILES.iter().any(|start| file.starts_with(start)) || is_standard_name(name, kind)
}

fn is_standard_name(name: &str, kind: FrameCategory) -> bool {
    match kind {
        FrameCategory::Go => go_package(name).is_some_and(|package| GO_PACKAGES.contains(&package)),
        FrameCategory::Native | FrameCategory::Rust => {
            let plain = name.trim_start_matches('_');
            NAMES.iter().any(|start| plain.starts_with(start)) || is_in_scope(name, &SCOPES)
        }
        _ => false,
    }
}

/// The first folder of a function's package, or the package if it is in none.
fn go_package(name: &str) -> Option<&str> {
    let path = name.find(['(', '[']).map_or(name, |end| name.split_at(end).0);
    path.split_once(['/', '.']).map(|(first, _)| first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standard_libraries_are_told_from_the_programs_own_code() {
        use FrameCategory::{Go, Native, Python, Rust};
        for (name, kind) in [
            ("core::ptr::write", Rust),
            ("core::ptr::drop_in_place<app::Request>", Rust),
            ("<alloc::vec::Vec<app::Item> as core::iter::Extend<app::Item>>::extend", Rust),
            ("<&T as core::fmt::Debug>::fmt", Rust),
            ("core::slice::<impl [T]>::sort", Rust),
            ("<T as core::convert::Into<U>>::into", Rust),
            ("std::sys::sync::mutex::futex::Mutex::lock_contended", Rust),
            ("void std::__introsort_loop<int*>(int*, int*, long)", Native),
            ("__pthread_mutex_lock", Native),
            ("runtime.mallocgc", Go),
            ("internal/sync.(*Mutex).lockSlow", Go),
        ] {
            assert!(is_standard_name(name, kind), "{name}");
        }
        for (name, kind) in [
            ("app::work", Rust),
            ("<app::Cache as core::ops::Index<usize>>::index", Rust),
            ("<T as app::Visit>::visit", Rust),
            ("app::Cache::get(std::string const&)", Native),
            ("std::string app::name()", Native),
            ("main", Native),
            ("stdlib_main", Native),
            ("main.work", Go),
            ("github.com/a/sync.Work", Go),
            ("std", Python),
        ] {
            assert!(!is_standard_name(name, kind), "{name}");
        }
    }
}
