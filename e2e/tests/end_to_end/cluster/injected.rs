//! What the injector makes of pods, and what it leaves as it is.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use sidewinder_e2e_charts::tool;
use sidewinder_e2e_cluster::Cluster;
use sidewinder_e2e_support::command::run;
use sidewinder_e2e_support::promise::promise;

use super::{install, pod};
use crate::telemetry::until;

const POLICY: &str = "mutatingadmissionpolicy/example-sidewinder";
const ENFORCE: &str = "pod-security.kubernetes.io/enforce";

/// An API server with the injector, which has begun to inject, and the namespace `shop`.
fn with_injector(test: &str, values: &str, arguments: &[&str]) -> Result<Option<Cluster>> {
    let (Some(cluster), Some(helm)) = (Cluster::start(test)?, tool(test, "helm4")?) else { return Ok(None) };
    cluster.create_namespace("profiling", &json!({}))?;
    cluster.create_namespace("shop", &json!({ "team": "shop" }))?;
    // The version that this API server prefers, not the one that is named for want of a server.
    let arguments = [&["--set=injector.apiVersion="], arguments].concat();
    install(&cluster, &helm, "profiling", values, &arguments)?;
    let any = json!({ "labels": { "sidewinder/inject": "true", "profiled": "" } });
    let any = pod("shop", "any", &any, &json!({}));
    until("a pod is injected", || Ok(sidecar(&cluster.try_to_create(&any)?).map(|_| ())))?;
    Ok(Some(cluster))
}

fn sidecar(pod: &Value) -> Option<&Value> {
    let containers = pod.pointer("/spec/initContainers")?.as_array()?;
    containers.iter().find(|container| container["name"] == "sidewinder")
}

/// The value of a variable of the sidecar.
fn variable<'a>(pod: &'a Value, name: &str) -> Result<&'a str> {
    let variables = sidecar(pod).and_then(|sidecar| sidecar["env"].as_array()).context("no sidecar")?;
    let variable = variables.iter().find(|variable| variable["name"] == name);
    variable.and_then(|variable| variable["value"].as_str()).with_context(|| format!("no {name}"))
}

fn names(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().filter_map(|item| item["name"].as_str()).collect()
}

#[promise(Injection, test_all)]
fn a_pod_with_the_label_gets_a_native_sidecar_and_shares_its_processes() -> Result<()> {
    let test = "a_pod_with_the_label_gets_a_native_sidecar_and_shares_its_processes";
    let Some(cluster) = with_injector(test, "ci/injector-values.yaml", &[])? else { return Ok(()) };
    let created = cluster.create(&pod("shop", "labelled", &json!({}), &json!({})))?;
    assert_eq!(created["spec"]["shareProcessNamespace"], true);
    assert_eq!(names(&created["spec"]["containers"]), ["shop"]);
    assert_eq!(names(&created["spec"]["initContainers"]), ["sidewinder"]);
    let mut sidecar = sidecar(&created).context("no sidecar")?.clone();
    let (variables, mounts) = (sidecar["env"].take(), sidecar["volumeMounts"].take());
    let of_pod = |name: &str, field: &str| json!({ "name": name, "valueFrom": { "fieldRef": { "apiVersion": "v1", "fieldPath": field } } });
    assert_eq!(
        variables,
        json!([
            { "name": "K8S_SERVICE_NAME", "value": "labelled" },
            of_pod("K8S_NAMESPACE_NAME", "metadata.namespace"),
            of_pod("K8S_NODE_NAME", "spec.nodeName"),
            of_pod("K8S_POD_NAME", "metadata.name"),
            of_pod("K8S_POD_UID", "metadata.uid"),
            of_pod("MY_NODE_IP", "status.hostIP"),
            of_pod("MY_POD_IP", "status.podIP"),
            { "name": "SIDEWINDER_CONFIG", "value": variable(&created, "SIDEWINDER_CONFIG")? },
        ])
    );
    assert_eq!(
        sidecar,
        json!({
            "name": "sidewinder",
            "image": format!("sidewinder:{}", env!("CARGO_PKG_VERSION")),
            "imagePullPolicy": "IfNotPresent",
            "restartPolicy": "Always",
            "args": ["--config=env:SIDEWINDER_CONFIG"],
            "env": null,
            "securityContext": {
                "allowPrivilegeEscalation": false,
                "capabilities": { "add": ["BPF", "PERFMON", "SYS_PTRACE"], "drop": ["ALL"] },
                "readOnlyRootFilesystem": true,
                "runAsGroup": 0,
                "runAsNonRoot": false,
                "runAsUser": 0,
                "seccompProfile": { "type": "RuntimeDefault" },
            },
            "resources": { "limits": { "memory": "64Mi" }, "requests": { "cpu": "10m", "memory": "64Mi" } },
            "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "FallbackToLogsOnError",
            "volumeMounts": null,
        })
    );
    // As any container, it gets the token of the pod's account.
    assert_eq!(mounts, created["spec"]["containers"][0]["volumeMounts"]);
    assert_eq!(mounts.as_array().map(Vec::len), Some(1), "{mounts}");

    // As it was created, once more: with a sidecar already.
    let again = cluster.create(&pod("shop", "again", &json!({}), &created["spec"]))?;
    assert_eq!(again["spec"]["initContainers"], created["spec"]["initContainers"]);
    Ok(())
}

