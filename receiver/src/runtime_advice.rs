//! What users can do where functions of a language runtime have no names.
//!
//! What is read of each runtime, and what its own switches are, is in its [`RuntimeDescription`](sidewinder_vm::RuntimeDescription): `sidewinder check` shows these, and
//! `docs/runtimes.md` contains them, which a test compares.

use sidewinder_vm::{Runtime, describe};

/// What to do if the memory of a process can't be read, which has the names of its functions.
pub(crate) const MEMORY_ADVICE: &str =
    "run Sidewinder as root or with CAP_SYS_PTRACE (its container needs it too)";
/// What to do if a process had ended before the names of its functions were read.
pub(crate) const ENDED_ADVICE: &str = "names are read while the process runs: make it run for longer";
/// What to do if samples are from before the files of a process were read, which say how to find its functions.
pub(crate) const EARLY_ADVICE: &str =
    "its functions were not known yet, which takes a few seconds for a new program: record for longer";
/// What to do if a process publishes names, but not those of all its code.
pub(crate) const INCOMPLETE_ADVICE: &str =
    "its perf map or jitdump lacks this code: write it again, or from the start of the process";

/// What to do about unnamed code that the runtime of a process has generated: for a runtime that does not generate code,
/// as for a library that is not known.
pub(crate) fn generated_code_advice(runtime: Option<Runtime>, pid: u32) -> String {
    let others = describe(None).advice;
    for_process(describe(runtime).advice.or(others).unwrap_or_default(), pid)
}

/// An instruction with the PID of the process that it is for.
pub(crate) fn for_process(advice: &str, pid: u32) -> String {
    advice.replace("PID", &pid.to_string())
}

#[cfg(test)]
mod tests {
    use sidewinder_vm::{RUNTIMES, RuntimeDescription};

    use super::*;

    const DOCUMENT: &str = include_str!("../../docs/runtimes.md");

    fn line(row: &RuntimeDescription) -> String {
        let advice = row.advice.unwrap_or("-");
        format!("| {} | {} | {} | {advice} |", row.name, row.frames, row.names)
    }

    #[test]
    fn the_document_contains_all_runtimes_and_no_other_rows() {
        let lines = RUNTIMES.map(line);
        let table = format!(
            "| Runtime | Frames | Names | How generated code gets names |\n|---|---|---|---|\n{}\n",
            lines.join("\n")
        );
        assert!(DOCUMENT.contains(&table), "docs/runtimes.md must contain:\n{table}");
    }

    #[test]
    fn the_document_contains_the_other_advice() {
        for advice in [MEMORY_ADVICE, ENDED_ADVICE, EARLY_ADVICE, INCOMPLETE_ADVICE] {
            assert!(DOCUMENT.contains(advice), "docs/runtimes.md must contain: {advice}");
        }
    }

    #[test]
    fn advice_on_generated_code_names_the_process() {
        let advice = generated_code_advice(Some(Runtime::LuaJit), 12);
        assert!(advice.contains("LUAJIT_USE_PERFTOOLS"), "{advice}");
        // A library in a program whose language doesn't generate code.
        let advice = generated_code_advice(Some(Runtime::Perl), 12);
        assert!(advice.contains("/tmp/perf-12.map"), "{advice}");
    }
}
