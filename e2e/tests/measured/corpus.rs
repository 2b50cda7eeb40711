//! Programs of the corpus's part that `completeness` of `end_to_end` doesn't have: nearly all native stacks are complete, and none was
//! never there.

use anyhow::Result;
use sidewinder_e2e_corpus::{self as corpus, PROGRAMS, Subject, Table};
use sidewinder_e2e_support::form::Form;
use sidewinder_e2e_support::never::never;
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::requirement;

/// Programs of the part that `completeness` profiles.
const IN_COMPLETENESS: [&str; 4] = ["ladder-rust", "ladder-go", "signals", "sha256"];

const SECONDS: u32 = 2;
const SAMPLES_PER_SECOND: u32 = 997;

/// Once a program runs. `make corpus` asks for as much from its first sample on.
const SETTLED_SHARE: f64 = 0.9995;
/// From the first sample on. Stacks that are met before their file's table is there may be too long to be kept for it, and
/// on a busy machine tables are late.
const COMPLETE_SHARE: f64 = 0.9;

#[promise(KernelUnwinding, test_all)]
fn stacks_of_every_sort_of_program_are_complete_and_none_was_never_there() -> Result<()> {
    if !requirement::ebpf("the corpus")? {
        return Ok(());
    }
    let mut table = Table::default();
    let is_taken = |subject: &&Subject| subject.is_in_part && !IN_COMPLETENESS.contains(&subject.name);
    for subject in PROGRAMS.iter().filter(is_taken) {
        if let Some(tool) = subject.missing_tool() {
            requirement::skip(subject.name, &format!("{tool} is not installed"))?;
            continue;
        }
        let samples = corpus::profile(Form::of_this_run()?, subject, SECONDS, SAMPLES_PER_SECOND)?;
        let expected = samples.expected.beside_others();
        let is_enough = samples.received_or_lost() as f64 >= 0.95 * expected.events - expected.by_chance;
        let most = 1.05 * expected.events + expected.stolen + expected.by_chance;
        assert!(is_enough && samples.received as f64 <= most, "{}: {expected}: {samples:?}", subject.name);
        table.push(subject, samples, None);
    }
    eprintln!("{table}");
    never(table.wrong() > 0, "a wrong stack", &table);
    assert!(table.settled().complete_share() >= SETTLED_SHARE, "{table}");
    assert!(table.native().complete_share() >= COMPLETE_SHARE, "{table}");
    Ok(())
}
