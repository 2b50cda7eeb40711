//! When waits are charged: when they end, when they are listed in progress, and when sampling ends.

use sidewinder_bpf::{ListedWait, Profiler, WaitEnd};
use tracing::warn;

use super::Data;
use super::ready::Ready;
use super::waits::ChargedWait;

impl Data {
    /// Gives a wait its length. Its events are ready if it has been sampled already.
    pub(super) fn end_wait(&mut self, end: WaitEnd) {
        if let Some(charged) = self.waits.end(end) {
            self.add_charged(charged);
        }
    }

    fn add_charged(&mut self, charged: ChargedWait) {
        let events = self.events_of_wait(charged);
        self.ready.extend(events.into_iter().map(Ready::Event));
    }

    /// Charges the waits in progress up to now. Those without a sample get one from now on.
    pub(crate) fn charge_waits(&mut self, profiler: &Profiler<'_>) {
        for listed in self.list_waits(profiler) {
            match listed {
                ListedWait::Found(found) => self.found_waits.add(found),
                // Its end, with the exact time, comes when the thread leaves its CPU.
                ListedWait::Sampled { is_woken: true, .. } => {}
                ListedWait::Sampled { so_far, .. } => {
                    if let Some(charged) = self.waits.continue_until(so_far) {
                        self.add_charged(charged);
                    }
                }
            }
        }
    }

    /// The ends, as of now, of the sampled waits in progress: for when sampling ends or pauses.
    pub(crate) fn waits_so_far(&mut self, profiler: &Profiler<'_>) -> Vec<WaitEnd> {
        let sampled = |listed| match listed {
            ListedWait::Sampled { so_far, .. } => Some(so_far),
            ListedWait::Found(_) => None,
        };
        self.list_waits(profiler).into_iter().filter_map(sampled).collect()
    }

    fn list_waits(&mut self, profiler: &Profiler<'_>) -> Vec<ListedWait> {
        profiler.list_waits().unwrap_or_else(|error| {
            if self.lists_failed == 0 {
                warn!(%error, "degraded: waits in progress can't be listed, so threads are charged when they wake up");
            }
            self.lists_failed += 1;
            Vec::new()
        })
    }

    /// Ends the waits that were in progress when sampling ended.
    pub(crate) fn end_waits(&mut self, ends: Vec<WaitEnd>) {
        for end in ends {
            self.end_wait(end);
        }
        self.waits.close();
        self.wakers.close();
    }
}
