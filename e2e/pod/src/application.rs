//! An application in a pod, and what its sidecar is given and says.

use std::path::PathBuf;

use anyhow::Result;
use sidewinder_e2e_support::workload::Program;
use sidewinder_otlp::decode::DecodedEvent;

use super::{ContainerSpec, Mount, SecurityContext};

/// Of the profiler as root, which the application is not.
pub const WITH_OTHER_USERS: [&str; 3] = ["CAP_BPF", "CAP_PERFMON", "CAP_SYS_PTRACE"];
/// Of the profiler as the application's own user.
pub const AS_THE_SAME_USER: [&str; 2] = ["CAP_BPF", "CAP_PERFMON"];
/// The application's user id.
pub const APP_USER: u32 = 10_001;
/// The feature that a sidecar lacks which can't have the events of containers alone.
pub const EVENTS_OF_EVERY_TASK: &str = "pod_events";
/// Where nobody listens.
pub const NOWHERE: &str = "127.0.0.1:9";

/// The `securityContext` of this user with these capabilities.
#[must_use]
pub fn security(user: u32, capabilities: &[&'static str]) -> SecurityContext {
    SecurityContext { capabilities: capabilities.to_vec(), ..SecurityContext::user(user) }
}

/// A program of the application, under the path that it has on this machine: the judge reads the same file.
///
/// # Errors
/// When it can't be compiled, or its libraries are not found.
pub fn app(program: Program, arguments: &[&str], cpu: Option<u32>) -> Result<ContainerSpec> {
    app_at(program.compiled()?, arguments, cpu)
}

/// As [`app`], of a program that is there.
///
/// # Errors
/// When its libraries are not found.
pub fn app_at(path: PathBuf, arguments: &[&str], cpu: Option<u32>) -> Result<ContainerSpec> {
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
#[must_use]
pub fn container_of<'a>(event: &DecodedEvent<'a>) -> Option<&'a str> {
    event.profile.resource.get("container.id")?.as_str()
}

/// The sidecar's configuration.
#[must_use]
pub fn configuration(samples_per_second: u32, error_mode: &str, endpoint: &str) -> String {
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
