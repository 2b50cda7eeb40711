//! What is generated and committed. `make generated` regenerates it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use sidewinder_e2e_charts::{self as charts, described, hold, template, tool};
use sidewinder_e2e_support::command::run;
use sidewinder_e2e_support::paths;
use sidewinder_e2e_support::promise::promise;

use super::{by_template, chart, copy, examples, helms, of_user};

const CHARTS: [&str; 2] = ["sidewinder", "sidewinder-lib"];
/// Kubernetes' types, in the newest version that the tests know.
const TYPES: &str = "kubernetes_validate/kubernetes-json-schema/v1.37.0-local-strict/_definitions.json";

/// What a package of the chart has of the library, besides the templates.
const PACKED: [&str; 4] = ["Chart.yaml", "values.yaml", "values.schema.json", ".helmignore"];

#[promise(Charts)]
fn schemas_and_readmes_say_what_values_yaml_says() -> Result<()> {
    let Some(packages) = tool("schemas_and_readmes_say_what_values_yaml_says", "python")? else {
        return Ok(());
    };
    let read = |path: PathBuf| -> Result<Value> { Ok(serde_json::from_str(&fs::read_to_string(path)?)?) };
    let configuration = read(paths::repository().join("config").join("schema.json"))?;
    let kubernetes = read(packages.join(TYPES))?;
    for name in CHARTS {
        let folder = charts::folder().join(name);
        let values = described(&folder.join("values.yaml"))?;
        let schema = charts::schema(name, &values, &configuration, &kubernetes)?;
        hold(&folder.join("values.schema.json"), &charts::compact(&schema))?;
        let readme = folder.join("README.md");
        let text = fs::read_to_string(&readme)?;
        hold(&readme, &charts::with_table(&text, &values)?)?;
    }
    Ok(())
}

/// Values whose default or meaning depends on what they are for.
const OF_ITS_OWN: [&str; 6] = [
    "configMap.create",
    "extraEnvs",
    "image.repository",
    "ports.metrics.enabled",
    "presets.resourceAttributes.enabled",
    "resources",
];

#[promise(Charts)]
fn a_value_of_the_library_means_the_same_in_the_chart() -> Result<()> {
    let by_path = |name: &str| -> Result<BTreeMap<String, _>> {
        let values = described(&charts::folder().join(name).join("values.yaml"))?;
        Ok(values.into_iter().map(|value| (value.path.join("."), value)).collect())
    };
    let (ours, library) = (by_path("sidewinder")?, by_path("sidewinder-lib")?);
    let mut compared = 0;
    for (path, value) in &library {
        let Some(same) = ours.get(path) else {
            ensure!(["enabled", "runAs", "serviceName"].contains(&path.as_str()), "the chart has no {path}");
            continue;
        };
        assert_eq!(same.schema, value.schema, "{path}");
        if !OF_ITS_OWN.contains(&path.as_str()) {
            assert_eq!(same.default, value.default, "{path}");
            assert_eq!(
                same.description.replace(" the chart ", " this library "),
                value.description.replace(" the chart ", " this library "),
                "{path}"
            );
            compared += 1;
        }
    }
    ensure!(compared > 15, "only {compared} values are in both");
    Ok(())
}

#[promise(Stability)]
fn versions_are_those_of_the_release() -> Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    for name in CHARTS {
        let text = fs::read_to_string(charts::folder().join(name).join("Chart.yaml"))?;
        let chart = charts::documents(&text)?;
        let said = chart.first().and_then(|chart| chart.get("appVersion")).and_then(Value::as_str);
        assert_eq!(said, Some(version), "{name}");
    }
    let image = charts::folder().join("sidewinder-lib/templates/_image.tpl");
    let text = fs::read_to_string(image)?;
    assert!(text.contains(&format!("{{{{- define \"sidewinder.version\" -}}}}\n{version}\n")), "{text}");
    Ok(())
}

