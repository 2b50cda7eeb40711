//! The tables that walks can find: segments by id, loaded on demand and evicted to stay within the arena's budget.

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

/// The index by which ranges of processes refer to a segment. It stays valid after eviction, until it is released.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SegmentId(pub(crate) u32);

/// The last-used time of a segment that no walk has used.
const NEVER_USED: u32 = 0;

/// The unwind tables that walks can find, with their times of last use.
#[derive(Debug)]
pub struct UnwindTables {
    segments: MappedArray,
    settings: Rc<CpuSettings>,
    /// By id; id 0 is never given out.
    blocks: Vec<Option<ArenaBlock>>,
    /// Released ids.
    free: Vec<SegmentId>,
    evictions: u64,
}

impl UnwindTables {
    pub(crate) fn new(segments: MappedArray, settings: Rc<CpuSettings>) -> Self {
        Self { segments, settings, blocks: vec![None], free: Vec::new(), evictions: 0 }
    }

    /// Reserves an id for a segment whose table is loaded later; `None` if all are in use.
    pub fn reserve(&mut self) -> Option<SegmentId> {
        self.free.pop().or_else(|| {
            (self.blocks.len() < self.segments.entries()).then(|| {
                self.blocks.push(None);
                SegmentId((self.blocks.len() - 1) as u32)
            })
        })
    }

    /// Releases an id, with its table. No range may have referred to it for at least the duration of a walk, since
    /// another segment can get the id.
    pub fn release(&mut self, arena: &mut Arena, id: SegmentId) {
        self.unload(arena, id);
        self.free.push(id);
    }

    /// Loads the table of a segment that walks need. To stay within the budget, evicts tables that walks never used, and
    /// then the least recently used ones.
    ///
    /// # Errors
    /// If the table doesn't fit although everything unused was evicted: memory of evicted tables is only reused after the
    /// walks in progress, so a later call may succeed.
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
                // If there is still no room after this much eviction, walks are still reading the memory, or it is
                // fragmented.
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

    /// Like [`Self::load`], but replaces a table that the segment already has.
    ///
    /// # Errors
    /// As for [`Self::load`]; the segment then has no table.
    pub fn replace(
        &mut self,
        arena: &mut Arena,
        id: SegmentId,
        table: &PackedSegment,
    ) -> Result<(), ArenaError> {
        self.unload(arena, id);
        self.load(arena, id, table)
    }

    /// Loads the table of a segment that walks may need later, if there is room without eviction. Returns whether there
    /// was.
    ///
    /// # Errors
    /// If the kernel refuses memory that is within the budget.
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

    /// Evicts the least recently used table. Returns its size in bytes, or `None` if there is no table.
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

    /// Whether the table of this segment is loaded.
    #[must_use]
    pub fn is_loaded(&self, id: SegmentId) -> bool {
        self.blocks.get(id.0 as usize).is_some_and(Option::is_some)
    }

    /// The rule for a file offset, as walks find it, or the outcome of a walk that reaches it; `None` if the table isn't
    /// loaded.
    #[must_use]
    pub fn rule_at(&self, arena: &Arena, id: SegmentId, at: FileOffset) -> Option<Result<Rule, Outcome>> {
        let block = self.blocks.get(id.0 as usize)?.as_ref()?;
        self.last_used(id.0 as usize).store(self.settings.clock(), Ordering::Relaxed);
        look_up(arena.bytes(block), at)
    }

    /// Unloads the table of this segment; its memory is reused after the walks in progress.
    pub fn evict(&mut self, arena: &mut Arena, id: SegmentId) {
        self.evictions += u64::from(self.unload(arena, id));
    }

    /// Unloads a table; returns whether there was one.
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

    /// Bytes of the tables that no walk has used for this many advances of the clock.
    #[must_use]
    pub fn unused_bytes(&self, advances: u32) -> u64 {
        let now = self.settings.clock();
        let is_unused = |number: usize| match self.last_used(number).load(Ordering::Relaxed) {
            NEVER_USED => true,
            used => now.wrapping_sub(used) >= advances,
        };
        let loaded =
            self.blocks.iter().enumerate().filter_map(|(number, block)| Some((number, block.as_ref()?)));
        loaded.filter(|(number, _)| is_unused(*number)).map(|(_, block)| u64::from(block.bytes())).sum()
    }

    /// Advances the clock that measures the age of tables. Call it a few times a second.
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
