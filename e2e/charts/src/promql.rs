//! What the charts ask Prometheus for: the alerts and the dashboard.

use std::fs;

use anyhow::Result;
use serde_json::Value;

use crate::folder;

/// Labels that Prometheus adds to what it scrapes.
const LABELS_OF_TARGETS: [&str; 3] = ["namespace", "pod", "container"];

/// The dashboard for Grafana.
///
/// # Errors
///
/// If it can't be read, or is no JSON.
pub fn dashboard() -> Result<Value> {
    let file = folder().join("sidewinder/dashboards/sidewinder.json");
    Ok(serde_json::from_str(&fs::read_to_string(file)?)?)
}

/// The expressions of a `PrometheusRule`; of another manifest, none.
#[must_use]
pub fn of_rules(manifest: &Value) -> Vec<String> {
    let groups = items(manifest.pointer("/spec/groups"));
    let rules = groups.iter().flat_map(|group| items(group.get("rules")));
    rules.filter_map(|rule| Some(rule.get("expr")?.as_str()?.to_owned())).collect()
}

/// The expressions of a dashboard's panels.
#[must_use]
pub fn of_dashboard(dashboard: &Value) -> Vec<String> {
    let panels = items(dashboard.get("panels"));
    let targets = panels.iter().flat_map(|panel| items(panel.get("targets")));
    targets.filter_map(|target| Some(target.get("expr")?.as_str()?.to_owned())).collect()
}

/// The items of a list; none if there is no list.
fn items(list: Option<&Value>) -> &[Value] {
    list.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// The metrics of Sidewinder in an expression.
#[must_use]
pub fn metrics(expression: &str) -> Vec<&str> {
    let words = expression.split(|c| !is_of_name(c));
    words.filter(|word| word.starts_with("sidewinder_") || word.starts_with("otelcol_")).collect()
}

/// The labels by which an expression selects points of a metric, `{label="value"}`, or groups them, `by (label)`, without those
/// that Prometheus adds. An expression groups what all of its metrics have.
#[must_use]
pub fn labels<'a>(expression: &'a str, metric: &str) -> Vec<&'a str> {
    let (mut labels, mut rest) = (Vec::new(), expression);
    while let Some((_, after)) = rest.split_once(metric) {
        let selector = after.strip_prefix('{').and_then(|after| after.split_once('}'));
        let matchers = selector.map_or("", |(matchers, _)| matchers).split(", ");
        labels.extend(matchers.filter_map(|matcher| matcher.split(|c| !is_of_name(c)).next()));
        rest = after;
    }
    for after in expression.split(" by (").skip(1) {
        labels.extend(after.split(')').next().unwrap_or_default().split(", "));
    }
    labels.retain(|label| !label.is_empty() && !LABELS_OF_TARGETS.contains(label));
    labels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_and_labels_of_an_expression() {
        let expression = r#"sum by (pod, state) (rate(sidewinder_events{state!~"queued", pod=~"$pod"}[10m])) / sidewinder_frames{by="table"}"#;
        assert_eq!(metrics(expression), ["sidewinder_events", "sidewinder_frames"]);
        assert_eq!(labels(expression, "sidewinder_events"), ["state", "state"]);
        assert_eq!(labels(expression, "sidewinder_frames"), ["by", "state"]);
    }
}