#[promise(Injection, test_all)]
fn init_containers_volumes_and_pull_secrets_of_the_pod_stay_before_ours() -> Result<()> {
    let test = "init_containers_volumes_and_pull_secrets_of_the_pod_stay_before_ours";
    let values = "examples/injector-with-queue/values.yaml";
    let Some(cluster) = with_injector(test, values, &[])? else { return Ok(()) };
    let metadata = json!({ "labels": { "sidewinder/inject": "true", "profiled": "" } });
    let spec = json!({
        "initContainers": [{ "name": "migrate", "image": "shop:1.0.0" }, { "name": "mesh", "image": "mesh:1", "restartPolicy": "Always" }],
        "volumes": [{ "name": "carts", "emptyDir": {} }],
        "imagePullSecrets": [{ "name": "of-the-shop" }],
    });
    let created = cluster.create(&pod("shop", "with", &metadata, &spec))?;
    assert_eq!(names(&created["spec"]["initContainers"]), ["migrate", "mesh", "sidewinder"]);
    assert_eq!(names(&created["spec"]["imagePullSecrets"]), ["of-the-shop", "registry"]);
    let volumes = names(&created["spec"]["volumes"]);
    assert_eq!(volumes.first(), Some(&"carts"));
    assert!(volumes.ends_with(&["sidewinder-queue", "cluster-authority"]), "{volumes:?}");
    let bare = cluster.create(&pod("shop", "without", &metadata, &json!({})))?;
    assert_eq!(names(&bare["spec"]["initContainers"]), ["sidewinder"]);
    assert_eq!(names(&bare["spec"]["imagePullSecrets"]), ["registry"]);
    // Two volumes of one name are no pod.
    let same = json!({ "volumes": [{ "name": "cluster-authority", "emptyDir": {} }] });
    let same = cluster.create(&pod("shop", "same", &metadata, &same))?;
    assert_eq!(sidecar(&same), None);
    Ok(())
}

