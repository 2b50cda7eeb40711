//! What must not happen on any machine, however busy it is.
//!
//! Other failures may be the machine's: `.ci/end-to-end` runs a few tests again. It names a file, in which a failure of this kind is
//! recorded, and then runs none of them again.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;
use std::thread;

/// The environment variable with the path of that file.
const RECORD: &str = "SIDEWINDER_NEVER";

/// Fails the test if this has happened.
///
/// # Panics
/// If it has.
#[track_caller]
pub fn never(has_happened: bool, what: &str, details: impl Display) {
    if has_happened {
        record(what);
    }
    assert!(!has_happened, "never {what}: {details}");
}

/// Adds a line to the record, if there is one: which test, and what. A test that can't do so fails all the same.
fn record(what: &str) {
    let Some(path) = std::env::var_os(RECORD) else { return };
    if let Err(error) = add_line(Path::new(&path), what) {
        eprintln!("can't record that this must never happen: {error}");
    }
}

fn add_line(path: &Path, what: &str) -> io::Result<()> {
    let thread = thread::current();
    let mut file = File::options().append(true).create(true).open(path)?;
    writeln!(file, "{}: {what}", thread.name().unwrap_or("a thread of a test"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_has_a_line_in_the_record() {
        let record = tempfile::NamedTempFile::new().unwrap();
        for what in ["a wrong name", "a wrong stack"] {
            add_line(record.path(), what).unwrap();
        }
        let lines = std::fs::read_to_string(record.path()).unwrap();
        let ends: Vec<_> =
            lines.lines().filter_map(|line| line.rsplit_once(": ")).map(|(_, what)| what).collect();
        assert_eq!(ends, ["a wrong name", "a wrong stack"]);
    }

    #[test]
    #[should_panic(expected = "never a wrong name: 3 of 5")]
    fn what_must_not_happen_fails_the_test() {
        never(false, "a wrong name", "0 of 5");
        never(true, "a wrong name", "3 of 5");
    }
}
