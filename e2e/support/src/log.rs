//! The service's log, which tests have it write in JSON: they read fields, not what is written for people.

use serde::Deserialize;
use serde_json::{Map, Value};

/// The option of the service for that.
pub const IN_JSON: &str = "--set=service.telemetry.logs.encoding=json";

/// One entry of a log.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Entry {
    fields: Map<String, Value>,
}

/// The entries of a log, from the first on. Lines of others, as those of a panic, are none.
pub fn entries(log: &str) -> impl DoubleEndedIterator<Item = Entry> {
    log.lines().filter_map(|line| serde_json::from_str(line).ok())
}

impl Entry {
    /// A field that is a number.
    #[must_use]
    pub fn number(&self, field: &str) -> Option<u64> {
        self.fields.get(field)?.as_u64()
    }

    /// The counts in a field of `name=number` words.
    #[must_use]
    pub fn counts(&self, field: &str) -> Option<Vec<(&str, u64)>> {
        let words = self.fields.get(field)?.as_str()?.split_ascii_whitespace();
        Some(
            words
                .filter_map(|word| word.split_once('='))
                .filter_map(|(name, count)| Some((name, count.parse().ok()?)))
                .collect(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_has_numbers_and_counts() {
        let log = "thread 'x' panicked\n\
            {\"timestamp\":\"t\",\"level\":\"INFO\",\"fields\":{\"message\":\"m\",\"events\":7,\"counters\":\"a=1 b=20\"}}\n";
        let entries: Vec<_> = entries(log).collect();
        let [entry] = &entries[..] else { panic!("{entries:?}") };
        assert_eq!(
            (entry.number("events"), entry.number("counters"), entry.number("none")),
            (Some(7), None, None)
        );
        assert_eq!(entry.counts("counters"), Some(vec![("a", 1), ("b", 20)]));
        assert_eq!(entry.counts("events"), None);
    }
}
