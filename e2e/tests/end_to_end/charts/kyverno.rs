//! What Kyverno's own engine makes of pods, by the policy in `charts/kyverno`.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use sidewinder_e2e_charts::{self as charts, tool};
use sidewinder_e2e_support::command::run;
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::requirement;

use crate::cluster::pod;

/// A namespace where Pod Security refuses the sidecar, and the label that says so.
const RESTRICTED: &str = "restricted";

/// Kyverno's command line; `None`, and `test` is recorded as skipped, outside of `make kyverno-test`.
fn kyverno(test: &str) -> Result<Option<PathBuf>> {
    if env::var_os("SIDEWINDER_KYVERNO").is_none() {
        requirement::elsewhere(test, "make kyverno-test")?;
        return Ok(None);
    }
    tool(test, "kyverno")
}

/// The pods as the policy leaves them, in their order. Their names differ.
fn applied(kyverno: &Path, pods: &[Value]) -> Result<Vec<Value>> {
    let folder = tempfile::tempdir()?;
    let [resources, values, mutated] =
        ["pods.yaml", "values.yaml", "mutated"].map(|name| folder.path().join(name));
    let documents: Vec<String> = pods.iter().map(Value::to_string).collect();
    fs::write(&resources, documents.join("\n---\n"))?;
    fs::create_dir(&mutated)?;
    let namespaces = json!([
        { "name": "shop", "labels": { "team": "shop" } },
        { "name": RESTRICTED, "labels": { "pod-security.kubernetes.io/enforce": RESTRICTED } },
    ]);
    let all =
        json!({ "apiVersion": "cli.kyverno.io/v1alpha1", "kind": "Values", "namespaceSelector": namespaces });
    fs::write(&values, all.to_string())?;
    let mut command = Command::new(kyverno);
    command.arg("apply").arg(charts::folder().join("kyverno/policy.yaml")).arg("--resource").arg(&resources);
    let output = run(command.arg("--values-file").arg(&values).arg("--output").arg(&mutated))?;
    let read = |pod: &Value| {
        let name = pod["metadata"]["name"].as_str().context("a pod without a name")?;
        let text = fs::read_to_string(mutated.join(format!("{name}-mutated.yaml")));
        let text = text.with_context(|| format!("nothing of {name}: {output}"))?;
        let [document] =
            <[Value; 1]>::try_from(charts::documents(&text)?).map_err(|_| anyhow::anyhow!("{text}"))?;
        Ok(document)
    };
    pods.iter().map(read).collect()
}

/// The sidecar of a pod, in which one container has the name.
fn sidecar(pod: &Value) -> Result<&Value> {
    let containers =
        pod["spec"]["initContainers"].as_array().with_context(|| format!("no sidecar in {pod}"))?;
    let mut found = containers.iter().filter(|container| container["name"] == "sidewinder");
    let sidecar = found.next().with_context(|| format!("no sidecar in {pod}"))?;
    ensure!(found.next().is_none(), "two of them in {pod}");
    Ok(sidecar)
}

fn service_name(pod: &Value) -> Result<&str> {
    let variables = sidecar(pod)?["env"].as_array().context("no variables")?;
    let variable = variables.iter().find(|variable| variable["name"] == "K8S_SERVICE_NAME");
    variable.and_then(|variable| variable["value"].as_str()).with_context(|| format!("no service in {pod}"))
}

#[promise(Injection, test_all)]
fn the_engine_of_kyverno_adds_the_sidecar_and_leaves_the_rest_of_the_pod() -> Result<()> {
    let test = "the_engine_of_kyverno_adds_the_sidecar_and_leaves_the_rest_of_the_pod";
    let Some(kyverno) = kyverno(test)? else { return Ok(()) };
    let migrate = json!({ "initContainers": [{ "name": "migrate", "image": "shop:1.0.0" }] });
    let pods = [pod("shop", "bare", &json!({}), &json!({})), pod("shop", "with-more", &json!({}), &migrate)];
    for (created, mutated) in pods.iter().zip(applied(&kyverno, &pods)?) {
        let sidecar = sidecar(&mutated)?;
        ensure!(sidecar["restartPolicy"] == "Always", "no native sidecar: {sidecar}");
        let added = &sidecar["securityContext"]["capabilities"]["add"];
        ensure!(*added == json!(["BPF", "PERFMON", "SYS_PTRACE"]), "{added}");
        ensure!(mutated["spec"]["shareProcessNamespace"] == true, "{mutated}");
        // All else is as it was.
        let mut rest = mutated.clone();
        let spec = rest["spec"].as_object_mut().context("no spec")?;
        spec.remove("shareProcessNamespace");
        let containers = spec["initContainers"].as_array_mut().context("no containers")?;
        containers.retain(|container| container["name"] != "sidewinder");
        if containers.is_empty() {
            spec.remove("initContainers");
        }
        ensure!(rest == *created, "{rest}\nwas\n{created}");
        let again = applied(&kyverno, std::slice::from_ref(&mutated))?;
        ensure!(again == [mutated], "changed a second time: {again:?}");
    }
    Ok(())
}

