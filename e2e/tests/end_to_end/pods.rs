//! The profiler as a sidecar: it sees all of its pod and nothing of another, with the privileges that the chart asks for.

mod kinds;
mod memory;
mod privileges;
mod scope;

use std::fs;

use serde_json::{Value, json};
use sidewinder_e2e_charts as charts;
use sidewinder_e2e_pod::application::{
    APP_USER, AS_THE_SAME_USER, EVENTS_OF_EVERY_TASK, NOWHERE, WITH_OTHER_USERS, app, app_at, configuration,
    container_of, security,
};
use sidewinder_e2e_support::promise::promise;

/// The sidecar's `securityContext` in a Deployment.
fn security_context(deployment: &Value) -> Option<&Value> {
    let containers = deployment.pointer("/spec/template/spec/initContainers")?.as_array()?;
    containers.iter().find(|container| container["name"] == "sidewinder")?.get("securityContext")
}

#[promise(PodCapabilities)]
fn a_sidecar_may_do_here_what_the_charts_let_it_do() -> anyhow::Result<()> {
    let user = json!({ "runAsNonRoot": true });
    let root = json!({ "runAsNonRoot": false, "runAsUser": 0, "runAsGroup": 0 });
    let cases = [
        ("sidewinder-lib/examples/shop/rendered/deployment.yaml", &AS_THE_SAME_USER[..], user),
        ("kustomize/sidecar/deployment.yaml", &WITH_OTHER_USERS[..], root),
    ];
    for (file, capabilities, mut expected) in cases {
        let names: Vec<_> = capabilities.iter().map(|name| name.trim_start_matches("CAP_")).collect();
        expected["allowPrivilegeEscalation"] = json!(false);
        expected["readOnlyRootFilesystem"] = json!(true);
        expected["capabilities"] = json!({ "add": names, "drop": ["ALL"] });
        expected["seccompProfile"] = json!({ "type": "RuntimeDefault" });
        let rendered = charts::documents(&fs::read_to_string(charts::folder().join(file))?)?;
        assert_eq!(rendered.iter().find_map(security_context), Some(&expected), "{file}");
    }
    Ok(())
}
