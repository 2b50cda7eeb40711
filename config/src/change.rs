//! The effort of a change from one configuration to another at run time.

use crate::model::ProfilingReceiver;
use crate::schema::{WriteContext, WrittenKey, write_fields};
use crate::table::{self, Reload};

/// How a receiver changes from `old` to `new`: the largest [`Reload`] of all changed keys, by the reference table.
#[must_use]
pub fn reload_for_change(old: &ProfilingReceiver, new: &ProfilingReceiver) -> Reload {
    let (old, new) = (written(old), written(new));
    // Items of lists have no key paths to compare.
    if old.len() != new.len() {
        return Reload::Restarts;
    }
    let changed = old.iter().zip(&new).filter(|(old, new)| old != new);
    changed
        .map(|(key, _)| table::find(&key.path).map_or(Reload::Restarts, |row| row.reload))
        .max()
        .unwrap_or(Reload::Live)
}

fn written(receiver: &ProfilingReceiver) -> Vec<WrittenKey> {
    let mut written = WriteContext::default();
    write_fields(&mut receiver.clone(), "receivers::profiling", &mut written);
    written.keys
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sidewinder_kind::Counter;

    use super::*;
    use crate::model::{
        CounterEvent, ErrorMode, Fraction, SamplesPerSecond, ScopeMode, UnwindMode, UnwindOverride,
    };

    #[test]
    fn only_what_reports_look_like_changes_without_a_restart() {
        let old = ProfilingReceiver::default();
        let takes = |change: &dyn Fn(&mut ProfilingReceiver)| {
            let mut new = old.clone();
            change(&mut new);
            reload_for_change(&old, &new)
        };
        assert_eq!(takes(&|_| {}), Reload::Live);
        assert_eq!(takes(&|new| new.reporter_interval = Duration::from_secs(1)), Reload::Live);
        assert_eq!(takes(&|new| new.reporter_jitter = Fraction::default()), Reload::Live);
        assert_eq!(takes(&|new| new.monitor_interval = Duration::from_secs(1)), Reload::Live);
        assert_eq!(takes(&|new| new.error_mode = ErrorMode::Propagate), Reload::Live);
        assert_eq!(
            takes(&|new| new.samples_per_second = SamplesPerSecond::new(97).unwrap()),
            Reload::Restarts
        );
        assert_eq!(takes(&|new| new.scope.mode = ScopeMode::Pod), Reload::Restarts);
        assert_eq!(takes(&|new| new.symbolize.kernel = false), Reload::Restarts);
        let faults = CounterEvent { counter: Counter::PageFaults, rate: None };
        assert_eq!(takes(&|new| new.events.push(faults)), Reload::Restarts);
        let binary = crate::model::BinaryMatch::Name("a".to_owned());
        let rule = UnwindOverride { binary, mode: UnwindMode::Tables };
        assert_eq!(takes(&|new| new.unwind.overrides.push(rule.clone())), Reload::Restarts);
    }
}
