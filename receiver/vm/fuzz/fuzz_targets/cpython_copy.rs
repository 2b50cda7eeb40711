//! Any bytes as the copy of a code object that a young process had.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sidewinder_vm::cpython::{CodeCopy, Layout};

/// As the eBPF programs copy.
const HEAD_BYTES: usize = 32;
const IDENTITY_BYTES: usize = 96;

fuzz_target!(|input: &[u8]| {
    let Some((version, rest)) = input.split_first() else { return };
    let Some((ends, rest)) = rest.split_first_chunk::<2>() else { return };
    let Some((head, rest)) = rest.split_at_checked(HEAD_BYTES) else { return };
    let Some((identity, rest)) = rest.split_at_checked(IDENTITY_BYTES) else { return };
    let layout = Layout::of_minor(8 + version % 5).expect("a version that has a layout");
    let [name_bytes, path_bytes] = ends.map(usize::from);
    let (name, rest) = rest.split_at(name_bytes.min(rest.len()));
    let (path, lines) = rest.split_at(path_bytes.min(rest.len()));
    let copy = CodeCopy { head, identity, name, path, lines };
    let Some(cookie) = layout.copied_cookie(copy) else { return };
    let Ok(function) = layout.copied_function(copy, cookie) else { return };
    assert!(function.name().len() <= 1 << 10);
    assert!(function.path().len() <= 4 << 10);
    let _ = function.line_at(u32::from(*version));
});
