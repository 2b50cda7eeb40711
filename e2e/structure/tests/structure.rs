//! What the structure of the workspace is: which crates use which, how large they are, and that no files import each other in a
//! circle.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use sidewinder_e2e_structure::{Crate, Package, Workspace, circles, imports};

/// All crates, from the ground up, each with those that it uses: every arrow between crates that is allowed. Names are without
/// `sidewinder-`. A crate uses only crates above it in this table. Tests may use more.
const CRATES: &[(&str, &str)] = &[
    // Words that all others share.
    ("address", ""),
    ("kind", ""),
    ("text", ""),
    // Data in memory: unwind tables, profiles, the configuration.
    ("unwind-table", "address"),
    ("profile", "kind"),
    ("config", "kind text"),
    // The borders: the kernel and OTLP.
    ("bpf", "address kind unwind-table"),
    ("otlp", "config kind profile text"),
    // What is known of processes and files, and how profiles are shown.
    ("process", "address"),
    ("unwind", "address unwind-table"),
    ("symbolize", "address unwind"),
    ("render", "kind profile text"),
    // Language runtimes: what they share, each of them, and their registry.
    ("vm-runtime", "address bpf process profile text"),
    ("vm-cpython", "address bpf process profile vm-runtime"),
    ("vm-hotspot", "address bpf process profile vm-runtime"),
    ("vm-v8", "address bpf process profile vm-runtime"),
    ("vm", "bpf process profile vm-cpython vm-hotspot vm-runtime vm-v8"),
    // The receiver: what its threads share, from samples to names and reports, and what is shown of it.
    ("base", "address bpf config kind process text"),
    ("debug-files", "base config otlp process symbolize text unwind"),
    ("message", "address base bpf debug-files kind process profile symbolize vm"),
    ("tables", "address base bpf config debug-files process text unwind unwind-table vm"),
    ("naming", "address base bpf debug-files message process profile symbolize vm"),
    (
        "report",
        "address base bpf config debug-files kind message naming otlp process profile render symbolize unwind",
    ),
    (
        "sampling",
        "address base bpf config debug-files kind message process profile symbolize tables text unwind unwind-table vm",
    ),
    (
        "server",
        "address base config debug-files kind naming otlp process profile render report symbolize tables text unwind",
    ),
    ("telemetry", "base bpf config kind naming otlp process render report sampling server tables text"),
    // The program.
    (
        "sidewinder",
        "address base bpf config debug-files kind message naming otlp process profile render report sampling server tables telemetry text unwind vm",
    ),
    // Fuzz targets, and another unwinder to compare with.
    ("config-fuzz", "config"),
    ("process-fuzz", "address process"),
    ("render-fuzz", "render"),
    ("unwind-fuzz", "unwind"),
    ("symbolize-fuzz", "address symbolize unwind-fuzz"),
    ("vm-fuzz", "address process vm"),
    ("unwind-oracle", "address bpf unwind"),
    // End-to-end tests: what they share, and the tests.
    ("e2e-structure", ""),
    ("e2e-promise", ""),
    ("e2e-support", "e2e-promise kind otlp profile"),
    ("e2e-charts", "e2e-support"),
    ("e2e-cluster", "e2e-charts e2e-support"),
    ("e2e-debian", "e2e-support"),
    ("e2e-instrumented", "e2e-support"),
    ("e2e-pod", "e2e-support otlp"),
    ("e2e-vm", "e2e-debian e2e-instrumented e2e-support otlp"),
    ("e2e-judge", "e2e-support otlp profile render"),
    ("e2e-corpus", "e2e-judge e2e-support otlp"),
    ("e2e-stacks", "address e2e-corpus e2e-debian e2e-judge e2e-support otlp unwind unwind-table"),
    (
        "e2e",
        "config e2e-charts e2e-cluster e2e-corpus e2e-debian e2e-instrumented e2e-judge e2e-pod e2e-stacks \
         e2e-support e2e-vm kind otlp profile render",
    ),
];

/// The most lines of a crate's `src`, unit tests included: the compiler and readers take a crate as a whole.
const CRATE_LINES_MAX: usize = 12_000;

fn workspace() -> Workspace {
    Workspace::of(Path::new(env!("CARGO_MANIFEST_DIR"))).expect("cargo describes this workspace")
}

fn short(name: &str) -> &str {
    name.strip_prefix("sidewinder-").unwrap_or(name)
}

#[test]
fn crates_use_what_the_table_allows_and_nothing_else() {
    let allowed: BTreeMap<&str, BTreeSet<&str>> =
        CRATES.iter().map(|(name, uses)| (*name, uses.split_whitespace().collect())).collect();
    let mut faults = Vec::new();
    let workspace = workspace();
    for package in &workspace.packages {
        let name = short(&package.name);
        let used: BTreeSet<&str> = package.uses.iter().map(|used| short(used)).collect();
        let Some(allowed) = allowed.get(name) else {
            faults.push(format!("{name} is not in the table"));
            continue;
        };
        faults.extend(used.difference(allowed).map(|used| format!("{name} must not use {used}")));
        faults
            .extend(allowed.difference(&used).map(|unused| format!("{name} does not use {unused} any more")));
    }
    let existing: BTreeSet<&str> = workspace.packages.iter().map(|package| short(&package.name)).collect();
    faults.extend(
        allowed.keys().filter(|name| !existing.contains(*name)).map(|name| format!("{name} does not exist")),
    );
    assert_eq!(faults, Vec::<String>::new());
}

#[test]
fn arrows_between_crates_lead_down() {
    let mut below = BTreeSet::new();
    for (name, uses) in CRATES {
        let missing: Vec<&str> = uses.split_whitespace().filter(|used| !below.contains(used)).collect();
        assert_eq!(missing, Vec::<&str>::new(), "{name} uses crates that are not below it");
        below.insert(*name);
    }
}

#[test]
fn no_files_import_each_other_in_a_circle() {
    let workspace = workspace();
    let read_file = |path: &Path| fs::read_to_string(workspace.root.join(path)).ok();
    let mut found = Vec::new();
    for root in workspace.packages.iter().flat_map(|package| &package.roots) {
        let source = Crate::read(root, &read_file).unwrap();
        found.extend(circles(&imports(&source)).iter().map(ToString::to_string));
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn crates_are_not_too_large() {
    let workspace = workspace();
    let lines_of =
        |package: &Package| (short(&package.name).to_owned(), workspace.source_lines(package).unwrap());
    let is_larger = |(_, lines): &(String, usize)| *lines > CRATE_LINES_MAX;
    let larger: Vec<_> = workspace.packages.iter().map(lines_of).filter(is_larger).collect();
    assert_eq!(larger, Vec::new(), "crates of more than {CRATE_LINES_MAX} lines");
}
