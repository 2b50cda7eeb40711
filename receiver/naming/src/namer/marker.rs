//! Why stacks lack their outermost frames: the outcomes of walks as truncations.

use sidewinder_bpf::Outcome;
use sidewinder_profile::Truncation;

/// The reason of a sample whose stack never arrived.
pub const STACK_MISSING: &str = "stack_body_missing";
/// The readable form of [`STACK_MISSING`].
pub const STACK_MISSING_SUMMARY: &str = "stack not received";

/// Why the outermost frames of a stack are missing; `None` if it is complete.
pub(crate) fn truncation(outcome: Outcome) -> Option<Truncation> {
    (outcome != Outcome::Complete).then(|| Truncation {
        reason: outcome.label().into(),
        summary: outcome.summary().into(),
        is_loss: outcome.is_loss(),
    })
}

/// Why all frames of a stack are missing that never arrived.
pub(crate) fn missing_stack() -> Truncation {
    Truncation { reason: STACK_MISSING.into(), summary: STACK_MISSING_SUMMARY.into(), is_loss: true }
}

/// The truncation with this reason, as OTLP states it. A reason of another version has no other words.
pub fn truncation_with_reason(reason: &str) -> Truncation {
    let known = truncations().find(|known| *known.reason == *reason);
    known.unwrap_or_else(|| Truncation { reason: reason.into(), summary: reason.into(), is_loss: true })
}

/// The truncation with this summary, from a format that has nothing but words; `None` if it is not one of this version.
pub fn truncation_with_summary(summary: &str) -> Option<Truncation> {
    truncations().find(|known| *known.summary == *summary)
}

fn truncations() -> impl Iterator<Item = Truncation> {
    Outcome::ALL.iter().copied().filter_map(truncation).chain([missing_stack()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_truncation_is_found_by_its_reason_and_by_its_words() {
        for known in truncations() {
            assert!(!known.to_string().contains('_'), "{known}");
            assert_eq!(truncation_with_reason(&known.reason), known);
            assert_eq!(truncation_with_summary(&known.summary), Some(known));
        }
        let no_rule = truncation_with_reason("no_rule");
        assert_eq!(no_rule.to_string(), "[truncated: no unwind information]");
        assert_eq!(no_rule.wire_name(), "[truncated: no_rule]");
        assert_eq!(
            truncation_with_reason("of_another_version").wire_name(),
            "[truncated: of_another_version]"
        );
        assert_eq!(truncation_with_summary("main"), None);
    }
}
