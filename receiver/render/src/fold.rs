//! Folds frames that say little in a table: into the cause of a wait, or into the caller that they were inlined into.

use std::collections::HashMap;

use sidewinder_kind::WAKER_DELAY;
use sidewinder_profile::FrameType;

use crate::profile::{
    BinaryIndex, FrameIndex, Profile, ProfileFrame, ProfileSample, StackIndex, ThreadState,
};
use crate::standard::standard_frames;

/// Which inlined functions are apart from the function that they were inlined into.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum InlinedFunctions {
    /// All of them.
    #[default]
    All,
    /// Those of the program: not those of standard libraries, such as `core::ptr::write`.
    Own,
    /// None.
    None,
}

impl Profile {
    /// Folds inlined functions into their callers. In profiles of waits, also folds the kernel's functions in which a thread waits
    /// into one that is called after the cause, such as `[sleeping: futex]`, or into the lock that it waits for: in these
    /// functions, `schedule` above all, every wait is alike.
    ///
    /// What is left has the same samples, with other stacks.
    pub fn fold(&mut self, inlined: InlinedFunctions) {
        let is_of_waits = self.measure.is_of_waits();
        if !is_of_waits && inlined == InlinedFunctions::All {
            return;
        }
        let is_folded = match inlined {
            InlinedFunctions::All => Vec::new(),
            InlinedFunctions::Own => standard_frames(self),
            InlinedFunctions::None => vec![true; self.frames.len()],
        };
        let mut folder = Folder::default();
        let mut samples = std::mem::take(&mut self.samples);
        let mut folded = HashMap::new();
        for sample in &mut samples {
            let wait = if is_of_waits { self.wait_of(sample) } else { None };
            sample.stack = *folded.entry((sample.stack, wait.clone())).or_insert_with(|| {
                let stack = self.without_inlined(sample.stack, &is_folded);
                folder.add(self, stack, wait)
            });
        }
        (self.samples, self.stacks) = (samples, folder.stacks);
    }

    /// What a sample's thread waited for, in brackets; `None` if it ran.
    fn wait_of(&self, sample: &ProfileSample) -> Option<String> {
        let Some(state) = sample.state else {
            return Some(
                if self.measure.name() == WAKER_DELAY.name { "[wake-up]" } else { "[wait]" }.to_owned(),
            );
        };
        let ThreadState { state, cause } = self.states.get(state.0 as usize)?;
        let cause = match &**cause {
            "none" => "no system call".to_owned(),
            "other" => "another system call".to_owned(),
            cause => cause.replace('_', " "),
        };
        match (&**state, &*cause) {
            (ThreadState::RUNNING, _) => None,
            (state, "") => Some(format!("[{state}]")),
            (state, cause) => Some(format!("[{state}: {cause}]")),
        }
    }

    /// A stack without those frames that are to be folded where they are inlined.
    fn without_inlined(&self, stack: StackIndex, is_folded: &[bool]) -> Vec<FrameIndex> {
        let stack = self.stacks.get(stack.0 as usize).map_or(&[][..], Vec::as_slice);
        let is_folded = |index: &FrameIndex| {
            let frame = self.frames.get(index.0 as usize);
            frame.is_some_and(|frame| frame.is_inlined) && is_folded.get(index.0 as usize) == Some(&true)
        };
        stack.iter().copied().filter(|index| !is_folded(index)).collect()
    }
}

/// The stacks that are left.
#[derive(Default)]
struct Folder {
    stacks: Vec<Vec<FrameIndex>>,
    /// The frames that stand for causes of waits.
    causes: HashMap<String, FrameIndex>,
}

impl Folder {
    /// Adds a stack, whose innermost kernel frames are folded into the cause if it is of a wait.
    fn add(&mut self, profile: &mut Profile, stack: Vec<FrameIndex>, wait: Option<String>) -> StackIndex {
        let stack = match wait {
            Some(cause) => self.without_waiting(profile, stack, cause),
            None => stack,
        };
        self.stacks.push(stack);
        StackIndex(self.stacks.len() as u32 - 1)
    }

    fn without_waiting(
        &mut self,
        profile: &mut Profile,
        mut stack: Vec<FrameIndex>,
        cause: String,
    ) -> Vec<FrameIndex> {
        let frame = |index: &FrameIndex| profile.frames.get(index.0 as usize);
        let is_kernel = |index: &FrameIndex| frame(index).is_some_and(ProfileFrame::is_kernel);
        let locks = stack.iter().take_while(|index| frame(index).is_some_and(ProfileFrame::is_lock));
        let locks = locks.count();
        let rest = stack.get(locks..).unwrap_or_default();
        let in_kernel = rest.iter().take_while(|index| is_kernel(index)).count();
        // A thread of the kernel: its callers are what tells its wait apart.
        let waiting = if in_kernel == rest.len() {
            rest.iter().take_while(|index| frame(index).is_some_and(is_scheduler)).count()
        } else {
            in_kernel
        };
        let Some(innermost) = rest.first().filter(|_| waiting > 0).and_then(frame) else { return stack };
        let binary = innermost.binary;
        let cause = (locks == 0).then(|| self.cause_frame(profile, cause, binary));
        stack.splice(locks..locks + waiting, cause);
        stack
    }

