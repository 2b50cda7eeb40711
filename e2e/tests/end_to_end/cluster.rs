//! The charts on an API server: it judges them, its policies change pods, and a Collector asks it about profiles.
//!
//! - [`installed`]: Helm and kubectl create what the charts make, and Helm asks it before.
//! - [`injected`]: what the injector makes of pods, and what it leaves alone.
//! - [`collected`]: a Collector's `k8s_attributes` finds the pods of our profiles.

mod collected;
mod injected;
mod installed;

use std::path::Path;

use anyhow::Result;
use serde_json::{Value, json};
use sidewinder_e2e_cluster::Cluster;
use sidewinder_e2e_support::command::run;

use crate::charts::chart;

/// `helm install` of the chart `sidewinder`, as release `example`, with one of its own files of values.
fn install(
    cluster: &Cluster,
    helm: &Path,
    namespace: &str,
    values: &str,
    arguments: &[&str],
) -> Result<String> {
    let mut command = cluster.command(helm);
    command.args(["install", "example", "--namespace", namespace]).arg(chart());
    run(command.arg("--values").arg(chart().join(values)).args(arguments))
}

/// A pod for the injector, with one container, and what `metadata` and `spec` say besides.
pub(crate) fn pod(namespace: &str, name: &str, metadata: &Value, spec: &Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "namespace": namespace, "name": name, "labels": { "sidewinder/inject": "true" } },
        "spec": { "containers": [{ "name": "shop", "image": "shop:1.0.0" }] },
    });
    for (at, more) in [("metadata", metadata), ("spec", spec)] {
        for (key, value) in more.as_object().into_iter().flatten() {
            pod[at][key] = value.clone();
        }
    }
    pod
}
