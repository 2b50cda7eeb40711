//! What of a receiver can change while it samples: how often it reports, and where to.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use sidewinder_config::{ComponentId, Config, ErrorMode, ProfilingReceiver, ResourceProcessor};

use super::destinations::Destinations;
use crate::export::Destination;
use crate::lock::lock;

/// One receiver's part in a configuration.
#[derive(Debug)]
pub(super) struct ReceiverPlan {
    pub(super) error_mode: ErrorMode,
    pub(super) monitor_interval: Duration,
    reporter_interval: Duration,
    /// Share by which each interval is shifted at random, either way.
    reporter_jitter: f64,
    /// No two have the same processors.
    pub(super) routes: Vec<Route>,
}

/// Where reports go, and what happens to them on the way.
#[derive(Debug)]
pub(super) struct Route {
    processors: Vec<ResourceProcessor>,
    /// None twice: whoever is fed by two pipelines in the same way gets each event once.
    pub(super) exporters: Vec<Arc<Destination>>,
}

impl ReceiverPlan {
    /// What `config` says of a receiver; `None` where no pipeline uses it.
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
            let at = routes.iter().position(|route| route.processors == processors).unwrap_or_else(|| {
                routes.push(Route { processors, exporters: Vec::new() });
                routes.len() - 1
            });
            let Some(route) = routes.get_mut(at) else { continue };
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

    /// The time to the next report: about the interval.
    pub(super) fn next_interval(&self) -> Duration {
        const SHORTEST: Duration = Duration::from_millis(100);
        let shift = self.reporter_jitter * rand::random_range(-1.0..=1.0);
        self.reporter_interval.mul_f64(1.0 + shift).max(SHORTEST)
    }
}

/// The plan that holds; another one may take its place at any time.
#[derive(Debug)]
pub(super) struct CurrentPlan {
    /// `None` while it is being changed.
    plan: Mutex<Option<Arc<ReceiverPlan>>>,
    changed: Condvar,
}

/// How long to wait between two looks at who still acts by a plan.
const WITHDRAW_POLL_INTERVAL: Duration = Duration::from_millis(5);

impl CurrentPlan {
    pub(super) fn new(plan: ReceiverPlan) -> Self {
        Self { plan: Mutex::new(Some(Arc::new(plan))), changed: Condvar::new() }
    }

    /// The plan; waits while it is being changed. Who acts by it asks every now and then whether it still
    /// [holds](Self::is_current), and gives it back if not, after finishing what it began.
    pub(super) fn get(&self) -> Arc<ReceiverPlan> {
        let mut plan = lock(&self.plan);
        loop {
            match &*plan {
                Some(plan) => return Arc::clone(plan),
                None => plan = self.changed.wait(plan).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// The plan, unless it is being changed.
    pub(super) fn try_get(&self) -> Option<Arc<ReceiverPlan>> {
        lock(&self.plan).clone()
    }

    pub(super) fn is_current(&self, plan: &Arc<ReceiverPlan>) -> bool {
        lock(&self.plan).as_ref().is_some_and(|current| Arc::ptr_eq(current, plan))
    }

    /// Takes the plan away and waits until nobody acts by it any more. Another one must follow. False: somebody still
    /// does at the deadline.
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

    /// Puts a plan in the place of the one that was taken away.
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
    fn a_plan_is_changed_only_after_everybody_has_finished_with_the_old_one() {
        let current = Arc::new(CurrentPlan::new(plan(1, 0.0)));
        let held = current.get();
        let finished = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let actor = thread::spawn({
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
        assert_eq!(actor.join().unwrap(), Duration::from_secs(2));
        let _held = current.get();
        assert!(!current.withdraw(Instant::now() + 2 * WITHDRAW_POLL_INTERVAL), "somebody holds on to it");
    }
}
