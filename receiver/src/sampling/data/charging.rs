//! When waits are charged: when they end, when they are listed in progress, and when sampling ends.

use sidewinder_bpf::{ListedWait, Profiler, WaitEnd};
use tracing::warn;

use super::waits::ChargedWait;
use super::{Control, Data, Message};

impl Data {
    /// Gives a wait its length, and emits its events if it has been sampled already.
    pub(super) fn end_wait(&mut self, end: WaitEnd, control: &mut Control, messages: &mut Vec<Message>) {
        let charged = self.waits.end(end);
        self.announce_and_push(charged, control, messages);
    }

    fn announce_and_push(
        &mut self,
        charged: Option<ChargedWait>,
        control: &mut Control,
        messages: &mut Vec<Message>,
    ) {
        if let Some(charged) = charged {
            let ChargedWait { event, .. } = &charged;
            // The process may have exited since it was announced.
            control.descriptions.announce(event.process, &event.comm, &mut control.processes, messages);
            self.push_wait(charged, messages);
        }
    }

    /// Emits the events of a wait in each kind of profile that includes it.
    pub(super) fn push_wait(&mut self, charged: ChargedWait, messages: &mut Vec<Message>) {
        let release = self.wait_events.release_of(&charged);
        if let Some(of_waker) = release.and_then(|release| self.wakers.add_release(release)) {
            self.push(of_waker, messages);
        }
        for event in self.wait_events.of(charged) {
            self.push(event, messages);
        }
    }

    /// Charges the waits in progress up to now. Those without a sample get one from now on.
    pub(in crate::sampling) fn charge_waits(
        &mut self,
        control: &mut Control,
        profiler: &Profiler<'_>,
        messages: &mut Vec<Message>,
    ) {
        for listed in self.list_waits(profiler) {
            match listed {
                ListedWait::Found(found) => self.found_waits.add(found),
                // Its end, with the exact time, comes when the thread leaves its CPU.
                ListedWait::Sampled { is_woken: true, .. } => {}
                ListedWait::Sampled { so_far, .. } => {
                    let charged = self.waits.continue_until(so_far);
                    self.announce_and_push(charged, control, messages);
                }
            }
        }
    }

    /// The ends, as of now, of the sampled waits in progress: for when sampling ends or pauses.
    pub(in crate::sampling) fn waits_so_far(&mut self, profiler: &Profiler<'_>) -> Vec<WaitEnd> {
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
    pub(in crate::sampling) fn end_waits(
        &mut self,
        ends: Vec<WaitEnd>,
        control: &mut Control,
        messages: &mut Vec<Message>,
    ) {
        for end in ends {
            self.end_wait(end, control, messages);
        }
        self.waits.close();
        self.wakers.close();
    }
}
