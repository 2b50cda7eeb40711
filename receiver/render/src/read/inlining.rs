//! Finds inlined calls in files that have a location for each of them: such calls have the instruction of their caller.

use std::collections::HashMap;

use crate::profile::{FrameIndex, ProfileFrame};

/// The frames of inlined calls, by the frames that they were read as.
#[derive(Default, Debug)]
pub(super) struct InlinedCalls(HashMap<FrameIndex, FrameIndex>);

impl InlinedCalls {
    /// Replaces the frames of a stack that are inlined into the next one, and are not known to be, by others that say so. Where the
    /// innermost call of an instruction comes again, the function has called itself.
    pub(super) fn mark(&mut self, frames: &mut Vec<ProfileFrame>, stack: &mut [FrameIndex]) {
        let mut innermost = stack.first().copied();
        for position in 0..stack.len() {
            let (index, caller) = (stack[position], stack.get(position + 1).copied());
            let Some(frame) = frames.get(index.0 as usize) else { continue };
            let instruction = |index: FrameIndex| {
                let frame = frames.get(index.0 as usize)?;
                (frame.address != 0).then_some((frame.binary, frame.address, frame.is_guessed))
            };
            let is_inlined_into = |caller| {
                Some(caller) != innermost
                    && instruction(index).is_some()
                    && instruction(index) == instruction(caller)
            };
            if frame.is_inlined {
                continue;
            }
            if !caller.is_some_and(is_inlined_into) {
                innermost = caller;
                continue;
            }
            let inlined = ProfileFrame { is_inlined: true, ..frame.clone() };
            stack[position] = *self.0.entry(index).or_insert_with(|| {
                frames.push(inlined);
                FrameIndex(frames.len() as u32 - 1)
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::FrameCategory;
    use crate::profile::tests::frame;

    #[test]
    fn inlined_calls_have_the_instruction_of_their_caller() {
        let addresses = [0x1000, 0x2000, 0x2010, 0x2010, 0];
        let read: Vec<_> =
            addresses.into_iter().map(|address| frame("f", FrameCategory::Native, address)).collect();
        let inlined = |stack: &[u32]| -> Vec<bool> {
            let mut frames = read.clone();
            let mut stack: Vec<_> = stack.iter().copied().map(FrameIndex).collect();
            InlinedCalls::default().mark(&mut frames, &mut stack);
            stack.iter().map(|index| frames[index.0 as usize].is_inlined).collect()
        };
        assert_eq!(inlined(&[2, 3, 0]), [true, false, false]);
        assert_eq!(inlined(&[2, 3, 2, 3, 0]), [true, false, true, false, false], "`3` calls itself there");
        assert_eq!(inlined(&[1, 1, 0]), [false; 3], "recursion at one call");
        assert_eq!(inlined(&[4, 4, 0]), [false; 3], "without an address");
        assert_eq!(inlined(&[]), [false; 0]);
    }
}
