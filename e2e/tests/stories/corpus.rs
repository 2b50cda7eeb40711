//! A part of the corpus, of every sort of program: nearly all native stacks are complete, and none was never there.

use anyhow::Result;
use sidewinder_e2e::corpus::{self, PROGRAMS, Table};
use sidewinder_e2e::requirement;

const SECONDS: u32 = 3;
const SAMPLES_PER_SECOND: u32 = 997;

/// `make corpus` asks for 99.95% of all programs. Here, a program's start has a greater share in its samples, and stacks
/// that are met before their file's table is there may be too long to be kept for it.
const COMPLETE_SHARE: f64 = 0.98;

#[test]
fn stacks_of_every_sort_of_program_are_complete_and_none_was_never_there() -> Result<()> {
    if !requirement::ebpf("the corpus")? {
        return Ok(());
    }
    let mut table = Table::default();
    for subject in PROGRAMS.iter().filter(|subject| subject.is_in_part) {
        if let Some(tool) = subject.missing_tool() {
            requirement::skip(subject.name, &format!("{tool} is not installed"))?;
            continue;
        }
        let samples = corpus::profile(subject, SECONDS, SAMPLES_PER_SECOND)?;
        let (received, expected) = (samples.received as usize, samples.expected);
        assert!(expected.admits(received, 0.05), "{}: {received} received, {expected}", subject.name);
        table.push(subject.name, subject.group, samples);
    }
    eprintln!("{table}");
    assert_eq!(table.wrong(), 0, "{table}");
    assert!(table.native().complete_share() >= COMPLETE_SHARE, "{table}");
    Ok(())
}
