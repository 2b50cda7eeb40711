//! The closed list of outcomes.

include!(concat!(env!("OUT_DIR"), "/outcome.rs"));

struct Words {
    label: &'static str,
    is_loss: bool,
    summary: &'static str,
    meaning: &'static str,
}

impl Outcome {
    /// The outcome with this value; `None` if it is unknown, from newer programs.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// Its name in metrics and OTLP, in snake case. Users see the [`summary`](Self::summary).
    #[must_use]
    pub fn label(self) -> &'static str {
        Self::WORDS[self as usize].label
    }

    /// Whether part or all of a stack is missing that a walk could have found.
    #[must_use]
    pub fn is_loss(self) -> bool {
        Self::WORDS[self as usize].is_loss
    }

    /// What happened, in a few words, for users.
    #[must_use]
    pub fn summary(self) -> &'static str {
        Self::WORDS[self as usize].summary
    }

    /// What happened, in a sentence, for users.
    #[must_use]
    pub fn meaning(self) -> &'static str {
        Self::WORDS[self as usize].meaning
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::intf;

    #[test]
    fn the_list_has_the_numbers_that_the_programs_use() {
        assert_eq!(Outcome::ALL.len(), intf::SW_OUTCOME_COUNT as usize);
        assert_eq!(Outcome::Complete as u32, intf::SW_OUTCOME_COMPLETE);
        assert_eq!(Outcome::RingFull as u32, intf::SW_OUTCOME_RING_FULL);
        assert_eq!(Outcome::from_number(intf::SW_OUTCOME_COUNT as u8), None);
    }

    #[test]
    fn each_outcome_has_words() {
        for (number, outcome) in Outcome::ALL.iter().enumerate() {
            assert_eq!(Outcome::from_number(number as u8), Some(*outcome));
            assert!(outcome.label().bytes().all(|b| b.is_ascii_lowercase() || b == b'_'));
            assert!(outcome.meaning().len() > 10);
            assert!((5..=30).contains(&outcome.summary().len()) && !outcome.summary().contains('_'));
        }
        assert_eq!(Outcome::PageAbsent.label(), "page_absent");
        assert!(Outcome::PageAbsent.is_loss() && !Outcome::Complete.is_loss());
    }

    #[test]
    fn there_is_a_counter_for_each() {
        assert!(Outcome::ALL.len() <= intf::sw_cpu::default().outcomes[0].len());
        assert!(Outcome::ALL.len() <= intf::sw_slot_head::default().outcomes[0].len());
    }
}
