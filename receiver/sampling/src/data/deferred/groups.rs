//! Frames of runtimes that the programs took when a walk ended early. Each activation of a loop executes a group of them; a
//! deferred walk finds the activations' native frames, and puts the groups before those.
//!
//! They are in the same stack: first, the groups of activations that the walk passed, each before the activation's native frame;
//! then, behind the frame at which it ended, the groups that it did not get to, each with an end.

use std::collections::VecDeque;

use sidewinder_bpf::{RawFrame, RawFrameKind, VmMissing, WalkedRuntime};
use sidewinder_vm::GroupLink;

/// The groups of a stack that a deferred walk has not come to yet, innermost first.
#[derive(Debug, Default)]
pub(crate) struct VmGroups {
    left: VecDeque<Group>,
    /// Whether an activation was met.
    is_entered: bool,
}

#[derive(Debug)]
struct Group {
    frames: Vec<RawFrame>,
    /// Whether the walk passed its activation: the group is as that walk decided.
    is_settled: bool,
    /// The address of what the activation keeps in its native frame, if that is known.
    anchor: Option<u64>,
}

impl VmGroups {
    /// The groups of a stack, leaf first.
    pub(crate) fn from_frames(frames: &[RawFrame]) -> Self {
        let (mut left, mut open) = (VecDeque::new(), Vec::new());
        for frame in frames {
            if let Some(anchor) = frame.vm_group_end() {
                let anchor = Some(anchor).filter(|anchor| *anchor != 0);
                left.push_back(Group { frames: std::mem::take(&mut open), is_settled: false, anchor });
            } else if runtime_of_group(frame).is_some() {
                open.push(*frame);
            } else {
                let frames = std::mem::take(&mut open);
                if frame.is_vm_loop() {
                    left.push_back(Group { frames, is_settled: true, anchor: None });
                }
            }
        }
        if let Some(last) = open.last() {
            // The rest of the last one was not taken, or could not be.
            if let Some(runtime) = runtime_of_group(last)
                && !is_missing(last)
            {
                open.push(RawFrame::missing(runtime, VmMissing::TooEarly));
            }
            left.push_back(Group { frames: open, is_settled: false, anchor: None });
        }
        Self { left, is_entered: false }
    }

    /// The frames of the next activation, whose native frame is from `sp` up to `end`, if that is known: what it keeps there tells
    /// whether a group is its own. An activation that has just begun, or is about to end, has none; that can only be the innermost
    /// one.
    pub(crate) fn take(
        &mut self,
        runtime: WalkedRuntime,
        link: GroupLink,
        sp: u64,
        end: Option<u64>,
    ) -> Vec<RawFrame> {
        let missing = |reason| vec![RawFrame::missing(runtime, reason)];
        let is_innermost = !std::mem::replace(&mut self.is_entered, true);
        let Some(next) = self.left.front() else { return missing(VmMissing::TooEarly) };
        if !next.is_settled {
            if is_innermost && link != GroupLink::Linked {
                if link == GroupLink::Unwritten {
                    self.left.clear();
                }
                return missing(VmMissing::NoFrames);
            }
            if let (Some(anchor), Some(end)) = (next.anchor, end)
                && !(sp..end).contains(&anchor)
            {
                if is_innermost && anchor >= end {
                    return missing(VmMissing::NoFrames);
                }
                self.left.clear();
                return missing(VmMissing::Unreadable);
            }
        }
        match self.left.pop_front() {
            Some(Group { frames, .. }) if !frames.is_empty() => frames,
            _ => missing(VmMissing::NoFrames),
        }
    }
}

/// The frames of a stack that isn't walked later after all, with the groups that its walk did not get to: the native frames between
/// them are missing. `None` if it has none.
pub(crate) fn without_group_ends(frames: &[RawFrame]) -> Option<Vec<RawFrame>> {
    let is_end = |frame: &&RawFrame| frame.vm_group_end().is_some();
    frames.iter().any(|frame| is_end(&frame)).then(|| {
        let frames = frames.iter().filter(|frame| !is_end(frame));
        frames.copied().collect()
    })
}

/// The runtime of a frame that is in a group.
fn runtime_of_group(frame: &RawFrame) -> Option<WalkedRuntime> {
    let runtime = match frame.kind()? {
        RawFrameKind::Vm(function) => function.runtime,
        RawFrameKind::Missing { runtime, .. } => runtime,
        RawFrameKind::Native { .. } | RawFrameKind::Kernel | RawFrameKind::Anonymous => return None,
    };
    runtime.has_groups().then_some(runtime)
}

