//! The arena: memory for tables and mappings, which walks read while we change it.
//!
//! It grows by chunks, up to a budget. Blocks are used as in RCU: written, published by a word elsewhere, and freed once
//! that word no longer points to the block and every slot has finished the walk that was in progress then.

use std::collections::BTreeMap;
use std::io;
use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd};
use std::rc::Rc;
use std::sync::atomic::{Ordering, fence};

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use thiserror::Error;

use crate::chunk::{CHUNK_BYTES, create_chunk};
use crate::intf::{self, sw_slot_head};
use crate::memory::MappedArray;
use crate::opener::Opener;
use crate::settings::CpuSettings;

/// Offsets and lengths of blocks are multiples of this.
const GRAIN_BYTES: u32 = 32;

/// Why a block could not be allocated.
#[derive(Debug, Error)]
pub enum ArenaError {
    /// The budget is used up. Evicting something makes room after a grace period.
    #[error("no room for {bytes} bytes within the budget of {budget_bytes} bytes")]
    Full {
        /// The requested size.
        bytes: usize,
        /// The limit for all chunks together.
        budget_bytes: u64,
    },
    /// The block would be larger than a chunk.
    #[error("a block of {bytes} bytes is larger than a chunk")]
    TooLarge {
        /// The requested size.
        bytes: usize,
    },
    /// The kernel refused another chunk.
    #[error("can't create a chunk of {CHUNK_BYTES} bytes")]
    Grow(#[source] io::Error),
}

/// An allocated block of the arena. Freed through [`Arena::retire`].
#[derive(Debug)]
pub(crate) struct ArenaBlock {
    chunk: u32,
    offset: u32,
    bytes: u32,
}

impl ArenaBlock {
    /// Its location, the word that publishes it.
    pub(crate) fn location(&self) -> intf::sw_location {
        u64::from(self.chunk) << 32 | u64::from(self.offset)
    }

    pub(crate) fn bytes(&self) -> u32 {
        self.bytes
    }
}

/// The memory of tables and mappings that walks look up, allocated in blocks.
#[derive(Debug)]
pub struct Arena {
    map: MapHandle,
    opener: Opener,
    slots: Rc<MappedArray>,
    settings: Rc<CpuSettings>,
    chunks: Vec<ArenaChunk>,
    chunks_max: u32,
    used_bytes: u64,
    retired: Vec<Retired>,
}

#[derive(Debug)]
struct ArenaChunk {
    memory: MappedArray,
    /// Free ranges: offset to length. Adjacent ranges are merged.
    free: BTreeMap<u32, u32>,
}

#[derive(Debug)]
struct Retired {
    walks: WalksInProgress,
    blocks: Vec<ArenaBlock>,
}

impl Arena {
    pub(crate) fn new(
        map: MapHandle,
        opener: Opener,
        slots: Rc<MappedArray>,
        settings: Rc<CpuSettings>,
        budget_bytes: u64,
    ) -> Self {
        let chunks = (budget_bytes / u64::from(CHUNK_BYTES)).clamp(1, u64::from(intf::SW_CHUNKS_MAX));
        let chunks_max = u32::try_from(chunks).unwrap_or(intf::SW_CHUNKS_MAX);
        Self {
            map,
            opener,
            slots,
            settings,
            chunks: Vec::new(),
            chunks_max,
            used_bytes: 0,
            retired: Vec::new(),
        }
    }

    /// Bytes in use, retired blocks included.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    /// Bytes of kernel memory that the chunks use.
    #[must_use]
    pub fn chunk_bytes(&self) -> u64 {
        self.chunks.len() as u64 * u64::from(CHUNK_BYTES)
    }

    /// Bytes that the chunks may use.
    #[must_use]
    pub fn budget_bytes(&self) -> u64 {
        u64::from(self.chunks_max) * u64::from(CHUNK_BYTES)
    }

    /// Whether retired blocks are waiting for walks to end.
    #[must_use]
    pub fn has_retired(&self) -> bool {
        !self.retired.is_empty()
    }

    /// Allocates a block and fills it.
    ///
    /// # Errors
    /// If there is no room, the block is too large, or the kernel refuses another chunk.
    pub(crate) fn store(&mut self, bytes: &[u8]) -> Result<ArenaBlock, ArenaError> {
        let block = self.allocate(bytes.len())?;
        self.chunks[block.chunk as usize].memory.write(0, block.offset as usize, bytes);
        Ok(block)
    }

