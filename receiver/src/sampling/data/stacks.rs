//! The stacks that samples refer to, by hash, kept for two epochs.

use std::collections::HashMap;
use std::sync::Arc;

use sidewinder_bpf::{Body, Entries, Frame, StackHash};

use crate::sampling::feed::Stack;

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Stacks {
    bodies: HashMap<StackHash, Held>,
    /// The stacks of user space's own, of this epoch.
    interned: HashMap<Box<[Frame]>, Arc<Stack>>,
    last_number: u64,
    frames: usize,
}

#[derive(Debug)]
struct Held {
    /// The epoch in which it was last sent.
    epoch: u32,
    content: Content,
}

#[derive(Debug)]
enum Content {
    Stack(Arc<Stack>),
    Chain(Box<[StackHash]>),
}

impl Stacks {
    /// Adds a body, or notes that a known one was sent again.
    pub(crate) fn insert(&mut self, body: Body) {
        if let Some(held) = self.bodies.get_mut(&body.hash) {
            held.epoch = body.epoch;
            return;
        }
        let content = match body.entries {
            Entries::Frames(frames) => {
                self.frames += frames.len();
                Content::Stack(self.number(frames))
            }
            Entries::Chain(chunks) => Content::Chain(chunks),
        };
        self.bodies.insert(body.hash, Held { epoch: body.epoch, content });
    }

    /// The stack of a hash, if all of it has arrived.
    pub(crate) fn get(&mut self, hash: StackHash) -> Option<Arc<Stack>> {
        let chunks = match &self.bodies.get(&hash)?.content {
            Content::Stack(stack) => return Some(Arc::clone(stack)),
            Content::Chain(chunks) => chunks,
        };
        let mut frames: Vec<Frame> = Vec::new();
        for chunk in chunks {
            match &self.bodies.get(chunk)?.content {
                Content::Stack(stack) => frames.extend(&stack.frames),
                // The programs send no chains of chains.
                Content::Chain(_) => return None,
            }
        }
        self.frames += frames.len();
        let stack = self.number(frames.into());
        if let Some(held) = self.bodies.get_mut(&hash) {
            held.content = Content::Stack(Arc::clone(&stack));
        }
        Some(stack)
    }

    /// The stack of frames that user space has walked or cut.
    pub(crate) fn intern(&mut self, frames: Vec<Frame>) -> Arc<Stack> {
        let frames: Box<[Frame]> = frames.into();
        if let Some(stack) = self.interned.get(&frames) {
            return Arc::clone(stack);
        }
        self.frames += 2 * frames.len();
        let stack = self.number(frames.clone());
        self.interned.insert(frames, Arc::clone(&stack));
        stack
    }

    /// Forgets the bodies that were sent neither in `epoch` nor in the one before.
    pub(crate) fn begin_epoch(&mut self, epoch: u32) {
        let frames = &mut self.frames;
        *frames -= self.interned.drain().map(|(frames, _)| 2 * frames.len()).sum::<usize>();
        self.bodies.retain(|_, held| {
            let is_recent = epoch.wrapping_sub(held.epoch) <= 1;
            if let (false, Content::Stack(stack)) = (is_recent, &held.content) {
                *frames -= stack.frames.len();
            }
            is_recent
        });
    }

    /// About how many bytes the bodies take.
    pub(crate) fn bytes(&self) -> usize {
        self.frames * size_of::<Frame>() + self.bodies.len() * (size_of::<Held>() + 64)
    }

    fn number(&mut self, frames: Box<[Frame]>) -> Arc<Stack> {
        self.last_number += 1;
        Arc::new(Stack::new(self.last_number, frames))
    }
}
