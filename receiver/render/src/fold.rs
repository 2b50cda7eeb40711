//! Folds frames that say little in a table: into the cause of a wait, or into the caller that they were inlined into.

use std::collections::HashMap;

use sidewinder_kind::WAKER_DELAY;
use sidewinder_profile::{
    Dictionary, FrameIndex, FrameType, Index as _, Line, Location, LocationIndex, Marker, StackIndex,
};

use crate::profile::{Profile, ProfileSample, ThreadState};
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
            InlinedFunctions::None => vec![true; self.dictionary.frame_count()],
        };
        let mut folder = Folder { is_folded, folded: HashMap::new() };
        let mut samples = std::mem::take(&mut self.samples);
        let mut stacks = HashMap::new();
        for sample in &mut samples {
            let wait = if is_of_waits { self.wait_of(sample) } else { None };
            sample.stack = *stacks.entry((sample.stack, wait)).or_insert_with_key(|(stack, wait)| {
                folder.stack(&mut self.dictionary, *stack, wait.as_deref())
            });
        }
        self.samples = samples;
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
}

/// What is folded in the stacks of a dictionary.
struct Folder {
    /// Whether each frame that was in the dictionary is folded where it is inlined; empty if none is.
    is_folded: Vec<bool>,
    /// By location, the same without the frames that are folded.
    folded: HashMap<LocationIndex, LocationIndex>,
}

impl Folder {
    /// A stack without what is folded in it: the innermost kernel frames become the cause if it is of a wait.
    fn stack(&mut self, dictionary: &mut Dictionary, stack: StackIndex, wait: Option<&str>) -> StackIndex {
        let mut locations = dictionary.stack(stack).to_vec();
        for location in &mut locations {
            *location = self.without_inlined(dictionary, *location);
        }
        if let Some(cause) = wait {
            fold_wait(dictionary, &mut locations, cause);
        }
        dictionary.add_stack(&locations)
    }

    /// A location without those frames that are to be folded where they are inlined.
    fn without_inlined(&mut self, dictionary: &mut Dictionary, index: LocationIndex) -> LocationIndex {
        let lines = dictionary.location(index).lines;
        if self.is_folded.is_empty() || lines.len() == 1 {
            return index;
        }
        if let Some(known) = self.folded.get(&index) {
            return *known;
        }
        let outermost = lines.len().saturating_sub(1);
        let is_kept = |number: usize, frame: FrameIndex| {
            number == outermost || self.is_folded.get(frame.position()) != Some(&true)
        };
        let frames = dictionary.frames_at(index).zip(lines).enumerate();
        let kept = frames.filter(|(number, (frame, _))| is_kept(*number, *frame));
        let kept: Vec<Line> = kept.map(|(_, (_, line))| *line).collect();
        let folded = dictionary.add_location_with_lines(index, &kept);
        self.folded.insert(index, folded);
        folded
    }
}

/// Folds the kernel frames in which a stack waits into a function of the kernel that is called after the cause, or into the lock that
/// the thread waits for.
fn fold_wait(dictionary: &mut Dictionary, stack: &mut Vec<LocationIndex>, cause: &str) {
    let location = |index: &LocationIndex| dictionary.location(*index);
    let is_lock = |index: &&LocationIndex| matches!(location(index).marker, Some(Marker::Lock(_)));
    let locks = stack.iter().take_while(is_lock).count();
    let rest = stack.get(locks..).unwrap_or_default();
    let is_kernel = |index: &&LocationIndex| location(index).frame_type == FrameType::Kernel;
    let in_kernel = rest.iter().take_while(is_kernel).count();
    // A thread of the kernel: its callers are what tells its wait apart.
    let waiting = if in_kernel == rest.len() {
        rest.iter().take_while(|index| is_scheduler(dictionary, **index)).count()
    } else {
        in_kernel
    };
    let Some(innermost) = rest.first().filter(|_| waiting > 0) else { return };
    let mapping = location(innermost).mapping;
    let cause = (locks == 0).then(|| {
        let function = dictionary.add_function_named(cause);
        dictionary.add_location(&Location {
            mapping,
            frame_type: FrameType::Kernel,
            marker: Some(&Marker::Words),
            lines: &[Line::new(function)],
            ..Location::default()
        })
    });
    stack.splice(locks..locks + waiting, cause);
}

/// Whether a function of the kernel is a part of the scheduler that a waiting thread is in.
fn is_scheduler(dictionary: &Dictionary, location: LocationIndex) -> bool {
    let mut frames = dictionary.frames_at(location).filter_map(|frame| dictionary.frame(frame));
    frames.any(|frame| frame.name().contains("schedule"))
}

#[cfg(test)]
mod tests {
    use sidewinder_kind::Kind;

    use super::*;
    use crate::category::FrameCategory;
    use crate::functions::functions;
    use crate::profile::StateIndex;
    use crate::profile::tests::{TestFrame, frame, lines_with, profile, sample, sample_frames};
    use sidewinder_profile::SampleType;

    /// What is left in each row, with its self and total counts.
    fn rows(profile: &Profile) -> Vec<(String, u64, u64)> {
        let rows = functions(profile).into_iter();
        rows.map(|row| (row.name.into_owned(), row.self_count, row.total_count)).collect()
    }

    fn state(state: &str, cause: &str) -> ThreadState {
        ThreadState { state: state.into(), cause: cause.into() }
    }

    /// `main` runs, waits for a futex and to read; it waits by two ways through the kernel, and runs in the kernel, too.
    const WAITS: [&[usize]; 5] = [&[0], &[5, 6, 0], &[5, 3, 0], &[3, 0], &[5, 6]];

    fn frames() -> Vec<TestFrame> {
        let mut frames = sample_frames();
        frames.push(frame("schedule", FrameCategory::Kernel, 0));
        frames.push(frame("futex_wait", FrameCategory::Kernel, 0));
        frames.push(frame("[lock 1]", FrameCategory::Lock, 0));
        frames
    }

    fn waits_in(stacks: [&[usize]; 5], kind: Kind) -> Profile {
        let counts = sample().samples;
        let stacks: Vec<_> =
            stacks.into_iter().zip(&counts).map(|(stack, sample)| (stack, sample.count)).collect();
        Profile { measure: SampleType::from_kind(kind), ..profile(&frames(), &stacks) }
    }

    fn waits() -> Profile {
        let mut profile = waits_in(WAITS, Kind::Wall { samples_per_second: 100 });
        profile.states =
            vec![state("running", ""), state("sleeping", "futex"), state("uninterruptible", "file_lock")];
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
        let stacks: [&[usize]; 5] = [&[7, 0], &[7, 5, 6, 0], &[5, 3, 0], &[7, 3, 0], &[7, 5, 6]];
        let mut profile = waits_in(stacks, Kind::LockDelay);
        profile.fold(InlinedFunctions::All);
        let names = |at: usize| -> Vec<_> {
            profile.frames_of(profile.samples[at].stack).map(|frame| frame.name().into_owned()).collect()
        };
        assert_eq!(names(1), ["[lock 1]", "main"]);
        assert_eq!(names(0), ["[lock 1]", "main"], "without kernel frames");
        assert_eq!(names(2)[0], "[wait]", "whose lock is unknown");
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
            let mut profile = lines_with(name);
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
