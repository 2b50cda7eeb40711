//! The memory that making a table takes, beside the pieces of the file that its reader keeps.
//!
//! A file decides how large its sections become once they are decompressed, how many rows its call frame information has,
//! and how many functions its code seems to consist of. All of that is reserved first.

use std::cell::Cell;

/// What an element of a set of addresses takes: the nodes of a tree are half empty at worst.
pub(crate) const ADDRESS_BYTES: usize = 4 * size_of::<u32>();

/// An amount of memory that several parts of a build share.
#[derive(Debug)]
pub struct MemoryBudget {
    left_bytes: Cell<u64>,
    refused_bytes: Cell<Option<u64>>,
}

impl MemoryBudget {
    /// A budget, none of which is reserved.
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        Self { left_bytes: Cell::new(bytes), refused_bytes: Cell::new(None) }
    }

    /// The first amount that was refused, if any.
    #[must_use]
    pub fn refused_bytes(&self) -> Option<u64> {
        self.refused_bytes.get()
    }

    /// Takes an amount for as long as the budget exists. Returns false, and takes nothing, if less is left.
    #[must_use]
    pub fn take(&self, bytes: u64) -> bool {
        let left = self.left_bytes.get().checked_sub(bytes);
        match left {
            Some(left) => self.left_bytes.set(left),
            None => self.refuse(bytes),
        }
        left.is_some()
    }

    fn refuse(&self, bytes: u64) {
        self.refused_bytes.set(self.refused_bytes.get().or(Some(bytes)));
    }

    fn give_back(&self, bytes: u64) {
        self.left_bytes.set(self.left_bytes.get().saturating_add(bytes));
    }
}

/// The most that one reservation takes where there is no budget.
const UNSHARED_BYTES_MAX: u64 = 256 << 20;

/// Access to a budget, or to memory that no budget limits.
#[derive(Clone, Copy, Debug, Default)]
pub struct Memory<'budget>(Option<&'budget MemoryBudget>);

impl<'budget> Memory<'budget> {
    /// Memory that is not shared: each reservation has the same limit, however much others take.
    pub const UNSHARED: Self = Self(None);

    /// What a budget has.
    #[must_use]
    pub fn limited_by(budget: &'budget MemoryBudget) -> Self {
        Self(Some(budget))
    }

    /// Reserves an amount, if that much is left.
    pub(crate) fn reserve(self, bytes: usize) -> Option<Reservation<'budget>> {
        let mut reservation = self.nothing();
        reservation.grow(bytes).then_some(reservation)
    }

    /// Notes that an amount was too large that nobody tried to reserve.
    pub(crate) fn refuse(self, bytes: u64) {
        if let Self(Some(budget)) = self {
            budget.refuse(bytes);
        }
    }

    /// A reservation of nothing, which can grow.
    pub(crate) fn nothing(self) -> Reservation<'budget> {
        Reservation { memory: self, bytes: 0 }
    }

    /// What is left.
    pub(crate) fn left_bytes(self) -> u64 {
        self.0.map_or(UNSHARED_BYTES_MAX, |budget| budget.left_bytes.get())
    }
}

/// A reserved amount, which is given back when this is dropped.
#[derive(Debug)]
pub(crate) struct Reservation<'budget> {
    memory: Memory<'budget>,
    bytes: u64,
}

impl Reservation<'_> {
    /// Reserves more. Returns false, and reserves no more, if less is left.
    #[must_use]
    pub(crate) fn grow(&mut self, by_bytes: usize) -> bool {
        let by_bytes = by_bytes as u64;
        let is_granted = match self.memory.0 {
            Some(budget) => budget.take(by_bytes),
            None => self.bytes.saturating_add(by_bytes) <= UNSHARED_BYTES_MAX,
        };
        if is_granted {
            self.bytes += by_bytes;
        }
        is_granted
    }

    /// Gives some of it back.
    pub(crate) fn shrink(&mut self, by_bytes: usize) {
        let by_bytes = self.bytes.min(by_bytes as u64);
        self.bytes -= by_bytes;
        if let Memory(Some(budget)) = self.memory {
            budget.give_back(by_bytes);
        }
    }

    /// Appends to a vector whose memory is reserved here. Returns false, and appends nothing, if there is not enough.
    #[must_use]
    pub(crate) fn push<T>(&mut self, vector: &mut Vec<T>, value: T) -> bool {
        let has_room = self.make_room(vector, 1);
        if has_room {
            vector.push(value);
        }
        has_room
    }

    /// The same for several bytes.
    #[must_use]
    pub(crate) fn extend(&mut self, vector: &mut Vec<u8>, values: &[u8]) -> bool {
        let has_room = self.make_room(vector, values.len());
        if has_room {
            vector.extend_from_slice(values);
        }
        has_room
    }

    /// Reserves the memory that a vector needs in order to hold more values. What it holds is copied and then freed, so both are
    /// reserved for a moment.
    fn make_room<T>(&mut self, vector: &mut Vec<T>, more: usize) -> bool {
        const FIRST_CAPACITY: usize = 4;
        let (length, before) = (vector.len().saturating_add(more), vector.capacity());
        if length <= before {
            return true;
        }
        let capacity = length.max(before.saturating_mul(2)).max(FIRST_CAPACITY);
        let has_room = self.grow(capacity.saturating_mul(size_of::<T>()));
        if has_room {
            vector.reserve_exact(capacity - vector.len());
            self.shrink(before * size_of::<T>());
        }
        has_room
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.shrink(usize::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reservation_is_given_back_and_a_refusal_is_remembered() {
        let budget = MemoryBudget::new(100);
        let memory = Memory::limited_by(&budget);
        let mut held = memory.reserve(60).unwrap();
        assert!(memory.reserve(41).is_none());
        assert!(held.grow(40));
        assert!(!held.grow(1));
        assert_eq!(memory.left_bytes(), 0);
        drop(held);
        assert_eq!(memory.left_bytes(), 100);
        assert_eq!(budget.refused_bytes(), Some(41), "the first one");
        assert!(Memory::UNSHARED.reserve(200 << 20).is_some_and(|mut held| !held.grow(100 << 20)));
    }

    #[test]
    fn a_vector_grows_as_long_as_there_is_memory() {
        let budget = MemoryBudget::new(1000);
        let mut held = Memory::limited_by(&budget).nothing();
        let mut vector = Vec::new();
        while held.push(&mut vector, 7_u32) {}
        assert_eq!(
            vector.len(),
            128,
            "512 bytes for them and 256 for what is copied fit, but not 1,024 and 512"
        );
        assert_eq!(vector.capacity(), 128);
        assert_eq!(held.bytes, 512);
    }
}
