//! The stacks that samples refer to, by hash, kept for two epochs.
//!
//! Owner: the sampling thread.

use std::collections::HashMap;
use std::sync::Arc;

use sidewinder_bpf::{RawFrame, StackBody, StackEntries, StackHash};

use sidewinder_message::Stack;

/// A cache of stacks.
#[derive(Debug, Default)]
pub(crate) struct StackCache {
    bodies: HashMap<StackHash, CachedStack>,
    /// The stacks that user space has made in this epoch.
    interned: HashMap<Box<[RawFrame]>, Arc<Stack>>,
    epoch: u32,
    last_id: u64,
    frames: usize,
}

#[derive(Debug)]
struct CachedStack {
    /// The epoch in which it was last sent.
    epoch: u32,
    content: StackContent,
}

#[derive(Debug)]
enum StackContent {
    Stack(Arc<Stack>),
    Chain(Box<[StackHash]>),
}

impl StackCache {
    /// Adds a body, or records that a known one was sent again.
    pub(crate) fn insert(&mut self, body: StackBody) {
        if let Some(cached) = self.bodies.get_mut(&body.hash) {
            cached.epoch = body.epoch;
            return;
        }
        let content = match body.entries {
            StackEntries::Frames(frames) => {
                self.frames += frames.len();
                StackContent::Stack(self.insert_new(frames))
            }
            StackEntries::Chain(chunks) => StackContent::Chain(chunks),
        };
        self.bodies.insert(body.hash, CachedStack { epoch: body.epoch, content });
    }

    /// Adds a stack of this epoch that no program has sent.
    pub(crate) fn insert_local(&mut self, hash: StackHash, frames: Box<[RawFrame]>) {
        self.insert(StackBody { hash, epoch: self.epoch, entries: StackEntries::Frames(frames) });
    }

    /// The stack with this hash, if it has arrived completely.
    pub(crate) fn get(&mut self, hash: StackHash) -> Option<Arc<Stack>> {
        let chunks = match &self.bodies.get(&hash)?.content {
            StackContent::Stack(stack) => return Some(Arc::clone(stack)),
            StackContent::Chain(chunks) => chunks,
        };
        let mut frames: Vec<RawFrame> = Vec::new();
        for chunk in chunks {
            match &self.bodies.get(chunk)?.content {
                StackContent::Stack(stack) => frames.extend(&stack.frames),
                // The programs send no chains of chains.
                StackContent::Chain(_) => return None,
            }
        }
        self.frames += frames.len();
        let stack = self.insert_new(frames.into());
        if let Some(cached) = self.bodies.get_mut(&hash) {
            cached.content = StackContent::Stack(Arc::clone(&stack));
        }
        Some(stack)
    }

    /// The stack with these frames, which user space has walked or truncated.
    pub(crate) fn intern(&mut self, frames: Vec<RawFrame>) -> Arc<Stack> {
        let frames: Box<[RawFrame]> = frames.into();
        if let Some(stack) = self.interned.get(&frames) {
            return Arc::clone(stack);
        }
        self.frames += 2 * frames.len();
        let stack = self.insert_new(frames.clone());
        self.interned.insert(frames, Arc::clone(&stack));
        stack
    }

    /// Forgets the bodies that were sent neither in `epoch` nor in the previous one.
    pub(crate) fn begin_epoch(&mut self, epoch: u32) {
        self.epoch = epoch;
        let frames = &mut self.frames;
        *frames -= self.interned.drain().map(|(frames, _)| 2 * frames.len()).sum::<usize>();
        self.bodies.retain(|_, cached| {
            let is_recent = epoch.wrapping_sub(cached.epoch) <= 1;
            if let (false, StackContent::Stack(stack)) = (is_recent, &cached.content) {
                *frames -= stack.frames.len();
            }
            is_recent
        });
    }

    /// The approximate memory that the stacks use.
    pub(crate) fn bytes(&self) -> usize {
        self.frames * size_of::<RawFrame>() + self.bodies.len() * (size_of::<CachedStack>() + 64)
    }

    fn insert_new(&mut self, frames: Box<[RawFrame]>) -> Arc<Stack> {
        self.last_id += 1;
        Arc::new(Stack::new(self.last_id, frames))
    }
}
