//! What the charts make is created, and what would not work is refused before.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use sidewinder_e2e_charts as charts;
use sidewinder_e2e_cluster::Cluster;
use sidewinder_e2e_support::command::run;
use sidewinder_e2e_support::promise::promise;

use super::install;
use crate::charts::{chart, copy_of_user, helms, manifests};

/// Kinds that others bring.
const OF_OPERATORS: [&str; 3] = ["PodMonitor", "PrometheusRule", "SecurityContextConstraints"];

#[promise(Cluster, test_all)]
fn each_manifest_of_the_examples_is_taken() -> Result<()> {
    let Some(cluster) = Cluster::start("each_manifest_of_the_examples_is_taken")? else { return Ok(()) };
    for namespace in ["profiling", "observability", "shop"] {
        cluster.create_namespace(namespace, &json!({}))?;
    }
    let mut taken = 0;
    for (of, mut manifest) in manifests()? {
        if manifest["kind"].as_str().is_some_and(|kind| OF_OPERATORS.contains(&kind)) {
            continue;
        }
        if manifest.pointer("/metadata/namespace").is_none() {
            manifest["metadata"]["namespace"] = json!("shop");
        }
        let kept = cluster.try_to_create(&manifest).with_context(|| format!("{of}: {}", manifest["kind"]))?;
        assert_eq!(kept["kind"], manifest["kind"], "{of}");
        taken += 1;
    }
    ensure!(taken > 25, "only {taken} manifests");
    let unknown = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" }, "dat": {} });
    let refused = cluster.try_to_create(&unknown).map(|_| ()).unwrap_err();
    ensure!(refused.to_string().contains("unknown field \"dat\""), "{refused}");
    Ok(())
}

#[promise(Cluster, test_all)]
fn helm_installs_upgrades_and_uninstalls_each_mode() -> Result<()> {
    let test = "helm_installs_upgrades_and_uninstalls_each_mode";
    let Some(cluster) = Cluster::start(test)? else { return Ok(()) };
    cluster.create_namespace("profiling", &json!({}))?;
    let kinds = "serviceaccounts,configmaps,podtemplates,daemonsets,clusterroles,clusterrolebindings,networkpolicies,\
                 mutatingadmissionpolicies,mutatingadmissionpolicybindings";
    let ours = || -> Result<Vec<String>> {
        let mut get = cluster.kubectl();
        get.args(["get", kinds, "--all-namespaces", "--selector=app.kubernetes.io/instance=example"]);
        let found: Value = serde_json::from_str(&run(get.args(["--output=json"]))?)?;
        let items = found["items"].as_array().context("no items")?;
        Ok(items.iter().filter_map(|item| Some(item["kind"].as_str()?.to_owned())).collect())
    };
    let everything = ["--set=podMonitor.enabled=false,prometheusRule.enabled=false,namespaceOverride="];
    let policy = ["MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"];
    for helm in helms(test)? {
        // With the dashboard's ConfigMap.
        let of_everything = [
            "ServiceAccount",
            "ConfigMap",
            "DaemonSet",
            "ClusterRole",
            "ClusterRoleBinding",
            "NetworkPolicy",
        ];
        for (values, set, expected) in [
            ("ci/daemonset-values.yaml", &[][..], &["ServiceAccount", "ConfigMap", "DaemonSet"][..]),
            ("ci/everything-values.yaml", &everything[..], &of_everything[..]),
            // The version that this API server prefers.
            ("ci/injector-values.yaml", &["--set=injector.apiVersion="][..], &policy[..]),
        ] {
            let said = install(&cluster, &helm, "profiling", values, set)?;
            ensure!(said.contains("STATUS: deployed"), "{values}: {said}");
            let mut found = ours()?;
            // What `extraManifests` makes has the labels that are written there.
            let mut expected: Vec<_> = expected.iter().map(ToString::to_string).collect();
            found.sort();
            expected.sort();
            assert_eq!(found, expected, "{values}");
            let mut upgrade = cluster.command(&helm);
            upgrade.args(["upgrade", "example", "--namespace=profiling", "--reuse-values"]).arg(chart());
            run(upgrade.args(["--set", "resources.limits.memory=160Mi"]))?;
            run(cluster.command(&helm).args(["uninstall", "example", "--namespace=profiling"]))?;
            assert_eq!(ours()?, Vec::<String>::new(), "{values}");
        }
    }
    Ok(())
}

