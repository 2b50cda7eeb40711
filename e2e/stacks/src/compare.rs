//! Compares what three unwinders make of one stack, and sorts the differences by reason.

use std::fmt;

use super::space::Place;

/// Frames of an unwinder that gives the address of each, leaf first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Theirs {
    /// The address of each frame: for a caller, the return address.
    pub places: Vec<Place>,
    /// Whether each is the kernel's frame of a signal, whose caller was interrupted.
    pub are_signal_frames: Vec<bool>,
}

/// The profiler's frames, leaf first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ours {
    /// Places of code: a caller's is the last byte of its call.
    pub places: Vec<Place>,
    /// Why the stack is cut; `None`: it is complete.
    pub cut: Option<String>,
}

/// The first frame, counted from the leaf, that two unwinders don't agree on; `None`: they agree on all.
fn first_difference(ours: &Ours, theirs: &Theirs) -> Option<usize> {
    let is_equal = |at: usize| match (ours.places.get(at), theirs.places.get(at)) {
        (Some(our_place), Some(their_place)) => {
            let is_exact = at == 0
                || theirs.are_signal_frames.get(at - 1) == Some(&true)
                || theirs.are_signal_frames.get(at) == Some(&true);
            is_same(our_place, their_place, is_exact)
        }
        _ => false,
    };
    let longest = ours.places.len().max(theirs.places.len());
    (0..longest).find(|at| !is_equal(*at))
}

fn is_same(ours: &Place, theirs: &Place, is_exact: bool) -> bool {
    let distance = match (ours, theirs) {
        (Place::File(path, ours), Place::File(their_path, theirs)) if path == their_path => {
            theirs.checked_sub(*ours)
        }
        (Place::Memory(ours), Place::Memory(theirs)) => theirs.checked_sub(*ours),
        _ => None,
    };
    match distance {
        Some(0) => is_exact,
        // The leaf alone is never behind a call.
        Some(1) => true,
        _ => false,
    }
}

/// Who agrees with whom about a stop.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Vote {
    /// All three.
    All,
    /// We and gdb.
    FramehopDiffers,
    /// We and framehop.
    GdbDiffers,
    /// They with each other, and not with us.
    WeDiffer,
    /// Nobody with anybody.
    AllDiffer,
}

/// What is known of the code whose frame two unwinders step out of differently.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Ground {
    /// The file states a rule.
    Rule,
    /// It states none: an unwinder that continues there guesses, or reads the code.
    NoRule,
    /// There is no file.
    NoFile,
    /// The file states where the frame has saved what it may since have overwritten: in a function of GCC's unwinder.
    Overwritten,
}

/// Why a stop is not one of agreement.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Reason {
    /// Who agrees.
    pub vote: Vote,
    /// Where the first difference arises, in the innermost frame that all have.
    pub ground: Ground,
    /// Our outcome, where our stack is cut.
    pub cut: Option<String>,
    /// Whether their stacks end before ours, or go on beyond.
    pub shape: Shape,
}

/// How two stacks that differ differ.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Shape {
    /// Both go on, elsewhere.
    Elsewhere,
    /// Theirs ends where ours continues.
    TheirsEnds,
    /// Ours ends where theirs continues.
    OursEnds,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let vote = match self.vote {
            Vote::All => "all agree",
            Vote::FramehopDiffers => "framehop alone differs",
            Vote::GdbDiffers => "gdb alone differs",
            Vote::WeDiffer => "WE alone differ",
            Vote::AllDiffer => "all differ",
        };
        let ground = match self.ground {
            Ground::Rule => "where the file states a rule",
            Ground::NoRule => "where the file states no rule",
            Ground::NoFile => "in generated code",
            Ground::Overwritten => "where the frame may be overwritten",
        };
        let shape = match self.shape {
            Shape::Elsewhere => "continues elsewhere",
            Shape::TheirsEnds => "ends there",
            Shape::OursEnds => "continues where we end",
        };
        write!(f, "{vote}: {ground}, theirs {shape}")?;
        self.cut.iter().try_for_each(|cut| write!(f, " (ours is cut: {cut})"))
    }
}

