//! The labels of events: the attributes that threads publish besides their span. Only the keys that the configuration allows
//! are kept, with a bounded number of values for each, since backends index them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use hex::FromHex as _;
use sidewinder_bpf::{LabelSet, SampleRecord, ThreadContext};
use sidewinder_config::TraceContext;
use sidewinder_message::Labels;
use sidewinder_profile::Link;

/// The maximum number of values of one key in a run. Further values become [`OTHER`].
const VALUES_MAX: usize = 256;
/// Replaces the values beyond [`VALUES_MAX`].
const OTHER: &str = "[other]";

/// Selects the labels that are kept.
#[derive(Debug)]
pub(super) struct LabelFilter {
    values: HashMap<Arc<str>, HashSet<Arc<str>>>,
    trace_id_labels: Vec<String>,
    span_id_labels: Vec<String>,
    other: Arc<str>,
    /// The labels of the last event. Most events have the same labels as the one before.
    last: Labels,
}

impl LabelFilter {
    pub(super) fn new(options: &TraceContext) -> Self {
        let values = options.attributes.iter().map(|key| (Arc::from(key.as_str()), HashSet::new())).collect();
        Self {
            values,
            trace_id_labels: options.trace_id_labels.clone(),
            span_id_labels: options.span_id_labels.clone(),
            other: OTHER.into(),
            last: Arc::default(),
        }
    }

    /// The span and the labels that the thread of a sample had published. `keys`: see [`Self::labels_from_context`].
    pub(super) fn span_and_labels(
        &mut self,
        sample: &SampleRecord,
        keys: &[Box<str>],
    ) -> (Option<Link>, Labels) {
        match (sample.context.as_deref(), &sample.labels) {
            (Some(context), _) => {
                let span = Link { trace_id: context.trace_id, span_id: context.span_id };
                (Some(span), self.labels_from_context(context, keys))
            }
            (None, Some(labels)) => (self.span_from_labels(labels), self.labels_from_set(labels)),
            (None, None) => (None, Labels::default()),
        }
    }

    /// The allowed attributes of a context, sorted by key. `keys` are the names of all keys, by index.
    fn labels_from_context(&mut self, context: &ThreadContext, keys: &[Box<str>]) -> Labels {
        self.filter(
            context.attributes().filter_map(|(index, text)| Some((&**keys.get(usize::from(index))?, text))),
        )
    }

    /// The allowed labels of a label set, sorted by key.
    fn labels_from_set(&mut self, labels: &LabelSet) -> Labels {
        // In a label set the first label with a key is the valid one, but `filter` keeps the last.
        self.filter(
            labels.iter().rev().filter_map(|(key, text)| Some((std::str::from_utf8(key).ok()?, text))),
        )
    }

    /// The span that a label set contains.
    fn span_from_labels(&self, labels: &LabelSet) -> Option<Link> {
        let value_of = |names: &[String]| {
            names.iter().find_map(|name| {
                labels.iter().find(|(key, _)| *key == name.as_bytes()).map(|(_, value)| value)
            })
        };
        let trace_id = <[u8; 16]>::from_hex(value_of(&self.trace_id_labels)?).ok()?;
        let span_id = <[u8; 8]>::from_hex(value_of(&self.span_id_labels)?).ok()?;
        (trace_id != [0; 16] && span_id != [0; 8]).then_some(Link { trace_id, span_id })
    }

