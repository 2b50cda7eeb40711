//! The naming stage: what reads the messages from sampling.
//!
//! Owner: the thread of the reporter or command. Input: [`Message`]s. Output: [`Update`]s for those that count events, and the
//! names and processes that these events refer to.

use std::collections::{HashMap, HashSet};
use std::mem;
use std::sync::Arc;

use sidewinder_message::{Message, SampleEvent, Stack};
use sidewinder_process::{FileId, ProcessDescription, ProcessKey};
use sidewinder_profile::{Dictionary, StackIndex};

use super::lock_names::LockNames;
use super::stacks::{StackNames, WalkedStack};
use super::{NameCounts, Namer};

/// What a message means to those that count events.
#[derive(Debug)]
pub enum Update {
    /// An event that its kind of profile counts.
    Event(SampleEvent),
    /// These frames may have better names than before.
    Renamed(RenamedFrames),
    /// A process has another description than before.
    Described(ProcessKey),
}

/// Which frames may have other names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RenamedFrames {
    /// Any frame.
    All,
    /// Those that have a meaning only within one process.
    ProcessSpecific,
}

/// Which indices of the dictionary are no longer valid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Forgotten {
    /// All are valid.
    Nothing,
    /// Those of stacks, so that the frames are named again.
    Stacks,
    /// The whole dictionary begins anew.
    All,
}

/// The files, processes and names of the messages so far.
#[derive(Debug)]
pub struct NamingStage {
    /// Names the frames.
    pub namer: Namer,
    /// What events refer to once they are named. Its users may add to it.
    pub dictionary: Dictionary,
    stacks: StackNames,
    processes: HashMap<ProcessKey, Arc<ProcessDescription>>,
    locks: LockNames,
    /// Whether what is gone is kept, since events are named after a recording.
    keeps_all: bool,
    /// Files and processes that no later event refers to.
    gone_files: Vec<FileId>,
    gone_processes: HashSet<ProcessKey>,
}

impl NamingStage {
    /// A stage that has read nothing, and names frames with this.
    pub fn new(namer: Namer) -> Self {
        Self {
            namer,
            dictionary: Dictionary::default(),
            stacks: StackNames::default(),
            processes: HashMap::new(),
            locks: LockNames::default(),
            keeps_all: false,
            gone_files: Vec::new(),
            gone_processes: HashSet::new(),
        }
    }

    /// Forgets nothing that is gone: events are named after all messages have been read.
    pub fn keeping_all(self) -> Self {
        Self { keeps_all: true, ..self }
    }

    /// Reads a message. Messages have to be read in their order.
    pub fn read(&mut self, message: Message) -> Option<Update> {
        let update = self.update(message);
        match update {
            Some(Update::Renamed(RenamedFrames::All)) => self.stacks.clear(),
            Some(Update::Renamed(RenamedFrames::ProcessSpecific)) => self.stacks.clear_process_specific(),
            _ => {}
        }
        update
    }

    fn update(&mut self, message: Message) -> Option<Update> {
        match message {
            Message::File(id, info) => {
                // Look-ups may have failed while the file's headers were unknown.
                self.locks.clear();
                self.namer.add_file(id, info);
                Some(Update::Renamed(RenamedFrames::All))
            }
            Message::ForgetFile(_) | Message::ProcessExited(_) if self.keeps_all => None,
            Message::ForgetFile(id) => {
                self.gone_files.push(id);
                None
            }
            Message::Process(key, description) => {
                self.gone_processes.remove(&key);
                self.processes.insert(key, self.namer.describe(description));
                Some(Update::Described(key))
            }
            Message::JitSource(key, source) => {
                self.namer.add_jit_source(key, source);
                Some(Update::Renamed(RenamedFrames::ProcessSpecific))
            }
            Message::Runtime(key, source) => {
                self.namer.add_runtime(key, source);
                Some(Update::Renamed(RenamedFrames::ProcessSpecific))
            }
            Message::CodeObject(key, object) => {
                let is_renamed = self.namer.add_code_object(key, &object);
                is_renamed.then_some(Update::Renamed(RenamedFrames::ProcessSpecific))
            }
            Message::ProcessExited(key) => {
                self.gone_processes.insert(key);
                None
            }
            Message::Event(event) => self.without_other_waits(event).map(Update::Event),
        }
    }

    /// The event, unless its kind of profile counts waits for locks and its wait was for something else.
    fn without_other_waits(&mut self, event: SampleEvent) -> Option<SampleEvent> {
        let Some(futex) = event.lock else { return Some(event) };
        let lock = self.locks.lock_in(futex, &event, &mut self.namer)?;
        Some(SampleEvent { lock: Some(lock), ..event })
    }

