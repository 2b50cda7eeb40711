//! Probes that users place in programs and at tracepoints, as kinds of profile.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use crate::value_type::{ValueType, unit};

/// A probe that is sampled. Its profile has its name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SampledProbe {
    name: &'static str,
    unit: &'static str,
}

/// The longest name and the longest unit, in bytes; the rest is cut off.
const TEXT_BYTES_MAX: usize = 96;

impl SampledProbe {
    /// How many probes one run samples at the most.
    pub const SAMPLED_MAX: usize = 8;
    /// The maximum number of them at tracepoints: each has its own eBPF program.
    pub const TRACEPOINTS_MAX: usize = 4;

    /// A probe with the name of its profile; with the unit of its values, or without one if hits are counted.
    ///
    /// Names live as long as this process, each once: a configuration has few.
    #[must_use]
    pub fn new(name: &str, unit: Option<&str>) -> Self {
        Self { name: interned(name), unit: unit.map_or(unit::COUNT, interned) }
    }

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.name
    }

    pub(crate) const fn value_type(self) -> ValueType {
        ValueType { name: self.name, unit: self.unit, display: self.name }
    }
}

/// The one copy of a text that lives as long as this process.
fn interned(text: &str) -> &'static str {
    static TEXTS: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let end = (0..=text.len().min(TEXT_BYTES_MAX)).rev().find(|end| text.is_char_boundary(*end));
    let text = &text[..end.unwrap_or(0)];
    let mut texts = TEXTS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = texts.get(text) {
        return known;
    }
    let kept: &'static str = String::leak(text.to_owned());
    texts.insert(kept);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kind, KindSet};

    #[test]
    fn a_name_is_kept_once_and_cut_at_a_letter() {
        let probe = SampledProbe::new("malloc", None);
        assert_eq!(probe, SampledProbe::new(&String::from("malloc"), None));
        assert!(std::ptr::eq(probe.name(), SampledProbe::new("malloc", Some("bytes")).name()));
        let long = "\u{e4}".repeat(TEXT_BYTES_MAX);
        assert_eq!(SampledProbe::new(&long, None).name().len(), TEXT_BYTES_MAX);
    }

    #[test]
    fn probes_have_the_order_in_which_they_are_given_behind_all_other_kinds() {
        let [first, second] = ["z", "a"].map(|name| SampledProbe::new(name, None));
        let kinds = KindSet::new(Kind::Probe(first)).with(Kind::OffCpu).with(Kind::Probe(second));
        assert_eq!(kinds.probes().collect::<Vec<_>>(), [first, second]);
        assert_eq!(kinds.iter().next(), Some(Kind::OffCpu));
    }
}