/// One stop, compared.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    /// Why.
    pub reason: Reason,
    /// The place of the frame that they step out of differently.
    pub at: Place,
    /// The three stacks around it.
    pub excerpt: String,
}

/// Outcomes of walks that were led to where no stack leads.
const ASTRAY: [&str; 3] = ["no_mapping", "bad_address", "stack_not_rising"];

/// Compares a stop. `None`: all agree, on a complete stack.
pub(super) fn compare(
    ours: &Ours,
    gdb: &Theirs,
    framehop: &Theirs,
    ground: impl Fn(&Place) -> Ground,
) -> Option<Difference> {
    let (to_gdb, to_framehop) = (first_difference(ours, gdb), first_difference(ours, framehop));
    let vote = match (to_gdb, to_framehop) {
        (None, None) if ours.cut.is_none() => return None,
        (None, None) => Vote::All,
        (None, Some(_)) => Vote::FramehopDiffers,
        (Some(_), None) => Vote::GdbDiffers,
        (Some(_), Some(_)) if gdb.places == framehop.places => Vote::WeDiffer,
        (Some(_), Some(_)) => Vote::AllDiffer,
    };
    let (first, theirs) = match (to_gdb, to_framehop) {
        (Some(at), _) => (at, gdb),
        (None, at) => (at.unwrap_or(ours.places.len()), framehop),
    };
    let shape = match (ours.places.get(first), theirs.places.get(first)) {
        (Some(_), None) => Shape::TheirsEnds,
        (None, Some(_)) => Shape::OursEnds,
        _ => Shape::Elsewhere,
    };
    let at = ours.places.get(first.saturating_sub(1)).cloned().unwrap_or(Place::Memory(0));
    let reason = Reason { vote, ground: ground(&at), cut: ours.cut.clone(), shape };
    let excerpt = format!(
        "ours: {}; gdb: {}; framehop: {}",
        excerpt(&ours.places, first),
        excerpt(&gdb.places, first),
        excerpt(&framehop.places, first)
    );
    Some(Difference { reason, at, excerpt })
}

/// A few frames around the first that differs, with their numbers from the leaf.
fn excerpt(places: &[Place], first: usize) -> String {
    let frames = places.iter().enumerate().skip(first.saturating_sub(2)).take(5);
    let frames = frames.map(|(at, place)| format!("#{at} {place}"));
    format!("{} of {}", frames.collect::<Vec<_>>().join(" "), places.len())
}