    fn filter<'text>(&mut self, candidates: impl Iterator<Item = (&'text str, &'text [u8])>) -> Labels {
        let mut labels: Vec<(Arc<str>, Arc<str>)> = Vec::new();
        for (key, text) in candidates {
            let Some((key, _)) = self.values.get_key_value(key) else { continue };
            let key = Arc::clone(key);
            let value = self.value(&key, &String::from_utf8_lossy(text));
            match labels.iter_mut().find(|(existing, _)| *existing == key) {
                Some((_, existing)) => *existing = value,
                None => labels.push((key, value)),
            }
        }
        labels.sort();
        if *self.last != *labels {
            self.last = labels.into();
        }
        Arc::clone(&self.last)
    }

    fn value(&mut self, key: &str, text: &str) -> Arc<str> {
        let Some(values) = self.values.get_mut(key) else { return Arc::clone(&self.other) };
        match values.get(text) {
            Some(value) => Arc::clone(value),
            None if values.len() < VALUES_MAX => {
                let value: Arc<str> = text.into();
                values.insert(Arc::clone(&value));
                value
            }
            None => Arc::clone(&self.other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter_for_keys(keys: &[&str]) -> LabelFilter {
        let attributes = keys.iter().map(|key| (*key).to_owned()).collect();
        LabelFilter::new(&TraceContext { attributes, ..TraceContext::default() })
    }

    fn texts(labels: &Labels) -> Vec<(&str, &str)> {
        labels.iter().map(|(key, value)| (&**key, &**value)).collect()
    }

    #[test]
    fn only_allowed_keys_are_kept_and_are_looked_up_by_index() {
        let mut filter = filter_for_keys(&["user", "http.route"]);
        let keys: Vec<Box<str>> = ["secret", "http.route", "user"].map(Box::from).to_vec();
        let labels = |filter: &mut LabelFilter, attributes: &[u8]| {
            filter.labels_from_context(&ThreadContext::new([1; 16], [1; 8], attributes), &keys)
        };
        let both = labels(&mut filter, b"\x00\x01x\x02\x01a\x01\x02/b\x09\x01c");
        assert_eq!(texts(&both), [("http.route", "/b"), ("user", "a")]);
        let repeated = labels(&mut filter, b"\x02\x01a\x02\x01b");
        assert_eq!(texts(&repeated), [("user", "b")], "the last one is kept");
        let not_utf8 = labels(&mut filter, b"\x02\x02\xff\xfe");
        assert_eq!(texts(&not_utf8), [("user", "\u{fffd}\u{fffd}")]);
        assert!(labels(&mut filter, b"\x00\x01x").is_empty());
        assert!(
            filter_for_keys(&[])
                .labels_from_context(&ThreadContext::new([1; 16], [1; 8], b"\x02\x01a"), &keys)
                .is_empty()
        );
    }

    #[test]
    fn the_values_of_a_key_are_bounded() {
        let mut filter = filter_for_keys(&["user"]);
        let keys = [Box::from("user")];
        let mut seen = HashSet::new();
        for number in 0..10_000_u32 {
            let text = number.to_string();
            let attributes = [&[0, text.len() as u8], text.as_bytes()].concat();
            let labels = filter.labels_from_context(&ThreadContext::new([1; 16], [1; 8], &attributes), &keys);
            seen.insert(labels[0].1.to_string());
        }
        assert_eq!(seen.len(), VALUES_MAX + 1);
        assert!(seen.contains(OTHER) && seen.contains("0"));
    }

    #[test]
    fn the_first_label_of_a_key_in_a_label_set_is_kept() {
        let labels = LabelSet::new([(&b"user"[..], &b"a"[..]), (b"user", b"b"), (b"secret", b"c")]);
        assert_eq!(texts(&filter_for_keys(&["user"]).labels_from_set(&labels)), [("user", "a")]);
    }

    #[test]
    fn the_span_of_a_goroutine_is_found_in_the_labels_that_sdks_use() {
        let span = |labels: &[(&str, &str)]| {
            let labels = labels.iter().map(|(key, value)| (key.as_bytes(), value.as_bytes()));
            filter_for_keys(&[])
                .span_from_labels(&LabelSet::new(labels))
                .map(|link| (link.trace_id[15], link.span_id))
        };
        let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
        let found = Some((0x36, [0, 0xf0, 0x67, 0xaa, 0x0b, 0xa9, 0x02, 0xb7]));
        assert_eq!(span(&[("trace_id", trace), ("span_id", "00f067aa0ba902b7")]), found);
        assert_eq!(span(&[("other", "x"), ("span id", "00F067AA0BA902B7"), ("trace id", trace)]), found);
        assert_eq!(span(&[("span_id", "00f067aa0ba902b7")]), None, "no trace ID");
        assert_eq!(span(&[("trace_id", trace), ("span_id", "67667974324578999")]), None, "not hexadecimal");
        assert_eq!(span(&[("trace_id", trace), ("span_id", "0000000000000000")]), None);
    }
}
