//! Where locks are waited for: a lock is only a number, and the function that wants it says which one it is.

use std::collections::{BTreeMap, HashMap};

use sidewinder_profile::{Frame, FrameIndex, Index as _};

use crate::category::FrameCategory;
use crate::label::frame_label;
use crate::profile::Profile;
use crate::standard::standard_frames;

/// The label of each lock, and the label of the function that waits for it the most.
pub(crate) fn lock_sites(profile: &Profile) -> HashMap<String, String> {
    if !profile.dictionary.frames().any(|frame| frame.is_lock()) {
        return HashMap::new();
    }
    let is_standard = standard_frames(profile);
    // What can want a lock, and is not what locks.
    let is_site = |(index, frame): &(FrameIndex, Frame<'_>)| {
        let category = FrameCategory::of(frame);
        !matches!(category, FrameCategory::Kernel | FrameCategory::Lock | FrameCategory::Marker)
            && is_standard.get(index.position()) == Some(&false)
    };
    let mut waits = HashMap::<String, BTreeMap<String, u64>>::new();
    for (stack, count) in profile.stack_counts() {
        let indices = profile.dictionary.frames_of(stack);
        let mut frames = indices.filter_map(|index| Some((index, profile.dictionary.frame(index)?)));
        let Some((_, lock)) = frames.next().filter(|(_, frame)| frame.is_lock()) else { continue };
        if let Some((_, site)) = frames.find(is_site) {
            let of_site = waits.entry(frame_label(&lock).into_owned()).or_default();
            let of_site = of_site.entry(frame_label(&site).into_owned()).or_default();
            *of_site = of_site.saturating_add(count);
        }
    }
    let busiest = |sites: BTreeMap<String, u64>| {
        // Of equal ones the first.
        let busiest = sites.into_iter().rev().max_by_key(|(_, count)| *count);
        busiest.map(|(site, _)| site)
    };
    waits.into_iter().filter_map(|(lock, sites)| Some((lock, busiest(sites)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::tests::{SAMPLE_STACKS, frame, profile, sample_frames};

    #[test]
    fn the_function_that_waits_the_most_is_the_site_and_not_what_locks() {
        let mut frames = sample_frames();
        frames.push(frame("[lock 1]", FrameCategory::Lock, 0));
        frames.push(frame("__pthread_mutex_lock", FrameCategory::Native, 0));
        frames.push(frame("std::mutex::lock()", FrameCategory::Native, 0));
        let locking = [5, 3, 6, 7];
        // 8 in `work`, 4 in `write_it`, 3 in `main`; then less in `work`.
        let waiting = SAMPLE_STACKS.map(|(stack, count)| match stack {
            [3, rest @ ..] => ([&locking[..], rest].concat(), count),
            stack => ([&locking[..], stack].concat(), count),
        });
        let mut stacks = waiting.each_ref().map(|(stack, count)| (&**stack, *count));
        let site = |stacks: &[(&[usize], u64); 5]| lock_sites(&profile(&frames, stacks)).remove("[lock 1]");
        assert_eq!(site(&stacks).as_deref(), Some("work"));
        stacks[4].1 = 9;
        assert_eq!(site(&stacks).as_deref(), Some("write_it"));
        assert_eq!(site(&stacks.map(|(_, count)| (&locking[..], count))), None, "nothing but what locks");
    }
}