    /// The frame that stands for a cause, as a function of the kernel.
    fn cause_frame(
        &mut self,
        profile: &mut Profile,
        cause: String,
        kernel: Option<BinaryIndex>,
    ) -> FrameIndex {
        *self.causes.entry(cause).or_insert_with_key(|cause| {
            profile.frames.push(ProfileFrame {
                binary: kernel,
                frame_type: FrameType::Kernel,
                ..ProfileFrame::from_words(cause.as_str())
            });
            FrameIndex(profile.frames.len() as u32 - 1)
        })
    }
}

/// Whether a function of the kernel is a part of the scheduler that a waiting thread is in.
fn is_scheduler(frame: &ProfileFrame) -> bool {
    frame.name.contains("schedule")
}

#[cfg(test)]
mod tests {
    use sidewinder_kind::Kind;

    use super::*;
    use crate::functions::functions;
    use crate::profile::tests::{frame, lines, sample};
    use crate::profile::{FrameCategory, StateIndex};
    use sidewinder_profile::SampleType;

    /// What is left in each row, with its self and total counts.
    fn rows(profile: &Profile) -> Vec<(String, u64, u64)> {
        let rows = functions(profile).into_iter();
        rows.map(|row| (row.name.into_owned(), row.self_count, row.total_count)).collect()
    }

    fn state(state: &str, cause: &str) -> ThreadState {
        ThreadState { state: state.into(), cause: cause.into() }
    }

    fn frame_of(profile: &mut Profile, name: &str, kind: FrameCategory) -> FrameIndex {
        profile.frames.push(frame(name, kind, 0));
        FrameIndex(profile.frames.len() as u32 - 1)
    }

    /// `main` runs, waits for a futex and to read; it waits by two ways through the kernel, and runs in the kernel, too.
    fn waits() -> Profile {
        let mut profile =
            Profile { measure: SampleType::from_kind(Kind::Wall { samples_per_second: 100 }), ..sample() };
        profile.states =
            vec![state("running", ""), state("sleeping", "futex"), state("uninterruptible", "file_lock")];
        let schedule = frame_of(&mut profile, "schedule", FrameCategory::Kernel);
        let futex_wait = frame_of(&mut profile, "futex_wait", FrameCategory::Kernel);
        let (main, vfs_write) = (FrameIndex(0), FrameIndex(3));
        profile.stacks = vec![
            vec![main],
            vec![schedule, futex_wait, main],
            vec![schedule, vfs_write, main],
            vec![vfs_write, main],
            vec![schedule, futex_wait],
        ];
        for (sample, state) in profile.samples.iter_mut().zip([0, 1, 2, 0, 1]) {
            sample.state = Some(StateIndex(state));
        }
        profile
    }

    #[test]
    fn the_kernel_functions_of_a_wait_are_its_cause_and_those_of_what_runs_stay() {
        let mut profile = waits();
        profile.fold(InlinedFunctions::All);
        let expected = [
            ("[sleeping: futex]", 8, 8),
            ("main", 3, 10),
            ("vfs_write", 2, 2),
            ("[uninterruptible: file lock]", 1, 1),
            // Nothing else is in the stack of a thread of the kernel.
            ("futex_wait", 0, 4),
        ];
        assert_eq!(rows(&profile), expected.map(|(name, own, total)| (name.to_owned(), own, total)));
        assert_eq!(profile.total_count(), waits().total_count());
    }

    #[test]
    fn waits_for_a_lock_are_the_locks() {
        let mut profile = Profile { measure: SampleType::from_kind(Kind::LockDelay), ..waits() };
        let lock = frame_of(&mut profile, "[lock 1]", FrameCategory::Lock);
        for (sample, stack) in profile.samples.iter_mut().zip(&mut profile.stacks) {
            sample.state = None;
            stack.insert(0, lock);
        }
        profile.stacks[2].remove(0);
        profile.fold(InlinedFunctions::All);
        assert_eq!(profile.stacks[1], [lock, FrameIndex(0)]);
        assert_eq!(profile.stacks[0], [lock, FrameIndex(0)], "without kernel frames");
        let wait = profile.stacks[2][0];
        assert_eq!(&*profile.frames[wait.0 as usize].name, "[wait]", "whose lock is unknown");
    }

    #[test]
    fn other_profiles_keep_their_stacks() {
        let mut profile = sample();
        profile.fold(InlinedFunctions::All);
        assert_eq!(profile, sample());
    }

    #[test]
    fn an_inlined_function_is_its_callers_if_requested() {
        let folded = |name: &str, inlined| {
            let mut profile = lines();
            profile.frames[2].name = name.into();
            profile.fold(inlined);
            rows(&profile).into_iter().map(|(name, own, _)| (name, own)).collect::<Vec<_>>()
        };
        let [own, standard] = ["hash", "core::ptr::write"];
        let apart = |name: &str| vec![(name.to_owned(), 6), ("hot".to_owned(), 4), ("main".to_owned(), 0)];
        let together = vec![("hot".to_owned(), 10), ("main".to_owned(), 0)];
        assert_eq!(folded(own, InlinedFunctions::All), apart(own));
        assert_eq!(folded(standard, InlinedFunctions::All), apart(standard));
        assert_eq!(folded(own, InlinedFunctions::Own), apart(own));
        assert_eq!(folded(standard, InlinedFunctions::Own), together);
        assert_eq!(folded(own, InlinedFunctions::None), together);
    }
}
