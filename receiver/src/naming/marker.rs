//! Names of frames that stand for the missing rest of a stack: as in OTLP, and in words.

use sidewinder_bpf::Outcome;

/// The name of the outermost frame of an incomplete stack, as in OTLP: `[truncated: no_rule]`. `None` if the stack is
/// complete.
pub(crate) fn truncation_marker(outcome: Outcome) -> Option<String> {
    match outcome {
        Outcome::Complete => None,
        loss if loss.is_loss() => Some(format!("[truncated: {}]", loss.label())),
        other => Some(format!("[{}]", other.label())),
    }
}

/// What a location in OTLP says of its names: whether they are words of ours, if any of them looks so.
pub(crate) fn marker_attribute<'a>(
    is_marker: bool,
    names: impl IntoIterator<Item = &'a str>,
) -> Option<bool> {
    names.into_iter().any(|name| name.starts_with('[')).then_some(is_marker)
}

/// The reason in the marker of a sample whose stack never arrived.
pub(crate) const STACK_MISSING: &str = "stack_body_missing";
/// The readable form of [`STACK_MISSING`].
pub(crate) const STACK_MISSING_SUMMARY: &str = "stack not received";

/// The readable form of a [`truncation_marker`]: `[truncated: no unwind information]`. `None` if it is not a marker of this
/// version.
pub(crate) fn marker_summary(marker: &str) -> Option<String> {
    map_marker_reason(marker, |text| {
        marker_reasons().find(|(label, _)| *label == text).map(|(_, summary)| summary)
    })
}

/// The [`truncation_marker`] with this readable form.
pub(crate) fn marker_of_summary(summary: &str) -> Option<String> {
    map_marker_reason(summary, |text| {
        marker_reasons().find(|(_, summary)| *summary == text).map(|(label, _)| label)
    })
}

/// The reasons in markers: their labels in OTLP, and their readable forms.
fn marker_reasons() -> impl Iterator<Item = (&'static str, &'static str)> {
    let outcomes = Outcome::ALL.iter().map(|outcome| (outcome.label(), outcome.summary()));
    outcomes.chain([(STACK_MISSING, STACK_MISSING_SUMMARY)])
}

fn map_marker_reason(marker: &str, rename: impl Fn(&str) -> Option<&'static str>) -> Option<String> {
    let text = marker.strip_prefix('[')?.strip_suffix(']')?;
    Some(match text.strip_prefix("truncated: ") {
        Some(reason) => format!("[truncated: {}]", rename(reason)?),
        None => format!("[{}]", rename(text)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_marker_has_a_readable_form_that_converts_back() {
        for outcome in Outcome::ALL.iter().filter(|outcome| **outcome != Outcome::Complete) {
            let marker = truncation_marker(*outcome).unwrap();
            let summary = marker_summary(&marker).unwrap();
            assert!(!summary.contains('_'), "{summary}");
            assert_eq!(marker_of_summary(&summary), Some(marker));
        }
        let summary = marker_summary("[truncated: no_rule]");
        assert_eq!(summary.as_deref(), Some("[truncated: no unwind information]"));
        assert_eq!(marker_summary("[truncated: of_another_version]"), None);
        assert_eq!(marker_summary("main"), None);
    }
}
