//! What many stops came to: who agreed how often, and the differences by reason.

use std::collections::BTreeMap;
use std::fmt;

use super::compare::{Difference, Ours, Reason, Vote};

/// See the [module](self).
#[derive(Clone, Debug, Default)]
pub struct Comparison {
    /// Stops that were compared.
    pub compared: u64,
    /// Stops of which there is no sample.
    pub unsampled: u64,
    /// All frames of the stops at which all agree.
    pub frames: u64,
    reasons: BTreeMap<Reason, Differences>,
}

/// Those of one reason.
#[derive(Clone, Debug, Default)]
struct Differences {
    /// How many stops there were at each place.
    places: BTreeMap<String, u64>,
    /// The first of them.
    example: String,
}

impl Differences {
    fn stops(&self) -> u64 {
        self.places.values().sum()
    }
}

impl Comparison {
    /// Adds a stop.
    pub fn add(&mut self, ours: &Ours, difference: Option<Difference>) {
        self.compared += 1;
        let Some(Difference { reason, at, excerpt }) = difference else {
            self.frames += ours.places.len() as u64;
            return;
        };
        let differences = self.reasons.entry(reason).or_default();
        *differences.places.entry(at.to_string()).or_default() += 1;
        if differences.example.is_empty() {
            differences.example = excerpt;
        }
    }

    /// Adds what others came to.
    pub fn merge(&mut self, other: Self) {
        self.compared += other.compared;
        self.unsampled += other.unsampled;
        self.frames += other.frames;
        for (reason, Differences { places, example }) in other.reasons {
            let all = self.reasons.entry(reason).or_default();
            places.into_iter().for_each(|(place, stops)| *all.places.entry(place).or_default() += stops);
            if all.example.is_empty() {
                all.example = example;
            }
        }
    }

    /// Stops at which all three agree on a complete stack.
    #[must_use]
    pub fn agreed(&self) -> u64 {
        self.compared - self.of(|_| true)
    }

    /// Stops at which our stack is that of gdb, frame by frame.
    #[must_use]
    pub fn equal_to_gdb(&self) -> u64 {
        self.agreed() + self.of(|reason| reason.vote == Vote::FramehopDiffers && reason.cut.is_none())
    }

    /// Stops at which our stack is cut, and says so.
    #[must_use]
    pub fn cut(&self) -> u64 {
        self.of(|reason| reason.cut.is_some())
    }

    /// Stops at which gdb went on beyond our proven end where code states no rule: it guesses there, as behind Go's
    /// `mcall`, which has left the stack that gdb then reads. How often a program is stopped there is its scheduler's
    /// affair.
    #[must_use]
    pub fn guessed_by_gdb(&self) -> u64 {
        self.of(Reason::is_gdbs_guess)
    }

    /// Stops at which the error is ours.
    #[must_use]
    pub fn wrong(&self) -> u64 {
        self.of(Reason::is_ours)
    }

    fn of(&self, is_wanted: impl Fn(&Reason) -> bool) -> u64 {
        let wanted = self.reasons.iter().filter(|(reason, _)| is_wanted(reason));
        wanted.map(|(_, differences)| differences.stops()).sum()
    }
}

/// Places that are named for each reason.
const PLACES: usize = 4;

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} stops ({} more without a sample): all three agree at {}, in {} frames; we are equal to gdb at {}, cut \
             at {}, wrong at {}",
            self.compared,
            self.unsampled,
            self.agreed(),
            self.frames,
            self.equal_to_gdb(),
            self.cut(),
            self.wrong()
        )?;
        for (reason, differences) in &self.reasons {
            writeln!(f, "{:>6}  {reason}", differences.stops())?;
            let mut places: Vec<_> = differences.places.iter().collect();
            places.sort_by_key(|(_, stops)| std::cmp::Reverse(**stops));
            for (place, stops) in places.iter().take(PLACES) {
                writeln!(f, "{stops:>12} x {place}")?;
            }
            writeln!(f, "          {}", differences.example)?;
        }
        Ok(())
    }
}
