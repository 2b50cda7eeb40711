//! Configurations as people have them for Collectors: each key means here what it means there, or is refused by its
//! path.
//!
//! `configurations/*.yaml` have no receiver: each side adds its own. A line `# refused: PATH` is a key that Sidewinder
//! refuses; where there is none, all are accepted, and what holds is compared with what a real Collector says holds.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use sidewinder_config::parse_duration;
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::{collector, paths, sidewinder};

fn files() -> Result<Vec<PathBuf>> {
    let folder = fs::read_dir(paths::e2e().join("configurations"))?;
    let mut files: Vec<PathBuf> = folder.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    files.sort();
    Ok(files)
}

fn refused(text: &str) -> BTreeSet<String> {
    text.lines().filter_map(|line| line.strip_prefix("# refused: ")).map(str::to_owned).collect()
}

/// The arguments that put `receiver` in front of every profiles pipeline of a file.
fn with_receiver(file: &Path, text: &str, receiver: &str, keys: &str) -> Vec<String> {
    let mut arguments = vec!["--config".to_owned(), file.display().to_string()];
    let mut add = |yaml: String| arguments.extend(["--config".to_owned(), format!("yaml:{yaml}")]);
    add(format!("receivers::{receiver}: {keys}"));
    let lines = text.lines().filter_map(|line| line.strip_prefix("    ")?.strip_suffix(':'));
    for pipeline in lines.filter(|line| line.split('/').next() == Some("profiles")) {
        add(format!("service::pipelines::{pipeline}::receivers: [{receiver}]"));
    }
    arguments
}

/// The paths of keys that `sidewinder validate` refuses.
fn paths_refused(file: &Path, text: &str) -> Result<BTreeSet<String>> {
    let mut arguments = vec!["validate".to_owned(), "--skip-files".to_owned()];
    arguments.extend(with_receiver(file, text, "profiling", "{}"));
    let said = sidewinder::run(&arguments)?;
    // FILE:LINE:COLUMN: PATH: what is wrong
    let errors = said.log.lines().filter_map(|line| line.strip_prefix(&format!("{}:", file.display())));
    let refused: BTreeSet<String> =
        errors.filter_map(|error| Some(error.split(": ").nth(1)?.to_owned())).collect();
    ensure!(said.status.success() == refused.is_empty(), "{}:\n{}", file.display(), said.log);
    Ok(refused)
}

#[promise(Configuration)]
fn each_key_of_real_configurations_is_accepted_or_refused_by_its_path() -> Result<()> {
    let files = files()?;
    ensure!(files.len() >= 20, "{} configurations", files.len());
    for file in files {
        let text = fs::read_to_string(&file)?;
        assert_eq!(paths_refused(&file, &text)?, refused(&text), "{}", file.display());
    }
    Ok(())
}

/// Values by path, written as both sides write them.
fn flat(value: &Value) -> BTreeMap<String, String> {
    fn add(path: &str, value: &Value, flat: &mut BTreeMap<String, String>) {
        let below = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}::{key}") };
        match value {
            Value::Object(map) if !map.is_empty() => {
                map.iter().for_each(|(key, value)| add(&below(key), value, flat));
            }
            Value::Array(items) => {
                let named =
                    |item: &Value| Some((item.get("name")?.as_str()?.to_owned(), item.get("value")?.clone()));
                for (index, item) in items.iter().enumerate() {
                    match named(item) {
                        // Headers may be a list of names and values.
                        Some((name, value)) => add(&below(&name), &value, flat),
                        None => add(&format!("{path}[{index}]"), item, flat),
                    }
                }
            }
            // Absent, in one way of several.
            Value::Null | Value::Object(_) => {}
            Value::String(text) if text.is_empty() => {}
            Value::String(text) => drop(flat.insert(path.to_owned(), text.to_lowercase())),
            Value::Number(number) => {
                let number = number.as_f64().map_or_else(|| number.to_string(), |number| number.to_string());
                flat.insert(path.to_owned(), number);
            }
            other => drop(flat.insert(path.to_owned(), other.to_string())),
        }
    }
    let mut all = BTreeMap::new();
    add("", value, &mut all);
    all
}

fn printed(mut command: Command) -> Result<BTreeMap<String, String>> {
    let output = command.output().with_context(|| format!("cannot run {:?}", command.get_program()))?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    let value = serde_json::from_slice(&output.stdout).with_context(|| {
        format!("{command:?} prints no JSON: {}", String::from_utf8_lossy(&output.stdout))
    })?;
    Ok(flat(&value))
}

/// Defaults that depart from the Collector's, for reasons that the reference tells, and what a Collector prints of
/// them. Only these may differ, and only where they are not configured.
const OTHER_DEFAULTS: [(&str, &str); 4] = [
    ("sending_queue::num_consumers", "10"),
    ("sending_queue::queue_size", "1000"),
    ("sending_queue::sizer", "requests"),
    ("metrics::readers[0]::pull::exporter::prometheus::host", "localhost"),
];

/// A Collector without configured readers has this one.
const DEFAULT_READER: &str = "service::telemetry::metrics::readers[0]::pull";

#[promise(Configuration)]
fn what_holds_is_what_a_real_collector_says_holds() -> Result<()> {
    let binary = collector::build(collector::Version::Oldest)?;
    let mut compared = 0;
    for file in files()? {
        let text = fs::read_to_string(&file)?;
        if !refused(&text).is_empty() || text.contains("not compared") {
            continue;
        }
        let mut ours = sidewinder::command()?;
        ours.args(["print-config", "--format", "json"]).args(with_receiver(&file, &text, "profiling", "{}"));
        let mut theirs = Command::new(&binary);
        theirs.args(["print-config", "--format", "json", "--feature-gates=+service.profilesSupport"]);
        let keys = "{protocols: {grpc: {endpoint: '127.0.0.1:0'}}}";
        theirs.args(with_receiver(&file, &text, "otlp", keys));
        let (ours, theirs) = (printed(ours)?, printed(theirs)?);
        for (path, value) in &ours {
            if path.starts_with("receivers") || path.contains("::receivers[") {
                continue;
            }
            let Some(other) = theirs.get(path) else { continue };
            let is_deviation =
                OTHER_DEFAULTS.iter().any(|(key, default)| path.ends_with(key) && other == default);
            // Some durations are nanoseconds in a Collector's JSON.
            let nanoseconds = parse_duration(value).map(|duration| duration.as_nanos().to_string());
            ensure!(
                value == other || is_deviation || nanoseconds.as_ref() == Some(other),
                "{}: {path} is {value} here and {other} there",
                file.display()
            );
            compared += 1;
        }
        // What the file says must be on both sides, else there was nothing to compare.
        let said_there = theirs.keys().filter(|path| {
            path.starts_with("exporters") && (path.ends_with("endpoint") || path.contains("::tls::"))
        });
        for path in said_there {
            let is_default = theirs.get(path).is_some_and(|value| value == "false");
            ensure!(is_default || ours.contains_key(path), "{}: {path} is not here", file.display());
        }
        ensure!(
            ours.keys().filter(|path| path.starts_with(DEFAULT_READER)).all(|path| theirs.contains_key(path)),
            "{}: {ours:?}",
            file.display()
        );
    }
    eprintln!("{compared} values are the same");
    ensure!(compared > 200, "only {compared} values were compared");
    Ok(())
}