    /// The content of a block. Writing requires `&mut self`.
    pub(crate) fn bytes(&self, block: &ArenaBlock) -> &[u8] {
        let memory = &self.chunks[block.chunk as usize].memory;
        memory.bytes(0, block.offset as usize, block.bytes as usize)
    }

    /// Retires a block that is no longer published. It is reused after the walks in progress have ended.
    pub(crate) fn retire(&mut self, block: ArenaBlock) {
        let walks = WalksInProgress::capture(&self.slots);
        match self.retired.last_mut() {
            Some(last) if last.walks == walks => last.blocks.push(block),
            _ => self.retired.push(Retired { walks, blocks: vec![block] }),
        }
    }

    /// Frees retired blocks that no walk can still be reading. Call it regularly; it never waits.
    pub fn reclaim(&mut self) {
        let slots = Rc::clone(&self.slots);
        let ended = self.retired.iter().take_while(|retired| retired.walks.have_ended(&slots)).count();
        let blocks: Vec<ArenaBlock> =
            self.retired.drain(..ended).flat_map(|retired| retired.blocks).collect();
        if !blocks.is_empty() {
            // Walks cache by location what they found, until the clock advances.
            self.settings.advance_clock();
        }
        for block in blocks {
            self.used_bytes -= u64::from(block.bytes);
            self.chunks[block.chunk as usize].free(&block);
        }
    }

    fn allocate(&mut self, bytes: usize) -> Result<ArenaBlock, ArenaError> {
        let too_large = || ArenaError::TooLarge { bytes };
        let wanted = u32::try_from(bytes).map_err(|_| too_large())?;
        let wanted = wanted.max(1).checked_next_multiple_of(GRAIN_BYTES).ok_or_else(too_large)?;
        if wanted > CHUNK_BYTES - GRAIN_BYTES {
            return Err(too_large());
        }
        self.reclaim();
        let taken = self.chunks.iter_mut().zip(0..).find_map(|(chunk, number)| {
            Some(ArenaBlock { chunk: number, offset: chunk.allocate(wanted)?, bytes: wanted })
        });
        let block = match taken {
            Some(block) => block,
            None => {
                let number = self.grow(bytes)?;
                let offset = self.chunks[number as usize].allocate(wanted).ok_or_else(too_large)?;
                ArenaBlock { chunk: number, offset, bytes: wanted }
            }
        };
        self.used_bytes += u64::from(wanted);
        Ok(block)
    }

    fn grow(&mut self, bytes: usize) -> Result<u32, ArenaError> {
        let number = u32::try_from(self.chunks.len()).unwrap_or(u32::MAX);
        if number >= self.chunks_max {
            return Err(ArenaError::Full { bytes, budget_bytes: self.budget_bytes() });
        }
        let map = self.opener.run(create_chunk).and_then(|created| created).map_err(ArenaError::Grow)?;
        let memory = MappedArray::new(map.as_fd(), CHUNK_BYTES as usize, 1).map_err(ArenaError::Grow)?;
        let put = self.map.update(&number.to_ne_bytes(), &map.as_raw_fd().to_ne_bytes(), MapFlags::ANY);
        put.map_err(|error| ArenaError::Grow(io::Error::other(error)))?;
        // Location 0, which is offset 0 of chunk 0, means "absent".
        let free = BTreeMap::from([(GRAIN_BYTES, CHUNK_BYTES - GRAIN_BYTES)]);
        self.chunks.push(ArenaChunk { memory, free });
        Ok(number)
    }
}

impl ArenaChunk {
    /// Allocates from the shortest free range that is long enough (best fit), which preserves long ones.
    fn allocate(&mut self, bytes: u32) -> Option<u32> {
        let fitting = self.free.iter().filter(|(_, length)| **length >= bytes);
        let (&offset, &length) = fitting.min_by_key(|(_, length)| **length)?;
        self.free.remove(&offset);
        if length > bytes {
            self.free.insert(offset + bytes, length - bytes);
        }
        Some(offset)
    }

