//! What threads publish besides the span that they are in: of the keys that the configuration allows, no more values of
//! each than a backend can bear.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use sidewinder_bpf::ThreadContext;

/// Different values of one key in one run. What comes beyond is [`OTHER`].
const VALUES_MAX: usize = 256;
/// The value in place of those that are too many.
const OTHER: &str = "[other]";

/// Attributes of an event, by key.
pub(crate) type Labels = Arc<[(Arc<str>, Arc<str>)]>;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Allowed {
    values: HashMap<Arc<str>, HashSet<Arc<str>>>,
    other: Arc<str>,
    /// The last set that was made: most events have that of the one before.
    last: Labels,
}

impl Allowed {
    pub(super) fn new(keys: &[String]) -> Self {
        let values = keys.iter().map(|key| (Arc::from(key.as_str()), HashSet::new())).collect();
        Self { values, other: OTHER.into(), last: Arc::default() }
    }

    /// Those attributes of a context whose keys are allowed, sorted, given the keys of all by their numbers.
    pub(super) fn labels(&mut self, context: &ThreadContext, keys: &[Box<str>]) -> Labels {
        let mut labels: Vec<(Arc<str>, Arc<str>)> = Vec::new();
        for (number, text) in context.attributes() {
            let Some(key) = keys.get(usize::from(number)) else { continue };
            let Some((key, _)) = self.values.get_key_value(&**key) else { continue };
            let key = Arc::clone(key);
            let value = self.value(&key, &String::from_utf8_lossy(text));
            match labels.iter_mut().find(|(held, _)| *held == key) {
                Some((_, held)) => *held = value,
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

    fn texts(labels: &Labels) -> Vec<(&str, &str)> {
        labels.iter().map(|(key, value)| (&**key, &**value)).collect()
    }

    #[test]
    fn keys_are_named_by_number_and_only_those_that_are_allowed() {
        let mut allowed = Allowed::new(&["user".to_owned(), "http.route".to_owned()]);
        let keys: Vec<Box<str>> = ["secret", "http.route", "user"].map(Box::from).to_vec();
        let labels = |allowed: &mut Allowed, attributes: &[u8]| {
            allowed.labels(&ThreadContext::new([1; 16], [1; 8], attributes), &keys)
        };
        let both = labels(&mut allowed, b"\x00\x01x\x02\x01a\x01\x02/b\x09\x01c");
        assert_eq!(texts(&both), [("http.route", "/b"), ("user", "a")]);
        let twice = labels(&mut allowed, b"\x02\x01a\x02\x01b");
        assert_eq!(texts(&twice), [("user", "b")], "the last one counts");
        let no_text = labels(&mut allowed, b"\x02\x02\xff\xfe");
        assert_eq!(texts(&no_text), [("user", "\u{fffd}\u{fffd}")]);
        assert!(labels(&mut allowed, b"\x00\x01x").is_empty());
        assert!(
            Allowed::new(&[]).labels(&ThreadContext::new([1; 16], [1; 8], b"\x02\x01a"), &keys).is_empty()
        );
    }

    #[test]
    fn a_key_has_no_more_values_than_it_may() {
        let mut allowed = Allowed::new(&["user".to_owned()]);
        let keys = [Box::from("user")];
        let mut seen = HashSet::new();
        for number in 0..10_000_u32 {
            let text = number.to_string();
            let attributes = [&[0, text.len() as u8], text.as_bytes()].concat();
            let labels = allowed.labels(&ThreadContext::new([1; 16], [1; 8], &attributes), &keys);
            seen.insert(labels[0].1.to_string());
        }
        assert_eq!(seen.len(), VALUES_MAX + 1);
        assert!(seen.contains(OTHER) && seen.contains("0"));
    }
}