#[promise(Injection, test_all)]
fn the_engine_of_kyverno_names_the_service_by_what_the_pod_has() -> Result<()> {
    let test = "the_engine_of_kyverno_names_the_service_by_what_the_pod_has";
    let Some(kyverno) = kyverno(test)? else { return Ok(()) };
    let labels = |more: Value| {
        let mut labels = json!({ "sidewinder/inject": "true" });
        for (key, value) in more.as_object().into_iter().flatten() {
            labels[key] = value.clone();
        }
        labels
    };
    let owner = |name: &str| json!([{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": "1", "controller": true }]);
    let annotations = json!({ "resource.opentelemetry.io/service.name": "annotated" });
    let cases = [
        (
            "annotated",
            json!({ "annotations": annotations, "labels": labels(json!({ "app.kubernetes.io/name": "name" })) }),
        ),
        (
            "instance",
            json!({ "labels": labels(json!({ "app.kubernetes.io/instance": "instance", "app.kubernetes.io/name": "name" })) }),
        ),
        (
            "name",
            json!({ "labels": labels(json!({ "app.kubernetes.io/name": "name" })), "ownerReferences": owner("of-shop") }),
        ),
        (
            "shop",
            json!({ "labels": labels(json!({ "pod-template-hash": "5d8f" })), "ownerReferences": owner("shop-5d8f") }),
        ),
        ("nightly", json!({ "ownerReferences": owner("nightly") })),
        ("pod-5", json!({})),
    ];
    let pods: Vec<Value> = cases
        .iter()
        .enumerate()
        .map(|(number, (_, metadata))| pod("shop", &format!("pod-{number}"), metadata, &json!({})))
        .collect();
    for ((expected, _), pod) in cases.iter().zip(applied(&kyverno, &pods)?) {
        ensure!(service_name(&pod)? == *expected, "{} is not {expected}: {pod}", service_name(&pod)?);
    }
    Ok(())
}

#[promise(Injection, test_all)]
fn the_engine_of_kyverno_leaves_alone_what_could_not_be_profiled() -> Result<()> {
    let test = "the_engine_of_kyverno_leaves_alone_what_could_not_be_profiled";
    let Some(kyverno) = kyverno(test)? else { return Ok(()) };
    let own = json!({ "name": "sidewinder", "image": "own:1" });
    let shop = json!({ "name": "shop", "image": "shop:1.0.0" });
    let pods = [
        pod("shop", "without-label", &json!({ "labels": {} }), &json!({})),
        pod("shop", "other-label", &json!({ "labels": { "sidewinder/inject": "false" } }), &json!({})),
        pod("shop", "has-container", &json!({}), &json!({ "containers": [shop, own] })),
        pod("shop", "has-init-container", &json!({}), &json!({ "initContainers": [own] })),
        pod("shop", "own-processes", &json!({}), &json!({ "shareProcessNamespace": false })),
        pod("shop", "processes-of-the-node", &json!({}), &json!({ "hostPID": true })),
        pod("shop", "user-namespace", &json!({}), &json!({ "hostUsers": false })),
        pod("shop", "windows", &json!({}), &json!({ "os": { "name": "windows" } })),
        pod(
            "shop",
            "resources-of-the-pod",
            &json!({}),
            &json!({ "resources": { "limits": { "memory": "1Gi" } } }),
        ),
        pod(RESTRICTED, "where-it-is-refused", &json!({}), &json!({})),
    ];
    for (created, left) in pods.iter().zip(applied(&kyverno, &pods)?) {
        ensure!(left == *created, "{left}\nwas\n{created}");
    }
    // They are what the policy is about: one that has nothing of that is changed.
    let profiled =
        pod("shop", "profiled", &json!({}), &json!({ "os": { "name": "linux" }, "hostUsers": true }));
    let [profiled] =
        <[Value; 1]>::try_from(applied(&kyverno, &[profiled])?).map_err(|_| anyhow::anyhow!("no pod"))?;
    sidecar(&profiled)?;
    Ok(())
}
