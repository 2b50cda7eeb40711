//! Interning: tables of distinct values, addressed by index.
//!
//! A value is found by what describes it, before it is made, and strings and lists are one behind the other in memory. `indexmap`
//! takes as much memory (200,000 names of 43 bytes: 15.7 MiB, and 16.0 MiB here), but in an allocation for each string and list,
//! and lends no slice of its values, which is what encoders read.

use std::hash::{BuildHasher, Hash};
use std::marker::PhantomData;
use std::ops::Range;

use hashbrown::{DefaultHashBuilder, HashTable};

/// An index in a table.
pub trait Index: Copy {
    /// The index of a position.
    fn from_position(position: u32) -> Self;
    /// The position.
    fn position(self) -> usize;
}

/// The distinct values of one type, in order of first use.
#[derive(Clone, Debug)]
pub struct Table<I, T> {
    values: Vec<T>,
    slots: Slots,
    index: PhantomData<I>,
}

impl<I, T> Default for Table<I, T> {
    fn default() -> Self {
        Self { values: Vec::new(), slots: Slots::default(), index: PhantomData }
    }
}

impl<I: Index, T> Table<I, T> {
    /// All values.
    #[must_use]
    pub fn values(&self) -> &[T] {
        &self.values
    }

    /// All values, without the table.
    #[must_use]
    pub fn into_values(self) -> Vec<T> {
        self.values
    }

    /// The value at an index.
    #[must_use]
    pub fn get(&self, index: I) -> Option<&T> {
        self.values.get(index.position())
    }

    /// The same, to be changed: but not in what identifies it.
    pub fn get_mut(&mut self, index: I) -> Option<&mut T> {
        self.values.get_mut(index.position())
    }

    /// The index of the value that `key` describes; `make` creates it on first use.
    ///
    /// `key` must have the same hash for all descriptions that `is` considers equal.
    pub fn intern_with(
        &mut self,
        key: &(impl Hash + ?Sized),
        is: impl Fn(&T) -> bool,
        make: impl FnOnce() -> T,
    ) -> I {
        let hash = self.slots.hash(key);
        match self.find_hashed(hash, is) {
            Some(index) => index,
            None => self.insert_hashed(hash, make()),
        }
    }

    /// The index of the value that `key` describes, if it exists.
    pub fn find(&self, key: &(impl Hash + ?Sized), is: impl Fn(&T) -> bool) -> Option<I> {
        self.find_hashed(self.slots.hash(key), is)
    }

    /// Appends a value that [`find`](Self::find) did not find by this key.
    pub fn insert(&mut self, key: &(impl Hash + ?Sized), value: T) -> I {
        self.insert_hashed(self.slots.hash(key), value)
    }

    /// The hash of a key.
    pub(crate) fn hash(&self, key: &(impl Hash + ?Sized)) -> u64 {
        self.slots.hash(key)
    }

    fn find_hashed(&self, hash: u64, is: impl Fn(&T) -> bool) -> Option<I> {
        let found = self.slots.find(hash, |position| self.values.get(position as usize).is_some_and(&is));
        found.map(I::from_position)
    }

    /// Appends a value whose key has this hash.
    pub(crate) fn insert_hashed(&mut self, hash: u64, value: T) -> I {
        let Some(position) = next_position(self.values.len()) else { return I::from_position(0) };
        self.values.push(value);
        self.slots.insert(hash, position);
        I::from_position(position)
    }
}

impl<I, T> Table<I, T> {
    /// The size in bytes, without what the values own.
    #[must_use]
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.values) + self.slots.bytes()
    }
}

impl<I: Index, T: Hash + Eq> Table<I, T> {
    /// The index of a value, which is added if it is new.
    pub fn intern(&mut self, value: T) -> I {
        let hash = self.slots.hash(&value);
        match self.find_hashed(hash, |held| *held == value) {
            Some(index) => index,
            None => self.insert_hashed(hash, value),
        }
    }
}

