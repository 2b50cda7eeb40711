//! Which processes of a recording have samples whose stacks contain frames without a name, and what would name them.
//!
//! Input: the events and processes of a recording, and at its end the [`Namer`]. Output: a few lines for the user, and JSON.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde_json::{Value, json};
use sidewinder_bpf::{RawFrame, RawFrameKind};
use sidewinder_message::{SampleEvent, Stack};
use sidewinder_naming::vm::VmObstacle;
use sidewinder_naming::{Namer, UnnamedCause};
use sidewinder_process::{FileId, OpenError, Pid, ProcRoot, ProcessDescription, ProcessKey, ProcessRoot};
use sidewinder_render::group_thousands;
use sidewinder_text::ExternalText;
use sidewinder_vm::describe;

use crate::runtime_advice::{
    EARLY_ADVICE, ENDED_ADVICE, INCOMPLETE_ADVICE, MEMORY_ADVICE, generated_code_advice,
};

/// A process is reported if at least this share of its samples has unnamed frames, as a divisor: with its names available, a
/// few samples may still come before them.
const REPORTED_SHARE: u64 = 100;
/// The most groups of processes that are reported.
const GROUPS_MAX: usize = 10;
/// The most PIDs that are printed of a group.
const PIDS_SHOWN: usize = 3;

/// The samples of a recording that may have unnamed frames.
#[derive(Debug, Default)]
pub(crate) struct UnnamedSamples {
    processes: HashMap<ProcessKey, ProcessSamples>,
}

#[derive(Debug, Default)]
struct ProcessSamples {
    name: String,
    /// The PID in the process's own PID namespace, if it has one.
    own_pid: Option<u32>,
    total: u64,
    /// By the ID of the stack, those that may have unnamed frames, and how many samples have them.
    stacks: HashMap<u64, (Arc<Stack>, u64)>,
}

/// Processes of the same program whose frames have no name for the same reason.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct UnnamedGroup {
    /// The name of the program.
    program: String,
    /// Sorted.
    pids: Vec<u32>,
    /// The PID of one of them, in its own PID namespace.
    own_pid: u32,
    cause: UnnamedCause,
    /// Samples with unnamed frames, of all samples of these processes.
    unnamed: u64,
    total: u64,
}

impl UnnamedSamples {
    /// Notes the description of a process.
    pub(crate) fn note_process(&mut self, key: ProcessKey, description: &ProcessDescription) {
        let name = description.executable_name().or(description.comm.as_deref()).unwrap_or_default();
        let process = self.processes.entry(key).or_default();
        process.name = String::from_utf8_lossy(name).into_owned();
        process.own_pid = description.namespaced_pids.last().copied();
    }

    /// Notes a sample.
    pub(crate) fn note_event(&mut self, event: &SampleEvent, namer: &Namer) {
        let process = self.processes.entry(event.process).or_default();
        process.total += 1;
        let Some(stack) = &event.stack else { return };
        let is_in_memory_file = |frame: &RawFrame| match frame.kind() {
            Some(RawFrameKind::Native { file }) => namer.is_memory_file(FileId(file)),
            _ => false,
        };
        let may_be_unnamed = stack.is_process_specific() || stack.frames.iter().any(is_in_memory_file);
        if may_be_unnamed {
            process.stacks.entry(stack.id).or_insert_with(|| (Arc::clone(stack), 0)).1 += 1;
        }
    }

    /// The processes to report, those with the most unnamed samples first. `denied`: those whose runtime could not be
    /// found because their memory can't be read; none of their samples has its frames. `end_ns`: the end of the recording, by
    /// `CLOCK_MONOTONIC`.
    pub(crate) fn groups(&self, namer: &mut Namer, denied: &[ProcessKey], end_ns: u64) -> Vec<UnnamedGroup> {
        let mut groups = BTreeMap::<(&str, UnnamedCause), UnnamedGroup>::new();
        for (key, process) in self.processes.iter().filter(|(_, process)| process.total > 0) {
            let mut counts = HashMap::<UnnamedCause, u64>::new();
            for (stack, count) in process.stacks.values() {
                if let Some(cause) = namer.unnamed_cause(*key, &stack.frames, end_ns) {
                    *counts.entry(cause).or_default() += count;
                }
            }
            if denied.contains(key) {
                counts.insert(UnnamedCause::Memory(VmObstacle::Denied), process.total);
            }
            for (cause, unnamed) in counts {
                // Without its mappings, nothing can be said of a process that has ended.
                let cause = match cause {
                    UnnamedCause::UnknownCode if is_denied(key.pid) => {
                        UnnamedCause::Memory(VmObstacle::Denied)
                    }
                    UnnamedCause::UnknownCode => continue,
                    cause => cause,
                };
                if unnamed < process.total.div_ceil(REPORTED_SHARE) {
                    continue;
                }
                let group = groups.entry((&process.name, cause)).or_insert_with(|| UnnamedGroup {
                    program: process.name.clone(),
                    pids: Vec::new(),
                    own_pid: process.own_pid.unwrap_or(key.pid),
                    cause,
                    unnamed: 0,
                    total: 0,
                });
                group.pids.push(key.pid);
                group.unnamed += unnamed;
                group.total += process.total;
            }
        }
        let mut groups: Vec<_> = groups.into_values().collect();
        for group in &mut groups {
            group.pids.sort_unstable();
            // An exec makes another process of the same PID.
            group.pids.dedup();
        }
        groups.sort_by_key(|group| std::cmp::Reverse(group.unnamed));
        groups
    }
}