#[promise(Injection, test_all)]
fn pods_that_do_not_ask_for_it_or_could_not_be_profiled_are_left_as_they_are() -> Result<()> {
    let test = "pods_that_do_not_ask_for_it_or_could_not_be_profiled_are_left_as_they_are";
    let Some(cluster) = with_injector(test, "ci/injector-values.yaml", &[])? else { return Ok(()) };
    let own = json!({ "name": "sidewinder", "image": "own:1" });
    let shop = json!({ "name": "shop", "image": "shop:1.0.0" });
    for (name, metadata, spec) in [
        ("without-label", json!({ "labels": {} }), json!({})),
        ("other-label", json!({ "labels": { "sidewinder/inject": "false" } }), json!({})),
        ("has-container", json!({}), json!({ "containers": [shop, own] })),
        ("has-init-container", json!({}), json!({ "initContainers": [own] })),
        ("own-processes", json!({}), json!({ "shareProcessNamespace": false })),
        ("processes-of-the-node", json!({}), json!({ "hostPID": true })),
        ("user-namespace", json!({}), json!({ "hostUsers": false })),
        ("windows", json!({}), json!({ "os": { "name": "windows" } })),
        ("resources-of-the-pod", json!({}), json!({ "resources": { "limits": { "memory": "32Mi" } } })),
    ] {
        let wanted = pod("shop", name, &metadata, &spec);
        let created = cluster.create(&wanted).context(name)?;
        let before = &wanted["spec"];
        assert_eq!(names(&created["spec"]["initContainers"]), names(&before["initContainers"]), "{name}");
        assert_eq!(names(&created["spec"]["containers"]), names(&before["containers"]), "{name}");
        assert_ne!(created["spec"]["shareProcessNamespace"], true, "{name}");
    }
    Ok(())
}

#[promise(Injection, test_all)]
fn two_capabilities_are_given_where_the_pod_names_the_user_and_group_of_its_app() -> Result<()> {
    let test = "two_capabilities_are_given_where_the_pod_names_the_user_and_group_of_its_app";
    let Some(cluster) = with_injector(test, "ci/injector-values.yaml", &[])? else { return Ok(()) };
    let of_container =
        |context: Value| json!([{ "name": "shop", "image": "shop:1.0.0", "securityContext": context }]);
    for (name, spec, user) in [
        (
            "of-the-pod",
            json!({ "securityContext": { "runAsUser": 1000, "runAsGroup": 3000 } }),
            Some((1000, 3000)),
        ),
        (
            "of-the-container",
            json!({
                "securityContext": { "runAsUser": 1000, "runAsGroup": 3000 },
                "containers": of_container(json!({ "runAsUser": 2000 })),
            }),
            Some((2000, 3000)),
        ),
        (
            "group-of-root",
            json!({ "securityContext": { "runAsUser": 1000, "runAsGroup": 0 } }),
            Some((1000, 0)),
        ),
        ("no-group", json!({ "securityContext": { "runAsUser": 1000 } }), None),
        ("no-user", json!({ "containers": of_container(json!({ "runAsGroup": 3000 })) }), None),
        ("root", json!({ "securityContext": { "runAsUser": 0, "runAsGroup": 0 } }), None),
        ("anybody-but-root", json!({ "securityContext": { "runAsNonRoot": true } }), None),
    ] {
        let created = cluster.create(&pod("shop", name, &json!({}), &spec))?;
        let context = &sidecar(&created).with_context(|| format!("{name}: no sidecar"))?["securityContext"];
        let (user, group) = user.unwrap_or((0, 0));
        assert_eq!(context["runAsUser"], user, "{name}");
        assert_eq!(context["runAsGroup"], group, "{name}");
        assert_eq!(context["runAsNonRoot"], user != 0, "{name}");
        let added = match user {
            0 => json!(["BPF", "PERFMON", "SYS_PTRACE"]),
            _ => json!(["BPF", "PERFMON"]),
        };
        assert_eq!(context["capabilities"], json!({ "add": added, "drop": ["ALL"] }), "{name}");
    }
    Ok(())
}

