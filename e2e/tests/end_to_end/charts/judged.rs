//! What those who read the charts say of them.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use sidewinder_e2e_charts::{self as charts, promql, tool};
use sidewinder_e2e_support::command::run;
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::{collector, paths, sidewinder};

use super::{chart, helms, manifests, values};

#[promise(Charts)]
fn helm_3_and_4_find_no_fault_with_the_charts() -> Result<()> {
    for helm in helms("helm_3_and_4_find_no_fault_with_the_charts")? {
        let lint = |chart: &Path, arguments: &[&str]| {
            let mut command = Command::new(&helm);
            command.args(["lint", "--strict", "--kube-version", charts::KUBERNETES]);
            run(command.arg(chart).args(arguments))
        };
        lint(&charts::folder().join("sidewinder-lib"), &[])?;
        for values in values()? {
            lint(&chart(), &["--values", &values.display().to_string()])?;
        }
    }
    Ok(())
}

#[promise(Charts, test_all)]
fn each_unit_test_of_the_charts_passes() -> Result<()> {
    let Some(unittest) = tool("each_unit_test_of_the_charts_passes", "helm-unittest")? else { return Ok(()) };
    let said = run(Command::new(unittest).arg("--strict").arg(chart()))?;
    ensure!(said.contains("Tests:"), "no test ran:\n{said}");
    Ok(())
}

#[promise(Charts, test_all)]
fn each_example_is_valid_from_kubernetes_1_29_to_1_37() -> Result<()> {
    let Some(packages) = tool("each_example_is_valid_from_kubernetes_1_29_to_1_37", "python")? else {
        return Ok(());
    };
    let entries: Vec<Value> =
        manifests()?.into_iter().map(|(of, manifest)| json!({ "of": of, "manifest": manifest })).collect();
    let mut validate = Command::new("python3")
        .arg(paths::e2e().join("charts/validate.py"))
        .env("PYTHONPATH", packages)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    validate.stdin.take().context("no standard input")?.write_all(&serde_json::to_vec(&entries)?)?;
    let output = validate.wait_with_output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let held: usize = String::from_utf8_lossy(&output.stdout).trim().parse()?;
    ensure!(held > 200, "only {held} were held against a schema");
    Ok(())
}

/// `--set` makes text of a number that is not whole; the chart's schema and Sidewinder take that.
#[promise(Charts, test_all)]
fn a_fraction_that_helm_sets_holds() -> Result<()> {
    for helm in helms("a_fraction_that_helm_sets_holds")? {
        let values = chart().join("ci/daemonset-values.yaml").display().to_string();
        let set = "config.receivers.profiling.off_cpu_threshold=0.01";
        let rendered = run(&mut charts::template(
            &helm,
            &chart(),
            &["--values", &values, "--set", set, "--show-only", "templates/configmap.yaml"],
        ))?;
        let documents = charts::documents(&rendered)?;
        let configuration = documents.iter().flat_map(configurations).next().context("no configuration")?;
        let mut print = sidewinder::command()?;
        print
            .args(["print-config", "--config=env:SIDEWINDER_CONFIG"])
            .env("SIDEWINDER_CONFIG", configuration);
        for name in ["K8S_NAMESPACE_NAME", "K8S_NODE_NAME", "K8S_POD_NAME", "K8S_POD_UID"] {
            print.env(name, "a");
        }
        let printed = run(&mut print)?;
        ensure!(printed.contains("off_cpu_threshold: 0.01\n"), "{}: {printed}", helm.display());
    }
    Ok(())
}

/// Configurations of Sidewinder in a manifest.
fn configurations(manifest: &Value) -> Vec<String> {
    let mut found = Vec::new();
    match manifest {
        Value::Object(map) => {
            let named = map.get("name").is_some_and(|name| name == "SIDEWINDER_CONFIG" || name == "config");
            // Of a container's variable, or of a variable of the injector's policy.
            let text = ["value", "expression"].iter().find_map(|key| map.get(*key)?.as_str());
            let in_config_map = map.get("relay").and_then(Value::as_str);
            found.extend(text.filter(|_| named).map(unescaped));
            found.extend(in_config_map.map(str::to_owned));
            found.extend(map.values().flat_map(configurations));
        }
        Value::Array(items) => found.extend(items.iter().flat_map(configurations)),
        _ => {}
    }
    found.retain(|text| text.contains("profiling"));
    found
}

/// As kubelet, and CEL, hand it on.
fn unescaped(value: &str) -> String {
    let text = value.strip_prefix("r\"\"\"").and_then(|text| text.strip_suffix("\"\"\"")).unwrap_or(value);
    text.replace("$$", "$")
}

#[promise(Charts)]
fn each_configuration_in_the_examples_holds() -> Result<()> {
    let mut held = 0;
    for (of, manifest) in manifests()? {
        for configuration in configurations(&manifest) {
            let mut validate = sidewinder::command()?;
            // Certificates and directories are the pod's.
            validate.args(["validate", "--skip-files", "--config=env:SIDEWINDER_CONFIG"]);
            validate.env("SIDEWINDER_CONFIG", &configuration);
            // What the pod would have.
            for name in ["SERVICE_NAME", "NAMESPACE_NAME", "NODE_NAME", "POD_NAME", "POD_UID"] {
                validate.env(format!("K8S_{name}"), "a");
            }
            validate.envs([("MY_POD_IP", "10.0.0.1"), ("MY_NODE_IP", "10.0.0.2")]);
            validate.envs([("SIDEWINDER_ENDPOINT", "collector:4317"), ("SIDEWINDER_INSECURE", "true")]);
            let said = run(&mut validate).with_context(|| format!("{of}:\n{configuration}"))?;
            ensure!(!said.contains("warning"), "{of}: {said}");
            held += 1;
        }
    }
    ensure!(held > 8, "only {held} configurations");
    Ok(())
}

#[promise(Charts)]
fn a_collector_takes_the_configurations_of_the_examples() -> Result<()> {
    let collector = collector::build(collector::Version::Oldest)?;
    let mut held = 0;
    for (of, manifest) in manifests()? {
        let text = manifest.pointer("/data/relay").and_then(Value::as_str).unwrap_or_default();
        // Its k8s_attributes is shown with an API server.
        if !text.contains("otlp:\n") || text.contains("k8s_attributes") {
            continue;
        }
        let mut validate = Command::new(&collector);
        validate.args(["validate", "--config=env:RELAY", "--feature-gates=+service.profilesSupport"]);
        validate.env("RELAY", text).env("MY_POD_IP", "127.0.0.1");
        run(&mut validate).with_context(|| of.clone())?;
        held += 1;
    }
    ensure!(held == 2, "{held} configurations of Collectors");
    Ok(())
}

#[promise(Status)]
fn alerts_and_dashboards_ask_for_metrics_that_exist() -> Result<()> {
    let known = fs::read_to_string(paths::repository().join("docs/metrics.md"))?;
    let rules: Vec<_> = manifests()?.iter().flat_map(|(_, manifest)| promql::of_rules(manifest)).collect();
    let panels = promql::of_dashboard(&promql::dashboard()?);
    ensure!(rules.len() >= 6 && panels.len() >= 20, "{} of rules, {} of panels", rules.len(), panels.len());
    for expression in rules.iter().chain(&panels) {
        let metrics = promql::metrics(expression);
        ensure!(!metrics.is_empty(), "{expression} asks for no metric of ours");
        for metric in metrics {
            ensure!(known.contains(&format!("| `{metric}` |")), "{expression}: there is no {metric}");
        }
    }
    Ok(())
}