fn is_missing(frame: &RawFrame) -> bool {
    matches!(frame.kind(), Some(RawFrameKind::Missing { .. }))
}

#[cfg(test)]
mod tests {
    use sidewinder_address::Avma;
    use sidewinder_bpf::{VmForm, VmFunction};

    use super::*;

    fn python(number: u32) -> RawFrame {
        let object = Avma(u64::from(number) << 8);
        let (runtime, form) = (PYTHON, VmForm::Interpreted);
        let function = VmFunction { runtime, object, cookie: number, place: 0, form };
        RawFrame::new(RawFrameKind::Vm(function), 0, false, false)
    }

    fn native(address: u64) -> RawFrame {
        RawFrame::new(RawFrameKind::Native { file: 1 }, address, true, false)
    }

    const NO_FRAMES: VmMissing = VmMissing::NoFrames;
    const PYTHON: WalkedRuntime = WalkedRuntime::CPython;

    fn missing(reason: VmMissing) -> RawFrame {
        RawFrame::missing(PYTHON, reason)
    }

    #[test]
    fn groups_come_in_the_order_of_their_activations() {
        let stack = [
            native(1),
            python(1),
            python(2),
            native(2).in_vm_loop(),
            native(3),
            python(3),
            RawFrame::end_of_vm_group(0x7000),
            python(4),
            python(5),
            RawFrame::end_of_vm_group(0x8000),
            python(6),
        ];
        let left = [native(3), python(3), python(4), python(5), python(6)];
        assert_eq!(without_group_ends(&stack), Some([&stack[..4], &left].concat()));
        assert_eq!(without_group_ends(&stack[..5]), None);
        let mut groups = VmGroups::from_frames(&stack);
        // What the walk passed needs no proof.
        assert_eq!(groups.take(PYTHON, GroupLink::Unlinked, 0x1000, Some(0x1100)), [python(1), python(2)]);
        assert_eq!(groups.take(PYTHON, GroupLink::Linked, 0x6f00, Some(0x7100)), [python(3)]);
        assert_eq!(groups.take(PYTHON, GroupLink::Linked, 0x7f00, None), [python(4), python(5)]);
        let too_early = missing(VmMissing::TooEarly);
        assert_eq!(groups.take(PYTHON, GroupLink::Linked, 0x9000, Some(0x9100)), [python(6), too_early]);
        assert_eq!(groups.take(PYTHON, GroupLink::Linked, 0xa000, Some(0xa100)), [too_early]);
        assert_eq!(VmGroups::default().take(PYTHON, GroupLink::Linked, 0, None), [too_early]);
    }

    #[test]
    fn an_activation_without_frames_does_not_get_those_of_its_caller() {
        let stack = [native(1), python(1), RawFrame::end_of_vm_group(0x7000)];
        let mut groups = VmGroups::from_frames(&stack);
        assert_eq!(groups.take(PYTHON, GroupLink::Linked, 0x6000, Some(0x6100)), [missing(NO_FRAMES)]);
        assert_eq!(groups.take(PYTHON, GroupLink::Linked, 0x6f00, Some(0x7100)), [python(1)]);

        let without_anchor = [native(1), python(1), RawFrame::end_of_vm_group(0)];
        let mut groups = VmGroups::from_frames(&without_anchor);
        assert_eq!(groups.take(PYTHON, GroupLink::Unlinked, 0x6000, Some(0x6100)), [missing(NO_FRAMES)]);
        assert_eq!(groups.take(PYTHON, GroupLink::Unlinked, 0x6f00, Some(0x7100)), [python(1)]);
    }

    #[test]
    fn groups_that_are_not_those_of_the_activations_are_not_shown() {
        let stack = [native(1), python(1), RawFrame::end_of_vm_group(0x5000), python(2)];
        let mut groups = VmGroups::from_frames(&stack);
        assert_eq!(
            groups.take(PYTHON, GroupLink::Linked, 0x6000, Some(0x6100)),
            [missing(VmMissing::Unreadable)],
            "torn"
        );
        assert_eq!(
            groups.take(PYTHON, GroupLink::Linked, 0x7000, Some(0x7100)),
            [missing(VmMissing::TooEarly)]
        );

        let mut groups = VmGroups::from_frames(&[native(1), python(1), RawFrame::end_of_vm_group(0)]);
        assert_eq!(groups.take(PYTHON, GroupLink::Unwritten, 0x6000, None), [missing(NO_FRAMES)]);
        assert_eq!(groups.take(PYTHON, GroupLink::Linked, 0x7000, None), [missing(VmMissing::TooEarly)]);
    }
}