    fn free(&mut self, block: &ArenaBlock) {
        if cfg!(debug_assertions) {
            self.memory.write(0, block.offset as usize, &vec![0xa5; block.bytes as usize]);
        }
        let (mut offset, mut length) = (block.offset, block.bytes);
        if let Some(after) = self.free.remove(&(offset + length)) {
            length += after;
        }
        if let Some((&before, &before_length)) = self.free.range(..offset).next_back()
            && before + before_length == offset
        {
            self.free.remove(&before);
            offset = before;
            length += before_length;
        }
        self.free.insert(offset, length);
    }
}

/// The slots that were in use at some time. Once each of these uses has ended, no walk reads blocks unpublished before.
#[derive(Debug, PartialEq, Eq)]
struct WalksInProgress(Vec<(usize, u32)>);

impl WalksInProgress {
    fn capture(slots: &MappedArray) -> Self {
        // Pairs with the barrier in `claim_slot`: a walk whose claim isn't visible here sees that the block is unpublished.
        fence(Ordering::SeqCst);
        Self((0..slots.entries()).filter_map(|slot| Some((slot, use_of(slots, slot)?))).collect())
    }

    fn have_ended(&self, slots: &MappedArray) -> bool {
        self.0.iter().all(|&(slot, then)| use_of(slots, slot) != Some(then))
    }
}

/// The sequence number of a slot's current use; `None` if it is free.
fn use_of(slots: &MappedArray, slot: usize) -> Option<u32> {
    let load = |offset| slots.atomic_u32(slot, offset).load(Ordering::SeqCst);
    (load(offset_of!(sw_slot_head, claims)) > 0).then(|| load(offset_of!(sw_slot_head, sequence)))
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use libbpf_rs::MapType;

    use super::*;
    use crate::chunk::create_array;

    fn chunk() -> (OwnedFd, ArenaChunk) {
        let map = create_chunk().unwrap();
        let memory = MappedArray::new(map.as_fd(), CHUNK_BYTES as usize, 1).unwrap();
        (map, ArenaChunk { memory, free: BTreeMap::from([(32, 992)]) })
    }

    #[test]
    fn freed_neighbours_become_one_stretch_again() {
        let (_map, mut chunk) = chunk();
        let blocks: Vec<ArenaBlock> = [64, 128, 256, 544]
            .map(|bytes| ArenaBlock { chunk: 0, offset: chunk.allocate(bytes).unwrap(), bytes })
            .into();
        assert_eq!(chunk.allocate(32), None);
        for at in [1, 3, 0, 2] {
            chunk.free(&blocks[at]);
        }
        assert_eq!(chunk.free, BTreeMap::from([(32, 992)]));
    }

    fn array(value_bytes: usize) -> Rc<MappedArray> {
        let map = create_array("sw_test", value_bytes as u32).unwrap();
        Rc::new(MappedArray::new(map.as_fd(), value_bytes, 1).unwrap())
    }

    /// Walks cache what they found by its location.
    #[test]
    fn memory_is_used_again_after_all_walks_and_at_another_time() {
        let inner = create_chunk().unwrap();
        let options = libbpf_rs::libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_rs::libbpf_sys::bpf_map_create_opts>() as _,
            inner_map_fd: inner.as_raw_fd() as u32,
            ..Default::default()
        };
        let outer = MapHandle::create(MapType::ArrayOfMaps, None::<&str>, 4, 4, 1, &options).unwrap();
        let settings = Rc::new(CpuSettings::new(array(size_of::<intf::sw_cpu>())));
        let slots = array(size_of::<sw_slot_head>());
        let budget_bytes = CHUNK_BYTES.into();
        let opener = Opener::start().unwrap();
        let mut arena = Arena::new(outer, opener, Rc::clone(&slots), Rc::clone(&settings), budget_bytes);

        let first = arena.store(&[1]).unwrap();
        let (location, time) = (first.location(), settings.clock());
        slots.atomic_u32(0, offset_of!(sw_slot_head, claims)).store(1, Ordering::SeqCst);
        arena.retire(first);
        let second = arena.store(&[2]).unwrap();
        assert_ne!(second.location(), location, "a walk may be reading there");
        assert_eq!(settings.clock(), time);

        slots.atomic_u32(0, offset_of!(sw_slot_head, claims)).store(0, Ordering::SeqCst);
        let third = arena.store(&[3]).unwrap();
        assert_eq!(third.location(), location);
        assert_ne!(settings.clock(), time);
    }

    #[test]
    fn the_tightest_stretch_is_taken() {
        let (_map, mut chunk) = chunk();
        chunk.free = BTreeMap::from([(32, 512), (1024, 64), (2048, 96)]);
        assert_eq!(chunk.allocate(64), Some(1024));
        assert_eq!(chunk.allocate(64), Some(2048));
        assert_eq!(chunk.allocate(64), Some(32));
    }
}
