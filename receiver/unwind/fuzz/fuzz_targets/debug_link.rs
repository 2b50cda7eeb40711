//! Arbitrary bytes as a debug link and as a build ID: no path leads out of its starting directory.
//!
//! `make fuzz`
#![no_main]

use libfuzzer_sys::fuzz_target;
use object::File;
use sidewinder_unwind::debug_file::DebugFileReference;
use sidewinder_unwind_fuzz::file_of;

fuzz_target!(|data: &[u8]| {
    let file = file_of(&[(".gnu_debuglink", data), (".note.gnu.build-id", data)]);
    let Ok(file) = File::parse(&*file) else { return };
    let Some(reference) = DebugFileReference::from_file(&file) else { return };
    let mut candidates = 0;
    for path in reference.candidates(b"/usr/bin") {
        candidates += 1;
        assert!(path.starts_with(b"usr/"));
        assert!(path.split(|byte| *byte == b'/').all(|part| !part.is_empty() && part != b".."));
    }
    assert!((1..=4).contains(&candidates));
    let _ = reference.verify(&file);
});