#[promise(Injection, test_all)]
fn the_service_is_named_by_annotation_labels_owner_or_pod_in_this_order() -> Result<()> {
    let test = "the_service_is_named_by_annotation_labels_owner_or_pod_in_this_order";
    let Some(cluster) = with_injector(test, "ci/injector-values.yaml", &[])? else { return Ok(()) };
    let owner = |version: &str, kind: &str, name: &str| {
        let uid = "0a1b2c3d-0123-4567-89ab-0123456789ab";
        json!([{ "apiVersion": version, "kind": kind, "name": name, "uid": uid, "controller": true }])
    };
    let mut metadata = json!({
        "generateName": "shop-6d4cf56db6-",
        "labels": {
            "sidewinder/inject": "true",
            "pod-template-hash": "6d4cf56db6",
            "app.kubernetes.io/name": "by-name",
            "app.kubernetes.io/instance": "by-instance",
        },
        "annotations": { "resource.opentelemetry.io/service.name": "by-annotation" },
        "ownerReferences": owner("apps/v1", "ReplicaSet", "shop-6d4cf56db6"),
    });
    let named = |metadata: &Value| -> Result<String> {
        let mut pod = pod("shop", "", metadata, &json!({}));
        if let Some(metadata) = pod["metadata"].as_object_mut() {
            metadata.retain(|_, value| *value != "");
        }
        Ok(variable(&cluster.create(&pod)?, "K8S_SERVICE_NAME")?.to_owned())
    };
    assert_eq!(named(&metadata)?, "by-annotation");
    metadata["annotations"] = json!({ "resource.opentelemetry.io/service.name": "" });
    assert_eq!(named(&metadata)?, "by-instance", "an empty annotation names nothing");
    metadata["annotations"] = json!(null);
    assert_eq!(named(&metadata)?, "by-instance");
    metadata["labels"] = json!({
        "sidewinder/inject": "true", "pod-template-hash": "6d4cf56db6", "app.kubernetes.io/name": "by-name",
    });
    assert_eq!(named(&metadata)?, "by-name");
    metadata["labels"] = json!({ "sidewinder/inject": "true", "pod-template-hash": "6d4cf56db6" });
    assert_eq!(named(&metadata)?, "shop", "of a Deployment's pod, the ReplicaSet is the owner");
    metadata["labels"] = json!({ "sidewinder/inject": "true" });
    metadata["ownerReferences"] = owner("apps/v1", "StatefulSet", "ledger");
    assert_eq!(named(&metadata)?, "ledger");
    metadata["ownerReferences"] = json!(null);
    metadata["generateName"] = json!("migrate-");
    assert_eq!(named(&metadata)?, "migrate", "nobody owns it, and its name is made after the policy");
    metadata["generateName"] = json!("");
    metadata["name"] = json!("alone");
    assert_eq!(named(&metadata)?, "alone");
    Ok(())
}

