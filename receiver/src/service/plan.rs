//! The settings of a receiver that can change while it samples: how often it reports, and where to.
//!
//! The service sets a [`CurrentPlan`]; the receiver's threads read it. To replace a plan the service withdraws it, and waits
//! until no thread uses it.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use sidewinder_base::lock::lock;
use sidewinder_config::{ComponentId, Config, ErrorMode, ProfilingReceiver, ResourceProcessor};
use sidewinder_report::Destination;

use super::destinations::Destinations;

/// The settings of one receiver, from a configuration.
#[derive(Debug)]
pub(super) struct ReceiverPlan {
    pub(super) error_mode: ErrorMode,
    pub(super) monitor_interval: Duration,
    reporter_interval: Duration,
    /// The largest share by which each interval is shortened or lengthened at random.
    reporter_jitter: f64,
    /// No two routes have the same processors.
    pub(super) routes: Vec<Route>,
}

/// A list of processors, and the exporters that get the reports.
#[derive(Debug)]
pub(super) struct Route {
    processors: Vec<ResourceProcessor>,
    /// Without duplicates: an exporter of two pipelines with the same processors gets each event once.
    pub(super) exporters: Vec<Arc<Destination>>,
}

impl ReceiverPlan {
    /// The plan of a receiver in `config`; `None` if no pipeline uses it.
    pub(super) fn from_config(
        id: &ComponentId,
        receiver: &ProfilingReceiver,
        config: &Config,
        destinations: &Destinations,
    ) -> Option<Self> {
        let mut routes: Vec<Route> = Vec::new();
        for pipeline in config.pipelines.values().filter(|pipeline| pipeline.receivers.contains(id)) {
            let processors: Vec<ResourceProcessor> =
                pipeline.processors.iter().filter_map(|id| config.processors.get(id).cloned()).collect();
            let index = routes.iter().position(|route| route.processors == processors).unwrap_or_else(|| {
                routes.push(Route { processors, exporters: Vec::new() });
                routes.len() - 1
            });
            let Some(route) = routes.get_mut(index) else { continue };
            for exporter in pipeline.exporters.iter().filter_map(|id| destinations.get(id)) {
                if !route.exporters.iter().any(|known| Arc::ptr_eq(known, exporter)) {
                    route.exporters.push(Arc::clone(exporter));
                }
            }
        }
        (!routes.is_empty()).then(|| Self {
            error_mode: receiver.error_mode,
            monitor_interval: receiver.monitor_interval,
            reporter_interval: receiver.reporter_interval,
            reporter_jitter: receiver.reporter_jitter.get(),
            routes,
        })
    }

    /// The processors of each route.
    pub(super) fn processors(&self) -> Vec<&[ResourceProcessor]> {
        self.routes.iter().map(|route| route.processors.as_slice()).collect()
    }

    /// The time until the next report: the interval with jitter, but at least 100 ms.
    pub(super) fn next_interval(&self) -> Duration {
        const SHORTEST: Duration = Duration::from_millis(100);
        let shift = self.reporter_jitter * rand::random_range(-1.0..=1.0);
        self.reporter_interval.mul_f64(1.0 + shift).max(SHORTEST)
    }
}

/// The plan in use, which may be replaced at any time.
#[derive(Debug)]
pub(super) struct CurrentPlan {
    /// `None` while it is being replaced.
    plan: Mutex<Option<Arc<ReceiverPlan>>>,
    changed: Condvar,
}

/// How often a withdrawn plan is checked for users.
const WITHDRAW_POLL_INTERVAL: Duration = Duration::from_millis(5);

impl CurrentPlan {
    pub(super) fn new(plan: ReceiverPlan) -> Self {
        Self { plan: Mutex::new(Some(Arc::new(plan))), changed: Condvar::new() }
    }

    /// The plan; blocks while it is being replaced. Its user must check regularly whether it [is current](Self::is_current),
    /// and drop it if not, after finishing its work.
    pub(super) fn get(&self) -> Arc<ReceiverPlan> {
        let mut plan = lock(&self.plan);
        loop {
            match &*plan {
                Some(plan) => return Arc::clone(plan),
                None => plan = self.changed.wait(plan).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// The plan; `None` while it is being replaced.
    pub(super) fn try_get(&self) -> Option<Arc<ReceiverPlan>> {
        lock(&self.plan).clone()
    }

    pub(super) fn is_current(&self, plan: &Arc<ReceiverPlan>) -> bool {
        lock(&self.plan).as_ref().is_some_and(|current| Arc::ptr_eq(current, plan))
    }

    /// Withdraws the plan and waits until no thread uses it. Must be followed by [`Self::set`]. Returns false if it is still
    /// in use at the deadline.
    pub(super) fn withdraw(&self, deadline: Instant) -> bool {
        let plan = lock(&self.plan).take();
        while plan.as_ref().is_some_and(|plan| Arc::strong_count(plan) > 1) {
            if Instant::now() >= deadline {
                return false;
            }
            thread::sleep(WITHDRAW_POLL_INTERVAL);
        }
        true
    }

    /// Sets a plan after the previous one was withdrawn.
    pub(super) fn set(&self, plan: ReceiverPlan) {
        *lock(&self.plan) = Some(Arc::new(plan));
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(interval_s: u64, jitter: f64) -> ReceiverPlan {
        ReceiverPlan {
            error_mode: ErrorMode::Ignore,
            monitor_interval: Duration::from_secs(1),
            reporter_interval: Duration::from_secs(interval_s),
            reporter_jitter: jitter,
            routes: Vec::new(),
        }
    }

    #[test]
    fn intervals_are_shifted_by_no_more_than_their_share() {
        let plan = plan(10, 0.2);
        let intervals: Vec<f64> = (0..1000).map(|_| plan.next_interval().as_secs_f64()).collect();
        assert!(intervals.iter().all(|seconds| (8.0..=12.0).contains(seconds)), "{intervals:?}");
        assert!(
            intervals.iter().any(|seconds| *seconds < 9.0) && intervals.iter().any(|seconds| *seconds > 11.0)
        );
    }

    #[test]
    fn a_plan_is_withdrawn_only_after_its_users_have_finished() {
        let current = Arc::new(CurrentPlan::new(plan(1, 0.0)));
        let held = current.get();
        let finished = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let user = thread::spawn({
            let (current, finished) = (Arc::clone(&current), Arc::clone(&finished));
            move || {
                while current.is_current(&held) {
                    thread::sleep(WITHDRAW_POLL_INTERVAL);
                }
                thread::sleep(10 * WITHDRAW_POLL_INTERVAL);
                finished.store(true, std::sync::atomic::Ordering::SeqCst);
                drop(held);
                current.get().reporter_interval
            }
        });
        assert!(current.withdraw(Instant::now() + Duration::from_secs(600)));
        assert!(finished.load(std::sync::atomic::Ordering::SeqCst));
        current.set(plan(2, 0.0));
        assert_eq!(user.join().unwrap(), Duration::from_secs(2));
        let _held = current.get();
        assert!(!current.withdraw(Instant::now() + 2 * WITHDRAW_POLL_INTERVAL), "the plan is still in use");
    }
}
