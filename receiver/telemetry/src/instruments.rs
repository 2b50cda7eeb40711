//! The instruments of OpenTelemetry's SDK that report the [metrics](super::metrics).
//!
//! Input: the statistics of the service, read at each collection. Output: observations.

use std::sync::Arc;

use opentelemetry::metrics::{AsyncInstrument, AsyncInstrumentBuilder, Histogram, Meter};
use sidewinder_config::MetricLevel;

use super::metrics::{
    InstrumentKind, METRICS, Metric, STACK_DEPTH, STACK_DEPTH_DESCRIPTION, counter_names, counter_points,
};
use crate::stats::ServiceStats;
use crate::stats::counters::COUNTERS;

/// The largest depth of each class of depths that are counted together.
const DEPTH_BUCKETS: [f64; 14] =
    [1.0, 3.0, 7.0, 15.0, 31.0, 63.0, 127.0, 255.0, 511.0, 1_023.0, 2_047.0, 4_095.0, 8_191.0, 16_383.0];

/// Registers every metric of `level` with `meter`, which reads them from `stats`. Returns the histogram in which stack
/// depths must be recorded.
pub(crate) fn register(
    meter: &Meter,
    level: MetricLevel,
    stats: &Arc<ServiceStats>,
) -> Option<Histogram<u64>> {
    for metric in METRICS.iter().filter(|metric| metric.level <= level) {
        match metric.kind {
            InstrumentKind::Counter => {
                _ = with_callback(meter.u64_observable_counter(metric.name), metric, stats, to_u64).build();
            }
            InstrumentKind::FractionalCounter => {
                let identity = |value| value;
                _ = with_callback(meter.f64_observable_counter(metric.name), metric, stats, identity).build();
            }
            InstrumentKind::Gauge => {
                _ = with_callback(meter.u64_observable_gauge(metric.name), metric, stats, to_u64).build();
            }
        }
    }
    for name in counter_names(level) {
        let stats = Arc::clone(stats);
        let first = COUNTERS.iter().find(|counter| counter.name == name);
        let observe = move |observer: &dyn AsyncInstrument<u64>| {
            for point in counter_points(name, &stats) {
                observer.observe(to_u64(point.value), &point.labels);
            }
        };
        _ = meter
            .u64_observable_counter(format!("sidewinder_{name}"))
            .with_description(first.map_or("", |counter| counter.description))
            .with_unit(first.map_or_else(String::new, |counter| format!("{{{}}}", counter.unit)))
            .with_callback(observe)
            .build();
    }
    (level >= MetricLevel::Normal).then(|| {
        meter
            .u64_histogram(STACK_DEPTH)
            .with_description(STACK_DEPTH_DESCRIPTION)
            .with_unit("{frames}")
            .with_boundaries(DEPTH_BUCKETS.to_vec())
            .build()
    })
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it was a u64")]
pub(super) fn to_u64(value: f64) -> u64 {
    value as u64
}

/// Adds the metric's description, and a callback that reads its values, to an instrument. `convert` converts a value.
fn with_callback<'a, I, M: 'static>(
    instrument: AsyncInstrumentBuilder<'a, I, M>,
    metric: &'static Metric,
    stats: &Arc<ServiceStats>,
    convert: fn(f64) -> M,
) -> AsyncInstrumentBuilder<'a, I, M> {
    let stats = Arc::clone(stats);
    let observe = move |observer: &dyn AsyncInstrument<M>| {
        for point in (metric.read)(&stats) {
            observer.observe(convert(point.value), &point.labels);
        }
    };
    instrument.with_description(metric.description).with_unit(metric.unit).with_callback(observe)
}
