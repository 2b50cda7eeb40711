//! The profiler as a sidecar: it sees all of its pod and nothing of another, with the privileges that the chart asks for.

mod life;
mod memory;
mod neighbours;
mod privileges;
mod scope;

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};
use sidewinder_e2e_charts as charts;
use sidewinder_e2e_pod::{ContainerSpec, Mount, SecurityContext};
use sidewinder_e2e_support::workload::Program;
use sidewinder_otlp::decode::DecodedEvent;

/// Of the profiler as root, which the application is not.
const WITH_OTHER_USERS: [&str; 3] = ["CAP_BPF", "CAP_PERFMON", "CAP_SYS_PTRACE"];
/// Of the profiler as the application's own user.
const AS_THE_SAME_USER: [&str; 2] = ["CAP_BPF", "CAP_PERFMON"];
/// The application's user id.
const APP_USER: u32 = 10_001;
/// What a sidecar says that can't have the events of containers.
const HEARS_OF_EVERY_TASK: &str = "degraded: all interrupts of the node are looked at";
/// Where nobody listens.
const NOWHERE: &str = "127.0.0.1:9";

fn security(user: u32, capabilities: &[&'static str]) -> SecurityContext {
    SecurityContext { capabilities: capabilities.to_vec(), ..SecurityContext::user(user) }
}

/// A program of the application, under the path that it has on this machine: the judge reads the same file.
fn app(program: Program, arguments: &[&str], cpu: Option<u32>) -> anyhow::Result<ContainerSpec> {
    app_at(program.compiled()?, arguments, cpu)
}

fn app_at(path: PathBuf, arguments: &[&str], cpu: Option<u32>) -> anyhow::Result<ContainerSpec> {
    let arguments = arguments.iter().map(ToString::to_string);
    let mut mounts = Mount::libraries_of(&path)?;
    mounts.push(Mount::in_place(path.clone()));
    Ok(ContainerSpec {
        arguments: [path.display().to_string()].into_iter().chain(arguments).collect(),
        environment: Vec::new(),
        mounts,
        security: SecurityContext::user(APP_USER),
        cpu,
        memory_limit_bytes: None,
    })
}

/// The id of the container that an event is of.
fn container_of<'a>(event: &DecodedEvent<'a>) -> Option<&'a str> {
    event.profile.resource.get("container.id")?.as_str()
}

/// The sidecar's configuration.
fn configuration(samples_per_second: u32, error_mode: &str, endpoint: &str) -> String {
    format!(
        "receivers:
  profiling:
    samples_per_second: {samples_per_second}
    reporter_interval: 1s
    error_mode: {error_mode}
    scope: {{ mode: pod }}
exporters:
  otlp_grpc: {{ endpoint: '{endpoint}', tls: {{ insecure: true }} }}
service:
  pipelines:
    profiles: {{ receivers: [profiling], exporters: [otlp_grpc] }}
"
    )
}

/// The sidecar's `securityContext` in a Deployment.
fn security_context(deployment: &Value) -> Option<&Value> {
    let containers = deployment.pointer("/spec/template/spec/initContainers")?.as_array()?;
    containers.iter().find(|container| container["name"] == "sidewinder")?.get("securityContext")
}

#[test]
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