/// Equal if the values are, in the same order.
impl<I, T: PartialEq> PartialEq for Table<I, T> {
    fn eq(&self, other: &Self) -> bool {
        self.values == other.values
    }
}

/// The distinct lists of values of one type, in order of first use, one behind the other in memory.
#[derive(Clone, Debug)]
pub struct ListTable<I, E> {
    elements: Vec<E>,
    /// The end of each list in `elements`, which is also the start of the next list.
    ends: Vec<u32>,
    slots: Slots,
    index: PhantomData<I>,
}

impl<I, E> Default for ListTable<I, E> {
    fn default() -> Self {
        Self { elements: Vec::new(), ends: Vec::new(), slots: Slots::default(), index: PhantomData }
    }
}

impl<I: Index, E: Copy + Eq + Hash> ListTable<I, E> {
    /// The number of lists.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is no list.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The list at an index; the empty one if there is none.
    #[must_use]
    pub fn get(&self, index: I) -> &[E] {
        list_at(&self.elements, &self.ends, index.position())
    }

    /// All lists.
    pub fn iter(&self) -> impl Iterator<Item = &[E]> {
        (0..self.ends.len()).map(|position| list_at(&self.elements, &self.ends, position))
    }

    /// The index of a list, which is added if it is new.
    pub fn intern(&mut self, list: &[E]) -> I {
        let hash = self.slots.hash(list);
        let is = |position: u32| list_at(&self.elements, &self.ends, position as usize) == list;
        if let Some(known) = self.slots.find(hash, is) {
            return I::from_position(known);
        }
        let end = u32::try_from(self.elements.len() + list.len());
        let (Some(position), Ok(end)) = (next_position(self.ends.len()), end) else {
            return I::from_position(0);
        };
        self.elements.extend_from_slice(list);
        self.ends.push(end);
        self.slots.insert(hash, position);
        I::from_position(position)
    }

    /// The size of the lists in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.elements) + size_of_val(&*self.ends) + self.slots.bytes()
    }
}

/// Equal if the lists are, in the same order.
impl<I, E: PartialEq> PartialEq for ListTable<I, E> {
    fn eq(&self, other: &Self) -> bool {
        (&self.elements, &self.ends) == (&other.elements, &other.ends)
    }
}

fn list_at<'a, E>(elements: &'a [E], ends: &[u32], position: usize) -> &'a [E] {
    elements.get(range_at(ends, position)).unwrap_or_default()
}

/// The distinct strings, in order of first use, one behind the other in memory. The first is empty.
#[derive(Clone, Debug)]
pub struct StringTable<I> {
    text: String,
    /// The end of each string in `text`, which is also the start of the next string.
    ends: Vec<u32>,
    slots: Slots,
    index: PhantomData<I>,
}

impl<I> Default for StringTable<I> {
    fn default() -> Self {
        Self { text: String::new(), ends: vec![0], slots: Slots::default(), index: PhantomData }
    }
}

impl<I: Index> StringTable<I> {
    /// The number of strings.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "it has the empty string at least")]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// The string at an index; the empty one if there is none.
    #[must_use]
    pub fn get(&self, index: I) -> &str {
        string_at(&self.text, &self.ends, index.position())
    }

    /// All strings.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.ends.len()).map(|position| string_at(&self.text, &self.ends, position))
    }

    /// The index of a string, which is added if it is new.
    pub fn intern(&mut self, string: &str) -> I {
        if string.is_empty() {
            return I::from_position(0);
        }
        let hash = self.slots.hash(string);
        let is = |position: u32| string_at(&self.text, &self.ends, position as usize) == string;
        if let Some(known) = self.slots.find(hash, is) {
            return I::from_position(known);
        }
        let end = u32::try_from(self.text.len() + string.len());
        let (Some(position), Ok(end)) = (next_position(self.ends.len()), end) else {
            return I::from_position(0);
        };
        self.text.push_str(string);
        self.ends.push(end);
        self.slots.insert(hash, position);
        I::from_position(position)
    }

    /// The size of the strings in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.text.len() + size_of_val(&*self.ends) + self.slots.bytes()
    }
}