    /// Reads the functions of virtual machines in the stacks of all events among these messages, while their processes have them.
    /// Stacks of one process are read together, because each read has a fixed cost.
    pub fn read_functions_of(&mut self, messages: &[Message]) {
        let mut by_process: HashMap<ProcessKey, Vec<&Stack>> = HashMap::new();
        for message in messages {
            if let Message::Event(SampleEvent { process, stack: Some(stack), .. }) = message
                && stack.has_vm_frames
            {
                by_process.entry(*process).or_default().push(stack);
            }
        }
        for (process, stacks) in by_process.into_iter().filter(|(_, stacks)| stacks.len() > 1) {
            self.namer.read_functions_in(process, &stacks);
        }
    }

    /// The stack of the dictionary that a walk found, with all names.
    pub fn stack(&mut self, walked: WalkedStack<'_>) -> StackIndex {
        self.stacks.stack(&mut self.dictionary, &mut self.namer, walked)
    }

    /// Names the frames of a walk that have a meaning only within its process, while it has what they refer to: its stack is asked
    /// for later.
    pub fn name_process_specific(&mut self, walked: WalkedStack<'_>) {
        self.stacks.name_process_specific(&mut self.dictionary, &mut self.namer, walked);
    }

    /// Names the code in files of these stacks together, so that each part of a file is read once.
    pub fn name_files<'a>(&mut self, stacks: impl Iterator<Item = &'a Stack>) {
        self.stacks.name_files(&mut self.dictionary, &mut self.namer, stacks);
    }

    /// Names again what has a meaning only within one process.
    pub fn clear_process_specific(&mut self) {
        self.stacks.clear_process_specific();
    }

    /// Forgets stacks, and all of the dictionary if that does not suffice, where they and `other_bytes` take more than `bytes_max`.
    /// Returns whether indices of the dictionary are no longer valid: those of stacks, or all.
    pub fn limit_dictionary(&mut self, other_bytes: usize, bytes_max: usize) -> Forgotten {
        let is_over =
            |stage: &Self| stage.dictionary.bytes() + stage.stacks.bytes() + other_bytes > bytes_max;
        if !is_over(self) {
            return Forgotten::Nothing;
        }
        // Most stacks don't recur, and what they consist of does.
        self.stacks.clear_stacks();
        self.dictionary.forget_stacks();
        if !is_over(self) {
            return Forgotten::Stacks;
        }
        self.stacks.clear();
        self.dictionary = Dictionary::default();
        Forgotten::All
    }

    /// The description of a process.
    pub fn process(&self, key: ProcessKey) -> Option<&ProcessDescription> {
        self.processes.get(&key).map(|description| &**description)
    }

    /// The description of a process, and the dictionary that it may be added to.
    pub fn process_and_dictionary(
        &mut self,
        key: ProcessKey,
    ) -> (Option<&ProcessDescription>, &mut Dictionary) {
        (self.processes.get(&key).map(|description| &**description), &mut self.dictionary)
    }

    /// Forgets the files and processes that are gone, and returns the processes. All events so far have been named.
    pub fn forget_gone(&mut self) -> HashSet<ProcessKey> {
        for file in self.gone_files.drain(..) {
            self.namer.remove_file(file);
        }
        for process in &self.gone_processes {
            self.namer.remove_process(*process);
            self.processes.remove(process);
        }
        mem::take(&mut self.gone_processes)
    }

    /// Counts of frames without names, or without complete ones.
    pub fn name_counts(&self) -> NameCounts {
        self.namer.counts()
    }

    /// The number of processes that events may refer to.
    #[cfg(any(test, feature = "test-support"))]
    #[must_use]
    pub fn process_count(&self) -> usize {
        self.processes.len()
    }
}

#[cfg(test)]
mod tests {
    use sidewinder_process::ProcessKey;

    use super::*;
    use crate::test_support::naming_stage;

    #[test]
    fn a_process_that_is_announced_again_is_not_forgotten() {
        let mut stage = naming_stage();
        let [gone, again] = [1, 2].map(|pid| ProcessKey { pid, instance: 1 });
        for key in [gone, again] {
            stage.read(Message::Process(key, Arc::default()));
            stage.read(Message::ProcessExited(key));
        }
        assert_eq!(stage.process_count(), 2, "events that are not named yet may refer to them");
        stage.read(Message::Process(again, Arc::default()));
        assert_eq!(stage.forget_gone(), HashSet::from([gone]));
        assert!(stage.process(gone).is_none() && stage.process(again).is_some());
    }
}
