//! Decides from addresses alone whether stacks are right.
//!
//! A stack is right when its outermost frame lies where a program or a thread starts and the functions on the
//! way stand in the order of the known chain. Both are read from the binaries ([`Elf`]), never from a mark or
//! a name that the profiler set; those are judged too, against the same binaries.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use sidewinder_e2e_support::received::in_user_mode;
use sidewinder_otlp::FrameType;
use sidewinder_otlp::decode::{DecodedEvent, DecodedFrame};

use crate::elf::Elf;

/// The functions that a program's stacks go through, outermost first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Chain {
    /// Each calls the next, with nothing in between.
    Contiguous(Vec<String>),
    /// They first occur in this order; others may stand between them and each may occur again.
    InOrder(Vec<String>),
}

impl Chain {
    /// A chain with gaps.
    #[must_use]
    pub fn in_order(names: &[&str]) -> Self {
        Self::InOrder(names.iter().map(ToString::to_string).collect())
    }
}

/// How many events there were, and of how many the stack is right in which respect.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Verdict {
    /// Events that interrupted the program in user mode.
    pub user_events: usize,
    /// Events that interrupted the kernel on the program's behalf: not judged.
    pub kernel_events: usize,
    /// Of the user-mode events: reach the start, and contradict the chain nowhere.
    pub right: usize,
    /// Contain the chain to its end, whether or not they reach the start.
    pub whole_chain: usize,
    /// Frames for which the binary has a name and the profiler gave none, or another.
    pub misnamed_frames: usize,
    /// Frames for which the binary has a name.
    pub nameable_frames: usize,
    /// The first few stacks that are not right, outermost first, with the profiler's own outcome.
    pub examples: Vec<String>,
}

impl Verdict {
    /// The share of user-mode events whose stack is right.
    #[must_use]
    pub fn right_share(&self) -> f64 {
        share(self.right, self.user_events)
    }

    /// The share of user-mode events whose stack contains the whole chain.
    #[must_use]
    pub fn whole_chain_share(&self) -> f64 {
        share(self.whole_chain, self.user_events)
    }
}

fn share(part: usize, whole: usize) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} user-mode events (and {} in the kernel): {} right ({:.2}%), {} with the whole chain; {} of {} \
             names wrong",
            self.user_events,
            self.kernel_events,
            self.right,
            100.0 * self.right_share(),
            self.whole_chain,
            self.misnamed_frames,
            self.nameable_frames
        )?;
        self.examples.iter().try_for_each(|example| writeln!(f, "  {example}"))
    }
}

/// Reads binaries once and judges stacks.
#[derive(Debug, Default)]
pub struct Judge {
    binaries: HashMap<String, Option<Elf>>,
}

/// A frame in the terms of its binary.
pub(crate) struct Place<'a> {
    pub(crate) binary: Option<&'a Elf>,
    /// The stated address; that of a caller lies within its call, not behind it, as OTLP has it.
    pub(crate) svma: u64,
    pub(crate) frame: &'a DecodedFrame,
}

impl Place<'_> {
    pub(crate) fn names(&self) -> &[String] {
        self.binary.map_or(&[], |binary| binary.names_at(self.svma))
    }

    fn is_named(&self, name: &str) -> bool {
        self.is_any_of(&[name])
    }

    pub(crate) fn is_any_of(&self, names: &[&str]) -> bool {
        self.names().iter().any(|candidate| names.contains(&candidate.as_str()))
    }

    pub(crate) fn is_start(&self) -> bool {
        self.binary.is_some_and(|binary| binary.is_start(self.svma))
    }

    /// Whether the profiler's name is one of the binary's; mangled names only have to be there.
    fn is_well_named(&self) -> bool {
        let Some(line) = self.frame.lines.last() else { return false };
        let is_mangled = |name: &str| name.starts_with("_Z") || name.starts_with("_R");
        self.names().iter().any(|name| {
            **name == *line.system_name
                || **name == *line.function
                || (is_mangled(name) && !line.function.is_empty())
        })
    }
}

const EXAMPLES: usize = 5;