/// The chart's folder has the library by a link, so that Helm takes the folder as it is. A package has the library itself, and
/// so has what Helm makes of `Chart.lock`, from the folder beside: no network.
#[promise(Charts)]
fn the_library_in_the_chart_is_the_library() -> Result<()> {
    for helm in helms("the_library_in_the_chart_is_the_library")? {
        let copy = copy()?;
        let chart = copy.path().join("charts/sidewinder");
        let values = chart.join("ci/everything-values.yaml").display().to_string();
        let render = |chart: &Path| run(&mut template(&helm, chart, &["--values", &values]));
        let linked = render(&chart)?;
        let packages = copy.path().join("packages");
        run(Command::new(&helm).arg("package").arg(&chart).arg("--destination").arg(&packages))?;
        let package = charts::files(&packages)?.pop().context("no package")?;
        assert_eq!(render(&package)?, linked);
        let names = run(Command::new("tar").args(["--list", "--gzip", "--file"]).arg(&package))?;
        let of_library =
            names.lines().filter_map(|name| name.strip_prefix("sidewinder/charts/sidewinder-lib/"));
        let others: Vec<&str> =
            of_library.filter(|name| !name.starts_with("templates/_") && !PACKED.contains(name)).collect();
        ensure!(others.is_empty(), "the package has more of the library than is needed: {others:?}");
        fs::remove_dir_all(chart.join("charts"))?;
        run(Command::new(&helm).args(["dependency", "build", "--skip-refresh"]).arg(&chart))?;
        assert_eq!(render(&chart)?, linked);
    }
    Ok(())
}

#[promise(Charts, test_all)]
fn examples_are_what_helm_3_and_4_render() -> Result<()> {
    for helm in helms("examples_are_what_helm_3_and_4_render")? {
        let mut rendered = Vec::new();
        for example in examples("sidewinder")? {
            let values = example.join("values.yaml").display().to_string();
            let text = run(&mut template(&helm, &chart(), &["--values", &values]))?;
            rendered.push((example, text));
        }
        for example in examples("sidewinder-lib")? {
            let text = of_user(&helm, &example)?;
            rendered.push((example, text));
        }
        for (example, text) in rendered {
            let files = by_template(&text);
            for (name, text) in &files {
                hold(&example.join("rendered").join(name), text)?;
            }
            let kept = charts::files(&example.join("rendered"))?;
            ensure!(
                kept.len() == files.len(),
                "{} has other files than {:?}",
                example.display(),
                files.keys()
            );
        }
    }
    Ok(())
}

/// Holds the files of a folder against what Helm renders of a chart that uses the library.
fn hold_made(test: &str, source: &Path, folder: &Path) -> Result<()> {
    for helm in helms(test)? {
        for (name, text) in by_template(&of_user(&helm, source)?) {
            // Without where it is from, which kustomize would keep.
            let text: Vec<&str> = text.lines().skip(2).collect();
            hold(&folder.join(name), &(text.join("\n") + "\n"))?;
        }
    }
    Ok(())
}

#[promise(Injection)]
fn the_policy_of_kyverno_is_made_from_the_library() -> Result<()> {
    let folder = charts::folder().join("kyverno");
    hold_made("the_policy_of_kyverno_is_made_from_the_library", &folder.join("source"), &folder)
}

#[promise(Charts)]
fn the_kustomize_component_is_made_from_the_library() -> Result<()> {
    let test = "the_kustomize_component_is_made_from_the_library";
    let folder = charts::folder().join("kustomize");
    hold_made(test, &folder.join("source"), &folder.join("sidecar"))?;
    let Some(kustomize) = tool(test, "kustomize")? else { return Ok(()) };
    let built = run(Command::new(kustomize).arg("build").arg(folder.join("example")))?;
    hold(&folder.join("example/rendered.yaml"), &built)?;
    let patched = built.matches("name: sidewinder\n").count();
    ensure!(patched == 1, "the sidecar is in {patched} of the two deployments");
    Ok(())
}
