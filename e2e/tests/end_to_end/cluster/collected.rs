//! A Collector's `k8s_attributes` finds the pods of our profiles, and of a service's spans, on the API server.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use sidewinder_e2e_charts as charts;
use sidewinder_e2e_cluster::Cluster;
use sidewinder_e2e_instrumented::service::Service;
use sidewinder_e2e_pod::Cgroup;
use sidewinder_e2e_support::cgroup;
use sidewinder_e2e_support::collector::{Collector, KubernetesSetup, Setup};
use sidewinder_e2e_support::command::run;
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::received::Received;
use sidewinder_e2e_support::session::{Daemon, Settings};
use sidewinder_e2e_support::workload::{self, Gated};
use sidewinder_otlp::decode::DecodedProfile;

use super::pod;

const EXAMPLE: &str = "sidewinder/examples/with-gateway/collector.yaml";
const NODE: &str = "node-1";
const POD_IP: &str = "10.1.2.3";
const POD: &str = "shop-6d4cf56db6-x2v9p";
/// Its containers.
const CONTAINERS: [&str; 2] = ["shop", "cache"];
/// What each process has to do.
const SECONDS_AND_DEPTH: [&str; 2] = ["3", "10"];

#[promise(Cluster, test_all)]
fn a_collector_adds_what_the_api_server_knows_of_a_pod_and_each_of_its_containers() -> Result<()> {
    let test = "a_collector_adds_what_the_api_server_knows_of_a_pod_and_each_of_its_containers";
    let Some(cluster) = Cluster::start(test)? else { return Ok(()) };
    if !sidewinder_e2e_pod::are_possible(test)? {
        return Ok(());
    }
    let (uid, ids) = deployed(&cluster)?;
    let collector =
        Collector::set_up(Setup { kubernetes: Some(as_in_the_example(&cluster)?), ..Setup::default() })?;

    // Two containers as a node has them, a process that says nothing but its pod's address, and a stranger.
    let pod = Cgroup::create(&format!("kubepods/burstable/pod{uid}"))?;
    let cgroups = ids.iter().map(|id| pod.child(id)).collect::<Result<Vec<_>>>()?;
    let mut processes = Vec::new();
    for cgroup in &cgroups {
        let mut command = cgroup::command_in(&cgroup.procs(), workload::REC.compiled()?);
        command.args(SECONDS_AND_DEPTH);
        processes.push(Gated::start(command)?);
    }
    for attributes in [format!("k8s.pod.ip={POD_IP}"), String::new()] {
        let mut command = workload::REC.command(&SECONDS_AND_DEPTH)?;
        command.env("OTEL_RESOURCE_ATTRIBUTES", attributes);
        processes.push(Gated::start(command)?);
    }
    // And a service that sends spans too.
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", collector.http_endpoint()),
        ("OTEL_RESOURCE_ATTRIBUTES", format!("k8s.pod.ip={POD_IP},container.id={}", ids[0])),
    ];
    let service = Service::start_in(2, 400, &variables)?;
    let settings = Settings { samples_per_second: 97, ..Settings::default() };
    let daemon = Daemon::start(&settings, &collector.grpc_endpoint())?;
    let pids: Vec<u32> = processes.iter().map(Gated::pid).collect();
    let service_pid = service.pid();
    processes.iter_mut().try_for_each(Gated::open)?;
    service.ask(2, Duration::from_secs(3))?;
    service.finish()?;
    processes.into_iter().try_for_each(|process| process.finish().map(|_| ()))?;
    daemon.stop()?;
    let received = collector.stop()?;

    let [shop, cache, by_address, stranger] = <[u32; 4]>::try_from(pids).ok().context("four processes")?;
    for pid in [shop, cache, by_address] {
        for (key, value) in [
            ("k8s.deployment.name", "shop"),
            ("k8s.namespace.name", "shop"),
            ("k8s.pod.name", POD),
            ("k8s.pod.uid", uid.as_str()),
            ("k8s.node.name", NODE),
        ] {
            assert_eq!(attribute(&received, pid, key)?.as_deref(), Some(value), "{key}");
        }
    }
    for (pid, container) in
        [(shop, Some("shop")), (cache, Some("cache")), (by_address, None), (stranger, None)]
    {
        assert_eq!(attribute(&received, pid, "k8s.container.name")?.as_deref(), container);
    }
    assert_eq!(attribute(&received, stranger, "k8s.deployment.name")?, None);

    ensure!(!received.spans.is_empty(), "no span");
    for (key, value) in [
        ("container.id", ids[0].as_str()),
        ("k8s.container.name", CONTAINERS[0]),
        ("k8s.deployment.name", "shop"),
        ("k8s.namespace.name", "shop"),
        ("k8s.pod.name", POD),
        ("k8s.node.name", NODE),
        ("service.name", "example"),
    ] {
        // Until the process was first looked at it had no name of its own.
        let last = received.profiles_of(service_pid).last().context("no profile of the service")?;
        let of_profile = last.resource.get(key).and_then(|value| value.as_str());
        assert_eq!(of_profile, Some(value), "{key} of profiles");
        for span in &received.spans {
            assert_eq!(span.resource.get(key).map(String::as_str), Some(value), "{key} of spans");
        }
    }
    Ok(())
}