impl Judge {
    /// Judges all of `events` against `chain`.
    pub fn verdict<'a>(&mut self, events: impl Iterator<Item = DecodedEvent<'a>>, chain: &Chain) -> Verdict {
        let mut verdict = Verdict::default();
        for event in events {
            if !in_user_mode(&event) {
                verdict.kernel_events += 1;
                continue;
            }
            verdict.user_events += 1;
            let places = self.places(&event.sample.stack);
            for place in places.iter().filter(|place| !place.names().is_empty()) {
                verdict.nameable_frames += 1;
                verdict.misnamed_frames += usize::from(!place.is_well_named());
            }
            let progress = progress(&places, chain);
            verdict.whole_chain += usize::from(progress == Some(true));
            if progress.is_some() && places.first().is_some_and(Place::is_start) {
                verdict.right += 1;
            } else if verdict.examples.len() < EXAMPLES {
                let outcome = event.sample.outcome().unwrap_or("complete");
                verdict.examples.push(format!("{outcome}: {}", describe(&places)));
            }
        }
        verdict
    }

    /// Whether a function of that name is on the stack.
    pub fn passes_through(&mut self, event: &DecodedEvent<'_>, function: &str) -> bool {
        self.places(&event.sample.stack).iter().any(|place| place.is_named(function))
    }

    /// The stack in words, outermost first.
    #[must_use]
    pub fn describe(&mut self, event: &DecodedEvent<'_>) -> String {
        describe(&self.places(&event.sample.stack))
    }

    /// The stack in words, if it contradicts the chain.
    #[must_use]
    pub fn strays(&mut self, stack: &[Arc<DecodedFrame>], chain: &Chain) -> Option<String> {
        let places = self.places(stack);
        progress(&places, chain).is_none().then(|| format!("against the chain: {}", describe(&places)))
    }

    /// The frames of a stack but for the kernel's, outermost first.
    pub(crate) fn places<'a>(&'a mut self, stack: &'a [Arc<DecodedFrame>]) -> Vec<Place<'a>> {
        for frame in stack {
            if let Some(mapping) = &frame.mapping
                && !self.binaries.contains_key(&*mapping.filename)
            {
                let binary = Elf::read(Path::new(&*mapping.filename)).ok();
                self.binaries.insert(mapping.filename.to_string(), binary);
            }
        }
        let mut places: Vec<Place<'a>> = Vec::with_capacity(stack.len());
        for frame in stack.iter().filter(|frame| frame.frame_type() != Some(FrameType::Kernel)) {
            let binary =
                frame.mapping.as_ref().and_then(|mapping| self.binaries.get(&*mapping.filename)?.as_ref());
            let svma =
                binary.zip(frame.file_offset()).and_then(|(elf, offset)| elf.svma_of_file_offset(offset));
            places.push(Place { binary, svma: svma.unwrap_or_default(), frame });
        }
        places.reverse();
        places
    }
}

/// How far a stack (outermost first) follows the chain: `None` where it contradicts it, else whether it contains
/// the chain to its end.
fn progress(places: &[Place<'_>], chain: &Chain) -> Option<bool> {
    match chain {
        Chain::Contiguous(names) => {
            let Some(first) = names.first() else { return Some(true) };
            let Some(start) = places.iter().position(|place| place.is_named(first)) else {
                // Interrupted before the chain begins or after it ended.
                let astray = places.iter().any(|place| names.iter().any(|name| place.is_named(name)));
                return (!astray).then_some(false);
            };
            let on_chain =
                places.iter().skip(start).zip(names).take_while(|(place, name)| place.is_named(name)).count();
            let beyond = places.get(start + on_chain..).unwrap_or_default();
            let astray = beyond.iter().any(|place| names.iter().any(|name| place.is_named(name)));
            (!astray).then_some(on_chain == names.len())
        }
        Chain::InOrder(names) => {
            let first_occurrences: Vec<Option<usize>> =
                names.iter().map(|name| places.iter().position(|place| place.is_named(name))).collect();
            let reached = first_occurrences.iter().take_while(|at| at.is_some()).count();
            let is_prefix = first_occurrences.iter().skip(reached).all(Option::is_none);
            (is_prefix && first_occurrences.is_sorted_by(|inner, outer| outer.is_none() || inner < outer))
                .then_some(reached == names.len())
        }
    }
}

/// The functions of a stack, as far as their binaries name them.
pub(crate) fn describe(places: &[Place<'_>]) -> String {
    let describe_one = |place: &Place<'_>| match place.names().first() {
        Some(name) => name.clone(),
        None => {
            let file = place.frame.mapping.as_ref().map_or("?", |mapping| &*mapping.filename);
            let said = place.frame.function().unwrap_or("");
            format!("{}+{:#x}{said}", file.rsplit('/').next().unwrap_or(file), place.svma)
        }
    };
    const EACH_END: usize = 12;
    let described: Vec<String> = places.iter().map(describe_one).collect();
    if described.len() <= 2 * EACH_END {
        return described.join(" > ");
    }
    let (head, tail) = (&described[..EACH_END], &described[described.len() - EACH_END..]);
    format!("{} > ({} more) > {}", head.join(" > "), described.len() - 2 * EACH_END, tail.join(" > "))
}