/// Whether we may not follow the root of a process. This takes the same right as reading its memory; reading its mappings may
/// take less.
fn is_denied(pid: u32) -> bool {
    matches!(ProcessRoot::from_pid(&ProcRoot::default(), Pid(pid)), Err(OpenError::Permission))
}

impl UnnamedGroup {
    /// What would name the frames.
    fn advice(&self) -> String {
        match self.cause {
            UnnamedCause::GeneratedCode { has_names: true, .. } => INCOMPLETE_ADVICE.to_owned(),
            UnnamedCause::GeneratedCode { generator, has_names: false } => {
                generated_code_advice(generator, self.own_pid)
            }
            UnnamedCause::Memory(VmObstacle::Denied) | UnnamedCause::UnknownCode => MEMORY_ADVICE.to_owned(),
            UnnamedCause::Memory(VmObstacle::Ended) => ENDED_ADVICE.to_owned(),
            UnnamedCause::TooEarly(_) => EARLY_ADVICE.to_owned(),
        }
    }

    /// The cause, for programs.
    const fn cause_label(&self) -> &'static str {
        match self.cause {
            UnnamedCause::GeneratedCode { has_names: false, .. } => "generated_code",
            UnnamedCause::GeneratedCode { has_names: true, .. } => "generated_code_not_listed",
            UnnamedCause::Memory(VmObstacle::Denied) | UnnamedCause::UnknownCode => "memory_denied",
            UnnamedCause::Memory(VmObstacle::Ended) => "process_ended",
            UnnamedCause::TooEarly(_) => "too_early",
        }
    }

    fn line(&self) -> String {
        let shown: Vec<String> = self.pids.iter().take(PIDS_SHOWN).map(ToString::to_string).collect();
        let (word, pids) = match self.pids.len() - shown.len() {
            0 if shown.len() == 1 => ("pid", shown.join(", ")),
            0 => ("pids", shown.join(", ")),
            more => ("pids", format!("{} and {more} more", shown.join(", "))),
        };
        let program = ExternalText::new(&self.program);
        format!(
            "{program} ({word} {pids}): {} of {} samples have frames without a name: {}",
            group_thousands(self.unnamed),
            group_thousands(self.total),
            self.advice()
        )
    }

    fn to_json(&self) -> Value {
        let runtime = match self.cause {
            UnnamedCause::GeneratedCode { generator, .. } => Some(describe(generator).id),
            UnnamedCause::TooEarly(runtime) => Some(describe(Some(runtime)).id),
            UnnamedCause::Memory(_) | UnnamedCause::UnknownCode => None,
        };
        json!({
            "program": self.program,
            "pids": self.pids,
            "runtime": runtime,
            "cause": self.cause_label(),
            "unnamed": self.unnamed,
            "samples": self.total,
            "next": self.advice(),
        })
    }
}

/// The groups as lines for the user, each with its end.
pub(crate) fn lines(groups: &[UnnamedGroup]) -> String {
    let mut text: String =
        groups.iter().take(GROUPS_MAX).map(|group| format!("  {}\n", group.line())).collect();
    if let Some(more @ 1..) = groups.len().checked_sub(GROUPS_MAX) {
        text += &format!("  and {more} more programs\n");
    }
    text
}

/// The groups as JSON; the keys are a public interface.
pub(crate) fn to_json(groups: &[UnnamedGroup]) -> Value {
    groups.iter().map(UnnamedGroup::to_json).collect()
}

#[cfg(test)]
mod tests;