/// A Deployment down to a pod that runs, as controllers and a kubelet would have made it: the pod's UID, and the ids of
/// its containers.
fn deployed(cluster: &Cluster) -> Result<(String, Vec<String>)> {
    cluster.create_namespace("shop", &json!({}))?;
    let labels = json!({ "app": "shop", "pod-template-hash": "6d4cf56db6" });
    let template = pod("shop", "", &json!({ "labels": labels }), &json!({}));
    let workload = |kind: &str, name: &str, owner: &Value| {
        cluster.create(&json!({
            "apiVersion": "apps/v1",
            "kind": kind,
            "metadata": { "namespace": "shop", "name": name, "ownerReferences": owner },
            "spec": {
                "selector": { "matchLabels": labels },
                "template": { "metadata": { "labels": labels }, "spec": template["spec"] },
            },
        }))
    };
    let deployment = workload("Deployment", "shop", &json!([]))?;
    let replica_set = workload("ReplicaSet", "shop-6d4cf56db6", &owned_by(&deployment))?;
    let containers = CONTAINERS.map(|name| json!({ "name": name, "image": "shop:1.0.0" }));
    let pod = cluster.create(&pod(
        "shop",
        POD,
        &json!({ "labels": labels, "ownerReferences": owned_by(&replica_set) }),
        &json!({ "nodeName": NODE, "containers": containers }),
    ))?;
    let uid = pod.pointer("/metadata/uid").and_then(Value::as_str).context("a pod without a UID")?.to_owned();

    let ids: Vec<String> = CONTAINERS
        .iter()
        .map(|_| [rand::random::<u128>(), rand::random()].map(|half| format!("{half:032x}")).concat())
        .collect();
    let statuses: Vec<Value> = CONTAINERS
        .iter()
        .zip(&ids)
        .map(|(name, id)| {
            json!({
                "name": name, "image": "shop:1.0.0", "imageID": "", "ready": true, "restartCount": 0,
                "containerID": format!("containerd://{id}"),
            })
        })
        .collect();
    let status = json!({ "status": {
        "phase": "Running", "podIP": POD_IP, "podIPs": [{ "ip": POD_IP }], "containerStatuses": statuses,
    } });
    run(cluster.kubectl().args([
        "patch",
        "pod",
        POD,
        "--namespace=shop",
        "--subresource=status",
        "--patch",
        &status.to_string(),
    ]))?;
    Ok((uid, ids))
}

fn owned_by(owner: &Value) -> Value {
    json!([{
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": true,
    }])
}

/// The processor of the Collector that we show, asking as its account with the role that we show.
fn as_in_the_example(cluster: &Cluster) -> Result<KubernetesSetup> {
    let text = fs::read_to_string(charts::folder().join(EXAMPLE))?;
    cluster.create_namespace("observability", &json!({}))?;
    let mut relay = None;
    for manifest in charts::documents(&text)? {
        cluster.create(&manifest)?;
        relay = relay.or(manifest.pointer("/data/relay").and_then(Value::as_str).map(str::to_owned));
    }
    let configuration: Value = serde_yaml::from_str(&relay.context("no configuration in the example")?)?;
    let mut attributes =
        configuration.pointer("/processors/k8s_attributes").context("no k8s_attributes")?.clone();
    // It is not in a pod, and the first profile counts here.
    attributes["auth_type"] = json!("kubeConfig");
    attributes["wait_for_metadata"] = json!(true);
    Ok(KubernetesSetup { attributes, kubeconfig: cluster.as_account("observability", "collector")? })
}

/// The value of a resource attribute of all profiles of a process, of which there must be some.
fn attribute(received: &Received, pid: u32, key: &str) -> Result<Option<String>> {
    let value = |profile: &DecodedProfile| Some(profile.resource.get(key)?.as_str()?.to_owned());
    let mut values = received.profiles_of(pid).map(value);
    let first = values.next().with_context(|| format!("no profile of {pid}"))?;
    ensure!(values.all(|value| value == first), "{key} of {pid} has several values");
    Ok(first)
}