/// Equal if the strings are, in the same order.
impl<I> PartialEq for StringTable<I> {
    fn eq(&self, other: &Self) -> bool {
        (&self.text, &self.ends) == (&other.text, &other.ends)
    }
}

fn string_at<'a>(text: &'a str, ends: &[u32], position: usize) -> &'a str {
    text.get(range_at(ends, position)).unwrap_or_default()
}

/// Where the value at a position is, by the ends of all; empty if there is none.
fn range_at(ends: &[u32], position: usize) -> Range<usize> {
    let end = ends.get(position).copied().unwrap_or(0);
    let start = position.checked_sub(1).and_then(|before| ends.get(before)).copied().unwrap_or(0);
    start as usize..end as usize
}

/// The position after this many values. Memory ends long before there are 2^31, the most that a message can refer to; the index
/// of a value beyond would be the one of the zero value.
fn next_position(len: usize) -> Option<u32> {
    i32::try_from(len).ok().and_then(|len| u32::try_from(len).ok())
}

/// Finds the positions of values by their hash.
///
/// The hash has a random seed: profiled processes choose the names that are interned.
#[derive(Clone, Default, Debug)]
struct Slots {
    table: HashTable<Slot>,
    hasher: DefaultHashBuilder,
}

/// The position of a value, and its hash, so that a growing table doesn't hash again.
#[derive(Clone, Copy, Debug)]
struct Slot {
    hash: u64,
    position: u32,
}

impl Slots {
    fn hash(&self, key: &(impl Hash + ?Sized)) -> u64 {
        self.hasher.hash_one(key)
    }

    fn find(&self, hash: u64, is: impl Fn(u32) -> bool) -> Option<u32> {
        self.table.find(hash, |slot| slot.hash == hash && is(slot.position)).map(|slot| slot.position)
    }

    fn bytes(&self) -> usize {
        self.table.allocation_size()
    }

    fn insert(&mut self, hash: u64, position: u32) {
        self.table.insert_unique(hash, Slot { hash, position }, |slot| slot.hash);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::StringIndex;

    #[test]
    fn equal_values_share_an_index_and_different_ones_do_not() {
        let mut table = Table::<StringIndex, String>::default();
        let mut intern = |text: &str| table.intern_with(text, |held| held == text, || text.to_owned()).0;
        let indices = [intern("a"), intern("b"), intern("a"), intern("")];
        assert_eq!(indices, [0, 1, 0, 2]);
        assert_eq!(table.values(), ["a", "b", ""]);
        assert_eq!(table.find("b", |held| held == "b"), Some(StringIndex(1)));
        assert_eq!(table.find("c", |held| held == "c"), None);
    }

    #[test]
    fn values_are_found_after_the_table_has_grown() {
        let mut table = Table::<StringIndex, u32>::default();
        assert!((0..10_000).all(|value| table.intern(value) == StringIndex(value)));
        assert!((0..10_000).all(|value| table.intern(value) == StringIndex(value)));
    }

    #[test]
    fn lists_and_strings_are_held_once() {
        let mut lists = ListTable::<StringIndex, u8>::default();
        let lists_in: [&[u8]; 4] = [&[], &[1, 2], &[1], &[1, 2]];
        assert_eq!(lists_in.map(|list| lists.intern(list).0), [0, 1, 2, 1]);
        assert_eq!(lists.iter().collect::<Vec<_>>(), lists_in[..3]);
        assert_eq!((lists.get(StringIndex(1)), lists.get(StringIndex(9))), (&[1, 2][..], &[][..]));
        let mut strings = StringTable::<StringIndex>::default();
        assert_eq!(["", "ä", "b", "ä", ""].map(|string| strings.intern(string).0), [0, 1, 2, 1, 0]);
        assert_eq!(strings.iter().collect::<Vec<_>>(), ["", "ä", "b"]);
        assert_eq!(strings.get(StringIndex(9)), "");
    }
}