impl Reason {
    /// Whether the difference is an error of ours: no stack that we call complete may stand alone where the file states
    /// a rule, nor anywhere against two that go on elsewhere together, and no walk may go astray where those two go on.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        let is_honest = self.cut.as_ref().is_some_and(|outcome| !ASTRAY.contains(&outcome.as_str()));
        let stands_alone = match self.vote {
            // They go where the overwritten frame leads.
            Vote::WeDiffer if self.ground == Ground::Overwritten => self.cut.is_some(),
            Vote::WeDiffer => self.ground == Ground::Rule || self.shape != Shape::TheirsEnds,
            Vote::AllDiffer => self.ground == Ground::Rule,
            Vote::All | Vote::FramehopDiffers | Vote::GdbDiffers => false,
        };
        stands_alone && !is_honest
    }

    /// Whether ours is complete, and gdb alone continues beyond it without a rule to go by: whatever framehop makes of the
    /// place, it doesn't go where gdb does.
    #[must_use]
    pub fn is_gdbs_guess(&self) -> bool {
        matches!(self.vote, Vote::GdbDiffers | Vote::AllDiffer)
            && self.ground == Ground::NoRule
            && self.shape == Shape::OursEnds
            && self.cut.is_none()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn file(offset: u64) -> Place {
        Place::File(Arc::from("/bin/x"), offset)
    }

    fn ours(offsets: &[u64]) -> Ours {
        Ours { places: offsets.iter().map(|offset| file(*offset)).collect(), cut: None }
    }

    fn theirs(offsets: &[u64]) -> Theirs {
        let places = offsets.iter().map(|offset| file(*offset)).collect();
        Theirs { places, are_signal_frames: vec![false; offsets.len()] }
    }

    fn vote(ours: &Ours, gdb: &[u64], framehop: &[u64]) -> Option<Vote> {
        Some(compare(ours, &theirs(gdb), &theirs(framehop), |_| Ground::Rule)?.reason.vote)
    }

    #[test]
    fn equal_stacks_agree_and_a_caller_is_equal_within_its_call() {
        assert_eq!(vote(&ours(&[10, 19, 29]), &[10, 20, 30], &[10, 20, 30]), None);
    }

    #[test]
    fn each_difference_is_laid_to_whom_it_belongs() {
        let stack = ours(&[10, 19, 29]);
        let (right, wrong) = (&[10, 20, 30], &[10, 25, 30]);
        assert_eq!(vote(&stack, wrong, right), Some(Vote::GdbDiffers));
        assert_eq!(vote(&stack, right, &[10, 20]), Some(Vote::FramehopDiffers));
        assert_eq!(vote(&stack, wrong, wrong), Some(Vote::WeDiffer));
        assert_eq!(vote(&stack, wrong, &[10]), Some(Vote::AllDiffer));
    }

    #[test]
    fn what_stands_alone_on_a_stated_rule_is_our_error_and_no_cut_stack_is() {
        let alone = compare(&ours(&[10, 24]), &theirs(&[10, 20]), &theirs(&[10, 20]), |_| Ground::Rule);
        assert!(alone.is_some_and(|difference| difference.reason.is_ours() && difference.at == file(10)));
        let guessed = compare(&ours(&[10, 24]), &theirs(&[10, 20]), &theirs(&[10]), |_| Ground::NoRule);
        assert!(guessed.is_some_and(|difference| !difference.reason.is_ours()));
        let cut = Ours { cut: Some("no_rule".to_owned()), ..ours(&[10]) };
        let cut = compare(&cut, &theirs(&[10, 20]), &theirs(&[10, 20]), |_| Ground::Rule);
        assert!(cut.is_some_and(
            |difference| !difference.reason.is_ours() && difference.reason.shape == Shape::OursEnds
        ));
    }

    #[test]
    fn two_that_follow_an_overwritten_frame_are_no_witnesses_against_a_complete_stack() {
        let compared = |cut: Option<&str>| {
            let ours = Ours { cut: cut.map(str::to_owned), ..ours(&[10, 24]) };
            let theirs = theirs(&[10, 20]);
            compare(&ours, &theirs, &theirs, |_| Ground::Overwritten).map(|found| found.reason.is_ours())
        };
        assert_eq!(compared(None), Some(false));
        assert_eq!(compared(Some("no_mapping")), Some(true), "led astray by it, too");
    }

    #[test]
    fn gdb_guesses_where_it_alone_goes_on_beyond_a_proven_end_and_no_rule_is_stated() {
        let beyond = |ours: &Ours, framehop: &[u64], ground| {
            compare(ours, &theirs(&[10, 20, 30]), &theirs(framehop), |_| ground).map(|found| found.reason)
        };
        let is_guess = |reason: Option<Reason>| reason.is_some_and(|reason| reason.is_gdbs_guess());
        let (ended, cut) = (ours(&[10]), Ours { cut: Some("no_rule".to_owned()), ..ours(&[10]) });
        assert!(is_guess(beyond(&ended, &[10], Ground::NoRule)));
        assert!(is_guess(beyond(&ended, &[10, 25], Ground::NoRule)));
        assert!(!is_guess(beyond(&ended, &[10], Ground::Rule)));
        assert!(!is_guess(beyond(&ended, &[10, 20, 30], Ground::NoRule)), "two go on together");
        assert!(!is_guess(beyond(&cut, &[10], Ground::NoRule)));
        assert!(!is_guess(beyond(&ours(&[10, 25]), &[10], Ground::NoRule)), "ours continues elsewhere");
    }

    #[test]
    fn behind_a_signal_frame_places_are_exact() {
        let gdb = Theirs { are_signal_frames: vec![false, true, false], ..theirs(&[10, 20, 30]) };
        assert_eq!(first_difference(&ours(&[10, 19, 30]), &gdb), None);
        assert_eq!(first_difference(&ours(&[10, 19, 30]), &theirs(&[10, 20, 30])), Some(2));
    }
}