#[promise(Cluster, test_all)]
fn helm_installs_a_chart_that_uses_the_library() -> Result<()> {
    let test = "helm_installs_a_chart_that_uses_the_library";
    let Some(cluster) = Cluster::start(test)? else { return Ok(()) };
    cluster.create_namespace("shop", &json!({}))?;
    for helm in helms(test)? {
        let (_copy, folder) = copy_of_user(&helm, &charts::folder().join("sidewinder-lib/examples/shop"))?;
        run(cluster.command(&helm).args(["install", "example", "--namespace=shop"]).arg(folder))?;
        let deployments = run(cluster.kubectl().args(["get", "deployments", "--namespace=shop", "-o=json"]))?;
        let deployments: Value = serde_json::from_str(&deployments)?;
        let sidecar = "/items/0/spec/template/spec/initContainers/0";
        let sidecar = deployments.pointer(sidecar).context("no sidecar")?;
        assert_eq!(sidecar["name"], "sidewinder");
        assert_eq!(sidecar["restartPolicy"], "Always");
        run(cluster.command(&helm).args(["uninstall", "example", "--namespace=shop"]))?;
    }
    Ok(())
}

#[promise(Cluster, test_all)]
fn an_injector_whose_sidecar_the_api_server_would_refuse_is_not_installed() -> Result<()> {
    let test = "an_injector_whose_sidecar_the_api_server_would_refuse_is_not_installed";
    let Some(cluster) = Cluster::start(test)? else { return Ok(()) };
    cluster.create_namespace("profiling", &json!({}))?;
    for helm in helms(test)? {
        for (wrong, path) in [
            (r#"securityContext={"runAsUser": "root"}"#, "runAsUser"),
            (r#"securityContext={"privilged": true}"#, "privilged"),
            (r#"resources={"limits": {"memory": "64Mb"}}"#, "quantities"),
            (
                r#"extraVolumeMounts=[{"name": "nowhere", "mountPath": "/x"}]"#,
                "initContainers[0].volumeMounts[0].name",
            ),
            (r#"livenessProbe={"exec": {"command": "status"}}"#, "command"),
        ] {
            let arguments = ["--set=injector.apiVersion=", "--set-json", wrong];
            let installed = install(&cluster, &helm, "profiling", "ci/injector-values.yaml", &arguments);
            let said = refusal(installed);
            ensure!(said.contains(path), "{}: {wrong}: {said}", helm.display());
            let policies =
                run(cluster.kubectl().args(["get", "mutatingadmissionpolicies", "--output=name"]))?;
            assert_eq!(policies, "", "{wrong}");
            let mut uninstall = cluster.command(&helm);
            run(uninstall.args(["uninstall", "example", "--namespace=profiling", "--ignore-not-found"]))?;
        }
    }
    Ok(())
}

/// What Helm said, without the command that was run.
fn refusal(installed: Result<String>) -> String {
    let said = installed.map_or_else(|error| error.to_string(), |_| "installed".to_owned());
    said.rsplit("ended with").next().unwrap_or_default().to_owned()
}

#[promise(Cluster, test_all)]
fn a_daemonset_that_could_not_start_is_not_installed() -> Result<()> {
    let test = "a_daemonset_that_could_not_start_is_not_installed";
    let Some(cluster) = Cluster::start(test)? else { return Ok(()) };
    cluster.create_namespace("profiling", &json!({}))?;
    for level in ["baseline", "restricted"] {
        cluster.create_namespace(level, &json!({ "pod-security.kubernetes.io/enforce": level }))?;
    }
    let node = |name: &str, labels: &Value| {
        let metadata = json!({ "name": name, "labels": labels });
        cluster.create(&json!({ "apiVersion": "v1", "kind": "Node", "metadata": metadata }))
    };
    let refused = |helm: &std::path::Path, namespace: &str, reason: &str| {
        let installed = install(&cluster, helm, namespace, "ci/daemonset-values.yaml", &[]);
        let said = refusal(installed);
        ensure!(said.contains(reason), "{namespace}: {said}");
        Ok(())
    };
    let helms = helms(test)?;
    for helm in &helms {
        refused(helm, "baseline", "the namespace baseline enforces baseline")?;
        refused(helm, "restricted", "the namespace restricted enforces restricted")?;
    }
    node("fargate", &json!({ "eks.amazonaws.com/compute-type": "fargate" }))?;
    for helm in &helms {
        refused(helm, "profiling", "Every node is an AWS Fargate node")?;
    }
    node("gk3-pool-1", &json!({}))?;
    for helm in &helms {
        refused(helm, "profiling", "This is a GKE Autopilot cluster")?;
        install(&cluster, helm, "profiling", "ci/daemonset-values.yaml", &["--set=preflight.enabled=false"])?;
        run(cluster.command(helm).args(["uninstall", "example", "--namespace=profiling"]))?;
    }
    Ok(())
}
