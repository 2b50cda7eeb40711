//! Locations of what formats say of each frame.

use std::collections::HashMap;

use sidewinder_profile::{Dictionary, FrameType, Location, LocationIndex, Marker};

/// Adds a location; of a marker that is not code, only the marker.
pub(super) fn add_location(dictionary: &mut Dictionary, location: &Location<'_>) -> LocationIndex {
    match location.marker {
        Some(marker @ (Marker::Truncated(_) | Marker::Lock(_))) => dictionary.add_marker(marker),
        Some(Marker::Words) | None => dictionary.add_location(location),
    }
}

/// The type of a location whose frames seem to be of these types, the innermost first: that of the function that contains the others,
/// unless only another one has a name that tells.
pub(super) fn common_type(frame_types: impl DoubleEndedIterator<Item = FrameType>) -> FrameType {
    frame_types.rev().find(|frame_type| *frame_type != FrameType::Native).unwrap_or_default()
}

/// Joins inlined calls in files that have a location for each of them: such calls have the instruction of their caller.
#[derive(Default, Debug)]
pub(super) struct InlinedCalls {
    /// By the locations of calls at one instruction, the innermost first, their common location.
    joined: HashMap<Box<[LocationIndex]>, LocationIndex>,
}

impl InlinedCalls {
    /// Replaces the locations in a stack that are inlined into the next one by common ones. Where the innermost call of an instruction
    /// comes again, the function has called itself.
    pub(super) fn join(&mut self, dictionary: &mut Dictionary, stack: &mut Vec<LocationIndex>) {
        let mut joined = Vec::with_capacity(stack.len());
        let mut rest = &**stack;
        while let Some(innermost) = rest.first() {
            let is_inlined = |call: LocationIndex, caller: LocationIndex| {
                let instruction = instruction(dictionary, call);
                caller != *innermost
                    && instruction.is_some()
                    && instruction == self::instruction(dictionary, caller)
            };
            let pairs = rest.iter().zip(rest.iter().skip(1));
            let inlined = pairs.take_while(|(call, caller)| is_inlined(**call, **caller)).count();
            let (calls, callers) = rest.split_at(inlined + 1);
            joined.push(match calls {
                [one] => *one,
                calls => self.common_location(dictionary, calls),
            });
            rest = callers;
        }
        *stack = joined;
    }

    fn common_location(&mut self, dictionary: &mut Dictionary, calls: &[LocationIndex]) -> LocationIndex {
        if let Some(known) = self.joined.get(calls) {
            return *known;
        }
        let locations = || calls.iter().map(|call| dictionary.location(*call));
        let lines: Vec<_> = locations().flat_map(|location| location.lines).copied().collect();
        let frame_type = common_type(locations().map(|location| location.frame_type));
        let Location { mapping, address, is_generated, is_guessed, is_unnamed, .. } =
            locations().next_back().unwrap_or_default();
        let common = dictionary.add_location(&Location {
            mapping,
            address,
            frame_type,
            is_generated,
            is_guessed,
            is_unnamed,
            marker: None,
            lines: &lines,
        });
        self.joined.insert(calls.into(), common);
        common
    }
}

/// What calls that are inlined at one instruction have in common; `None` if it is unknown, or words of the profiler stand for code.
fn instruction(dictionary: &Dictionary, location: LocationIndex) -> Option<impl PartialEq + use<>> {
    let location = dictionary.location(location);
    let is_known = location.address != 0 && location.marker.is_none();
    is_known.then_some((location.mapping, location.address, location.is_guessed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::category::FrameCategory;
    use crate::profile::tests::{frame, profile};

    #[test]
    fn inlined_calls_have_the_instruction_of_their_caller() {
        let addresses = [0x1000, 0x2000, 0x2010, 0x2010, 0];
        let frames: Vec<_> = addresses
            .into_iter()
            .zip(0..)
            .map(|(address, number)| frame(&format!("f{number}"), FrameCategory::Native, address))
            .collect();
        let inlined = |stack: &[usize]| -> Vec<bool> {
            let dictionary = &mut profile(&frames, &[(stack, 1)]).dictionary;
            let mut stack = dictionary.stacks().last().unwrap_or_default().to_vec();
            InlinedCalls::default().join(dictionary, &mut stack);
            let stack = dictionary.add_stack(&stack);
            let frames = dictionary.frames_of(stack).filter_map(|frame| dictionary.frame(frame));
            frames.map(|frame| frame.is_inlined).collect()
        };
        assert_eq!(inlined(&[2, 3, 0]), [true, false, false]);
        assert_eq!(inlined(&[2, 3, 2, 3, 0]), [true, false, true, false, false], "`3` calls itself there");
        assert_eq!(inlined(&[1, 1, 0]), [false; 3], "recursion at one call");
        assert_eq!(inlined(&[4, 4, 0]), [false; 3], "without an address");
        assert_eq!(inlined(&[]), [false; 0]);
    }
}
