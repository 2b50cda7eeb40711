//! Where locks are waited for: a lock is only a number, and the function that wants it says which one it is.

use std::collections::{BTreeMap, HashMap};

use crate::profile::{FrameCategory, FrameIndex, Profile, ProfileFrame};
use crate::standard::standard_frames;

/// The label of each lock, and the label of the function that waits for it the most.
pub(crate) fn lock_sites(profile: &Profile) -> HashMap<String, String> {
    if !profile.frames.iter().any(ProfileFrame::is_lock) {
        return HashMap::new();
    }
    let is_standard = standard_frames(profile);
    let frame = |index: &FrameIndex| profile.frames.get(index.0 as usize);
    // What can want a lock, and is not what locks.
    let is_site = |index: &FrameIndex| {
        let kind = frame(index).map_or(FrameCategory::Marker, ProfileFrame::category);
        !matches!(kind, FrameCategory::Kernel | FrameCategory::Lock | FrameCategory::Marker)
            && is_standard.get(index.0 as usize) == Some(&false)
    };
    let mut waits = HashMap::<String, BTreeMap<String, u64>>::new();
    for (stack, count) in profile.stacks.iter().zip(profile.stack_counts()) {
        let Some(lock) = stack.first().and_then(frame) else { continue };
        let site = stack.iter().find(|index| is_site(index)).and_then(frame);
        if let Some(site) = site.filter(|_| lock.is_lock()) {
            let of_site = waits.entry(lock.label().into_owned()).or_default();
            let of_site = of_site.entry(site.label().into_owned()).or_default();
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
    use crate::profile::tests::{frame, sample};

    #[test]
    fn the_function_that_waits_the_most_is_the_site_and_not_what_locks() {
        let mut profile = sample();
        profile.frames.push(frame("[lock 1]", FrameCategory::Lock, 0));
        profile.frames.push(frame("__pthread_mutex_lock", FrameCategory::Native, 0));
        profile.frames.push(frame("std::mutex::lock()", FrameCategory::Native, 0));
        let lock = [5, 3, 6, 7].map(FrameIndex);
        for stack in &mut profile.stacks {
            stack.splice(0..0, lock);
        }
        // 8 in `work`, 4 in `write_it`, 3 in `main`; then less in `work`.
        profile.stacks[4] = [&lock[..], &[FrameIndex(4), FrameIndex(0)]].concat();
        let site = |profile: &Profile| lock_sites(profile).remove("[lock 1]");
        assert_eq!(site(&profile).as_deref(), Some("work"));
        profile.samples[4].count = 9;
        assert_eq!(site(&profile).as_deref(), Some("write_it"));
        for stack in &mut profile.stacks {
            stack.truncate(lock.len());
        }
        assert_eq!(site(&profile), None, "nothing but what locks");
    }
}
