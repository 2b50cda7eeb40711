//! The tables that walks can find: segments by number, loaded on demand and evicted under the arena's budget.

use std::rc::Rc;
use std::sync::atomic::Ordering;

use sidewinder_address::FileOffset;
use sidewinder_unwind_table::Rule;

use crate::arena::{Arena, ArenaBlock, ArenaError};
use crate::intf::sw_segment;
use crate::memory::MappedArray;
use crate::outcome::Outcome;
use crate::settings::CpuSettings;
use crate::table::{PackedSegment, look_up};

/// The number by which ranges of processes name a segment. It outlives eviction, until it is given back.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SegmentId(pub(crate) u32);

/// The time of use of a segment that no walk has used.
const NEVER_USED: u32 = 0;

/// See the [module](self).
#[derive(Debug)]
pub struct UnwindTables {
    segments: MappedArray,
    settings: Rc<CpuSettings>,
    /// By number; number 0 is never given out.
    blocks: Vec<Option<ArenaBlock>>,
    /// Numbers that were given back.
    free: Vec<SegmentId>,
    evictions: u64,
}

impl UnwindTables {
    pub(crate) fn new(segments: MappedArray, settings: Rc<CpuSettings>) -> Self {
        Self { segments, settings, blocks: vec![None], free: Vec::new(), evictions: 0 }
    }

    /// A number for a segment whose table comes later; `None` when all are taken.
    pub fn reserve(&mut self) -> Option<SegmentId> {
        self.free.pop().or_else(|| {
            (self.blocks.len() < self.segments.entries()).then(|| {
                self.blocks.push(None);
                SegmentId((self.blocks.len() - 1) as u32)
            })
        })
    }

    /// Gives a number back, with its table. No range may have named it for as long as a walk takes: another segment gets
    /// it.
    pub fn release(&mut self, arena: &mut Arena, id: SegmentId) {
        self.unload(arena, id);
        self.free.push(id);
    }

    /// Gives a segment the table that walks ask for, evicting those that they used longest ago, and before them those
    /// that they never used, where the budget asks for it.
    ///
    /// # Errors
    /// If the table doesn't fit although everything unused was evicted: the room of evicted tables comes back only
    /// after the walks in progress, so a later call may succeed.
    pub fn load(
        &mut self,
        arena: &mut Arena,
        id: SegmentId,
        table: &PackedSegment,
    ) -> Result<(), ArenaError> {
        if self.is_loaded(id) {
            return Ok(());
        }
        let mut evicted_bytes = 0;
        let block = loop {
            match arena.store(&table.bytes) {
                Ok(block) => break block,
                // Room that is not there after this much eviction is still being read, or in pieces.
                Err(error @ ArenaError::Full { .. }) if evicted_bytes > 4 * table.bytes.len() as u64 => {
                    return Err(error);
                }
                Err(error @ ArenaError::Full { .. }) => match self.evict_oldest(arena) {
                    Some(bytes) => evicted_bytes += bytes,
                    None => return Err(error),
                },
                Err(error) => return Err(error),
            }
        };
        self.publish(id, block, self.settings.clock());
        Ok(())
    }

    /// As [`Self::load`], also where the segment has another table.
    ///
    /// # Errors
    /// As [`Self::load`]; the segment has none then.
    pub fn replace(
        &mut self,
        arena: &mut Arena,
        id: SegmentId,
        table: &PackedSegment,
    ) -> Result<(), ArenaError> {
        self.unload(arena, id);
        self.load(arena, id, table)
    }

    /// Gives a segment the table that walks may ask for one day, if there is room without any eviction. Returns whether
    /// there was.
    ///
    /// # Errors
    /// If the kernel gives no memory that the budget allows.
    pub fn load_if_room(
        &mut self,
        arena: &mut Arena,
        id: SegmentId,
        table: &PackedSegment,
    ) -> Result<bool, ArenaError> {
        if self.is_loaded(id) {
            return Ok(true);
        }
        match arena.store(&table.bytes) {
            Ok(block) => self.publish(id, block, NEVER_USED),
            Err(ArenaError::Full { .. }) => return Ok(false),
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    /// Evicts the table that was used longest ago; returns its size in bytes, or `None` where no table is left.
    pub fn evict_oldest(&mut self, arena: &mut Arena) -> Option<u64> {
        let victim = self.least_recently_used()?;
        let bytes = self.blocks[victim.0 as usize].as_ref().map(|block| u64::from(block.bytes()));
        self.evict(arena, victim);
        bytes
    }

    fn publish(&mut self, id: SegmentId, block: ArenaBlock, used: u32) {
        self.last_used(id.0 as usize).store(used, Ordering::Relaxed);
        let location = self.segments.atomic_u64(id.0 as usize, std::mem::offset_of!(sw_segment, location));
        location.store(block.location(), Ordering::Release);
        self.blocks[id.0 as usize] = Some(block);
    }

    /// Whether walks find the table of this segment.
    #[must_use]
    pub fn is_loaded(&self, id: SegmentId) -> bool {
        self.blocks.get(id.0 as usize).is_some_and(Option::is_some)
    }

    /// The rule in force at a place of the file, as walks find it, or the outcome of one that gets there; `None` where
    /// the table isn't loaded.
    #[must_use]
    pub fn rule_at(&self, arena: &Arena, id: SegmentId, at: FileOffset) -> Option<Result<Rule, Outcome>> {
        let block = self.blocks.get(id.0 as usize)?.as_ref()?;
        self.last_used(id.0 as usize).store(self.settings.clock(), Ordering::Relaxed);
        look_up(arena.bytes(block), at)
    }

    /// Takes the table of a segment away from walks; its room is reused once they have ended.
    pub fn evict(&mut self, arena: &mut Arena, id: SegmentId) {
        self.evictions += u64::from(self.unload(arena, id));
    }

    /// Whether there was a table to take away.
    fn unload(&mut self, arena: &mut Arena, id: SegmentId) -> bool {
        let Some(block) = self.blocks.get_mut(id.0 as usize).and_then(Option::take) else { return false };
        self.segments
            .atomic_u64(id.0 as usize, std::mem::offset_of!(sw_segment, location))
            .store(0, Ordering::SeqCst);
        arena.retire(block);
        true
    }

    /// Tables evicted so far.
    #[must_use]
    pub fn evictions(&self) -> u64 {
        self.evictions
    }

    /// Bytes of the tables that are loaded.
    #[must_use]
    pub fn loaded_bytes(&self) -> u64 {
        self.blocks.iter().flatten().map(|block| u64::from(block.bytes())).sum()
    }

    /// Advances the clock by which the age of tables is measured. Called some times a second.
    pub fn advance_clock(&self) {
        self.settings.advance_clock();
    }

    fn last_used(&self, number: usize) -> &std::sync::atomic::AtomicU32 {
        self.segments.atomic_u32(number, std::mem::offset_of!(sw_segment, used))
    }

    fn least_recently_used(&self) -> Option<SegmentId> {
        let now = self.settings.clock();
        let age = |number: &usize| match self.last_used(*number).load(Ordering::Relaxed) {
            NEVER_USED => u32::MAX,
            used => now.wrapping_sub(used),
        };
        let loaded = (0..self.blocks.len()).filter(|number| self.blocks[*number].is_some());
        loaded.max_by_key(age).map(|number| SegmentId(number as u32))
    }
}