#[promise(Injection, test_all)]
fn a_configuration_reaches_the_sidecar_as_it_was_written() -> Result<()> {
    let test = "a_configuration_reaches_the_sidecar_as_it_was_written";
    // What would end a text of CEL, at its end and within, and what kubelet takes for a variable.
    let dollars = r"a\nb'c $$(D) $(E) $$ ü";
    for (header, last) in [(dollars, "plain"), (dollars, "1"), (r#"a"""b\"#, "plain")] {
        let set = format!("config.exporters.otlp_grpc.headers={}", json!({ "x-text": header }));
        let resource = format!("config.service.telemetry.resource={}", json!({ "zone": last }));
        let arguments = ["--set-json", &set, "--set-json", &resource];
        let injector = with_injector(test, "ci/injector-values.yaml", &arguments)?;
        let Some(cluster) = injector else { return Ok(()) };
        let created = cluster.create(&pod("shop", "any", &json!({}), &json!({})))?;
        let text = as_kubelet(variable(&created, "SIDEWINDER_CONFIG")?);
        let configuration: Value = serde_yaml::from_str(&text).with_context(|| text.clone())?;
        assert_eq!(configuration.pointer("/exporters/otlp_grpc/headers/x-text"), Some(&json!(header)));
        assert_eq!(configuration.pointer("/service/telemetry/resource/zone"), Some(&json!(last)));
    }
    Ok(())
}

/// A variable's value as it is in the container, if no variable is referred to: `$$` is a dollar sign.
fn as_kubelet(value: &str) -> String {
    value.replace("$$", "$")
}

#[promise(Injection, test_all)]
fn where_pod_security_would_refuse_the_sidecar_the_app_is_admitted_without_it() -> Result<()> {
    let test = "where_pod_security_would_refuse_the_sidecar_the_app_is_admitted_without_it";
    let Some(cluster) = with_injector(test, "ci/injector-values.yaml", &[])? else { return Ok(()) };
    let restricted = json!({
        "containers": [{
            "name": "shop",
            "image": "shop:1.0.0",
            "securityContext": {
                "allowPrivilegeEscalation": false,
                "capabilities": { "drop": ["ALL"] },
                "runAsNonRoot": true,
                "seccompProfile": { "type": "RuntimeDefault" },
            },
        }],
    });
    for (level, injected) in [("baseline", false), ("restricted", false), ("privileged", true)] {
        cluster.create_namespace(level, &json!({ ENFORCE: level }))?;
        let created = cluster.create(&pod(level, "shop", &json!({}), &restricted))?;
        assert_eq!(sidecar(&created).is_some(), injected, "{level}");
        assert_eq!(created["spec"]["shareProcessNamespace"] == true, injected, "{level}");
    }
    // It is the policy that keeps out of there: without that, no failurePolicy helps.
    let everywhere = "/spec/matchConstraints/namespaceSelector/matchExpressions";
    cluster.patch(POLICY, &json!([{ "op": "remove", "path": everywhere }]))?;
    let refused = until("Pod Security refuses the sidecar", || {
        let created = cluster.try_to_create(&pod("baseline", "other", &json!({}), &restricted));
        Ok(created.err())
    })?;
    let refused = refused.to_string();
    ensure!(refused.contains("violates PodSecurity \"baseline:latest\""), "{refused}");
    ensure!(refused.contains("\"sidewinder\""), "{refused}");
    Ok(())
}

#[promise(Injection, test_all)]
fn a_policy_that_fails_does_not_keep_a_pod_from_being_created() -> Result<()> {
    let test = "a_policy_that_fails_does_not_keep_a_pod_from_being_created";
    let Some(cluster) = with_injector(test, "ci/injector-values.yaml", &[])? else { return Ok(()) };
    let wanted = pod("shop", "any", &json!({}), &json!({}));
    let failure_policy = |value: &str| {
        cluster.patch(POLICY, &json!([{ "op": "replace", "path": "/spec/failurePolicy", "value": value }]))
    };
    let kept = run(cluster.kubectl().args(["get", POLICY, "--output=json"]))?;
    let kept: Value = serde_json::from_str(&kept)?;
    for (of, expression) in [
        // No such key, only when it runs.
        ("/spec/variables/3/expression", "object.spec.nothing.there"),
        ("/spec/matchConditions/0/expression", "object.spec.nothing.there == 1"),
        // A patch that can't be applied.
        (
            "/spec/mutations/0/jsonPatch/expression",
            r#"[JSONPatch{op: "replace", path: "/spec/nothing/there", value: 1}]"#,
        ),
    ] {
        let was = kept.pointer(of).with_context(|| format!("no {of}"))?;
        cluster.patch(POLICY, &json!([{ "op": "replace", "path": of, "value": expression }]))?;
        // That it is broken shows where failing counts.
        failure_policy("Fail")?;
        let said = until("the broken policy fails", || Ok(cluster.try_to_create(&wanted).err()))?;
        ensure!(said.to_string().contains("example-sidewinder"), "{expression}: {said}");
        failure_policy("Ignore")?;
        let created = until("a pod is created", || Ok(cluster.try_to_create(&wanted).ok()))?;
        assert_eq!(sidecar(&created), None, "{expression}");
        assert_ne!(created["spec"]["shareProcessNamespace"], true, "{expression}");
        cluster.patch(POLICY, &json!([{ "op": "replace", "path": of, "value": was }]))?;
        until("a pod is injected", || Ok(sidecar(&cluster.try_to_create(&wanted)?).map(|_| ())))?;
    }
    Ok(())
}
