//! `docs/metrics.md`, which the tests compare with the metrics.

use std::fmt::Write as _;

use sidewinder_config::MetricLevel;

use super::{InstrumentKind, METRICS, STACK_DEPTH, STACK_DEPTH_DESCRIPTION, counter_names};
use crate::stats::counters::{COUNTERS, CounterMetric as Of};

/// All metrics in Markdown: the contents of `docs/metrics.md`.
pub(super) fn documentation() -> String {
    let level = |level| match level {
        MetricLevel::None => "none",
        MetricLevel::Basic => "basic",
        MetricLevel::Normal => "normal",
        MetricLevel::Detailed => "detailed",
    };
    let mut rows = Vec::new();
    for metric in METRICS {
        let kind = if metric.kind == InstrumentKind::Gauge { "gauge" } else { "counter" };
        rows.push((
            metric.name.to_owned(),
            kind,
            metric.unit.to_owned(),
            level(metric.level),
            metric.description,
        ));
    }
    for name in counter_names(MetricLevel::Detailed) {
        let counter = COUNTERS.iter().find(|counter| counter.name == name).unwrap();
        let Of::FromLevel(from) = counter.metric else { unreachable!() };
        let unit = format!("{{{}}}", counter.unit);
        rows.push((format!("sidewinder_{name}"), "counter", unit, level(from), counter.description));
    }
    rows.push((
        STACK_DEPTH.to_owned(),
        "histogram",
        "{frames}".to_owned(),
        "normal",
        STACK_DEPTH_DESCRIPTION,
    ));
    rows.sort();
    let mut out = String::from(
        "# Metrics\n\n\
         Metrics of `service::telemetry::metrics`, each from the given level on. Generated from the tables in\n\
         `receiver/telemetry/src/metrics.rs` and `receiver/telemetry/src/stats/counters.rs` by\n\
         `make generated`.\n\n\
         | Metric | Kind | Unit | Level | Description |\n|---|---|---|---|---|\n",
    );
    for (name, kind, unit, level, description) in rows {
        writeln!(out, "| `{name}` | {kind} | `{unit}` | {level} | {description} |").unwrap();
    }
    out.push_str(
        "\n## Counters without their own metric\n\n\
         In the log at the end, and in `sidewinder status --json` under `counters`.\n\n\
         | Counter | Description | Where it is shown |\n|---|---|---|\n",
    );
    for counter in COUNTERS {
        let shown_in = match counter.metric {
            Of::FromLevel(_) => continue,
            Of::Part(metric) => format!("in `{metric}`"),
            Of::None(why) => why.to_owned(),
        };
        writeln!(out, "| `{}` | {} | {shown_in} |", counter.key(), counter.description).unwrap();
    }
    out
}
