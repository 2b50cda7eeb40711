//! Interning of entries: the many rows of a file have few distinct entries.

use std::hash::{Hash as _, Hasher};

use indexmap::IndexSet;

use crate::rule::{EndReason, Entry, UnsupportedReason};

/// The index of an interned entry.
pub type EntryId = u16;

/// The distinct entries of a table. The first is always [`Entry::NO_INFORMATION`].
#[derive(Clone, Debug)]
pub struct EntryInterner {
    /// By id.
    entries: IndexSet<Entry>,
    /// Recently interned entries, each in the slot that [`SlotHasher`] selects. Consecutive functions have the same
    /// entries, and hashing for `entries`, which is safe against malicious input, would take a fifth of the time.
    recent: Box<[(Entry, EntryId)]>,
}

impl EntryInterner {
    /// The id of [`Entry::NO_INFORMATION`].
    pub const NO_INFORMATION: EntryId = 0;
    const TOO_MANY: EntryId = 1;
    /// Stands for any entry that takes precedence over other sources.
    pub const SOMETHING: EntryId = Self::TOO_MANY;
    const RECENT_SLOTS: usize = 256;

    /// Creates an interner with the two entries that every table may need.
    #[must_use]
    pub fn new() -> Self {
        let entries =
            IndexSet::from([Entry::NO_INFORMATION, Entry::unsupported(UnsupportedReason::TooManyRules)]);
        let recent = vec![(Entry::NO_INFORMATION, Self::NO_INFORMATION); Self::RECENT_SLOTS];
        Self { entries, recent: recent.into_boxed_slice() }
    }

    /// The id of `entry`; if there are too many, the id of an entry with that reason.
    pub fn intern(&mut self, entry: Entry) -> EntryId {
        let slot = SlotHasher::slot(&entry, self.recent.len());
        if let Some((recent, id)) = self.recent.get(slot)
            && *recent == entry
        {
            return *id;
        }
        let id = self.intern_uncached(entry);
        if let Some(recent) = self.recent.get_mut(slot) {
            *recent = (entry, id);
        }
        id
    }

    fn intern_uncached(&mut self, entry: Entry) -> EntryId {
        let has_room = EntryId::try_from(self.entries.len()).is_ok();
        let id = if has_room {
            Some(self.entries.insert_full(entry).0)
        } else {
            self.entries.get_index_of(&entry)
        };
        id.map_or(Self::TOO_MANY, |id| id as EntryId)
    }

    /// The entry with this id.
    #[must_use]
    pub fn get(&self, id: EntryId) -> Entry {
        self.entries.get_index(usize::from(id)).copied().unwrap_or(Entry::NO_INFORMATION)
    }

    /// The ids that another source may replace: no information, and a broken entry.
    #[must_use]
    pub fn overridable(&self) -> [EntryId; 2] {
        let malformed = self.entries.get_index_of(&Entry::End(EndReason::Malformed));
        [Self::NO_INFORMATION, malformed.map_or(Self::NO_INFORMATION, |id| id as EntryId)]
    }

    /// The entries that `used` refers to. Rewrites `used` to refer to them by index.
    pub fn retain<'ids>(self, used: impl Iterator<Item = &'ids mut EntryId>) -> Vec<Entry> {
        let mut retained = vec![Entry::NO_INFORMATION];
        let mut new_ids: Vec<Option<EntryId>> = vec![None; self.entries.len()];
        if let Some(new_id) = new_ids.first_mut() {
            *new_id = Some(Self::NO_INFORMATION);
        }
        for id in used {
            let entry = self.get(*id);
            if let Some(new_id) = new_ids.get_mut(usize::from(*id)) {
                *id = *new_id.get_or_insert_with(|| {
                    retained.push(entry);
                    // There are no more of them than there were ids.
                    (retained.len() - 1) as EntryId
                });
            }
        }
        retained
    }
}

impl Default for EntryInterner {
    fn default() -> Self {
        Self::new()
    }
}

/// A fast hash for the few small integers of an entry. Collisions only cost a lookup.
#[derive(Default)]
struct SlotHasher(u64);

impl SlotHasher {
    fn slot(entry: &Entry, slots: usize) -> usize {
        let mut hasher = Self::default();
        entry.hash(&mut hasher);
        (hasher.0 >> 32) as usize % slots
    }

    fn mix(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(5) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

impl Hasher for SlotHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.mix(u64::from(*byte)));
    }

    fn write_u8(&mut self, value: u8) {
        self.mix(u64::from(value));
    }

    fn write_i32(&mut self, value: i32) {
        self.mix(u64::from(value.cast_unsigned()));
    }

    fn write_isize(&mut self, value: isize) {
        self.mix(value as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::Rule;

    #[test]
    fn more_distinct_rules_than_ids_end_with_their_reason() {
        let mut entries = EntryInterner::new();
        for offset in 0..70_000 {
            entries.intern(Entry::Rule(Rule::above_stack_pointer(offset)));
        }
        let id = entries.intern(Entry::Rule(Rule::above_stack_pointer(69_999)));
        assert_eq!(entries.get(id), Entry::unsupported(UnsupportedReason::TooManyRules));
        let kept = entries.intern(Entry::Rule(Rule::above_stack_pointer(9)));
        assert_eq!(entries.get(kept), Entry::Rule(Rule::above_stack_pointer(9)));
    }
}
