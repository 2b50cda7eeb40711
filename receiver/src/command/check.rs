//! `sidewinder check`: which features work on this machine, what the missing ones cost, and how to get them.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;

use serde_json::{Value, json};
use sidewinder_bpf::{Probe, Support, WalkMode, probe, verify};

use super::CommandResult;
use crate::cli::CheckArgs;
use crate::exit::{ExitCause, Failure};
use crate::sampling::SamplingError;
use crate::terminal::supports_colour;

/// The next step if nothing required is missing.
const FIRST_RECORDING_HINT: &str = "sidewinder record -a -d 10s -o profile.html";

pub(crate) fn check(args: &CheckArgs) -> CommandResult {
    if args.verify {
        return print_verified();
    }
    let probes = probe();
    let mut out = std::io::stdout();
    let text =
        if args.json { format!("{:#}\n", to_json(&probes)) } else { to_text(&probes, supports_colour(&out)) };
    out.write_all(text.as_bytes()).map_err(|error| Failure::runtime("can't print", error))?;
    Ok(if is_ready(&probes) { ExitCode::SUCCESS } else { ExitCode::from(ExitCause::Privilege as u8) })
}

fn is_ready(probes: &[Probe]) -> bool {
    probes.iter().all(|probe| ProbeStatus::from_probe(probe) != ProbeStatus::Missing)
}

/// The result of a probe.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ProbeStatus {
    Ok,
    /// Profiling works without this feature.
    Limited,
    /// Profiling does not work without this feature.
    Missing,
}

impl ProbeStatus {
    fn from_probe(probe: &Probe) -> Self {
        match (&probe.support, probe.required) {
            (Support::Yes, _) => Self::Ok,
            (Support::No { .. }, false) => Self::Limited,
            (Support::No { .. }, true) => Self::Missing,
        }
    }

    const fn label(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Limited => "limited",
            Self::Missing => "missing",
        }
    }

    /// The parameter of the terminal's sequence that selects a colour (ECMA-48, SGR): green, yellow, red.
    const fn colour_code(self) -> u8 {
        match self {
            Self::Ok => 32,
            Self::Limited => 33,
            Self::Missing => 31,
        }
    }
}

fn to_text(probes: &[Probe], is_coloured: bool) -> String {
    let paint = |status: ProbeStatus, text: &str| match is_coloured {
        true => format!("\u{1b}[{}m{text}\u{1b}[0m", status.colour_code()),
        false => text.to_owned(),
    };
    let mut text = format!("Sidewinder {} on Linux {}\n\n", env!("CARGO_PKG_VERSION"), kernel());
    // Writing to a string does not fail.
    for probe in probes {
        let status = ProbeStatus::from_probe(probe);
        _ = writeln!(text, "{}  {}", paint(status, &format!("{:<7}", status.label())), probe.name);
        if let Support::No { why } = &probe.support {
            for (label, text_part) in [("why ", &**why), ("cost", probe.cost), ("next", probe.remedy)] {
                _ = writeln!(text, "         {label}  {text_part}");
            }
        }
    }
    let count = |status| probes.iter().filter(|probe| ProbeStatus::from_probe(probe) == status).count();
    let next = |status| {
        probes.iter().find(|probe| ProbeStatus::from_probe(probe) == status).map(|probe| probe.remedy)
    };
    let (conclusion, step) = match (count(ProbeStatus::Missing), count(ProbeStatus::Limited)) {
        (0, 0) => (paint(ProbeStatus::Ok, "Ready to profile."), None),
        (0, limits) => {
            (paint(ProbeStatus::Limited, &format!("Ready to profile, with limits ({limits}).")), None)
        }
        (missing, _) => {
            let text = format!("Not ready: {missing} of these can't be done without.");
            (paint(ProbeStatus::Missing, &text), next(ProbeStatus::Missing))
        }
    };
    _ = writeln!(text, "\n{conclusion}\nNext: {}", step.unwrap_or(FIRST_RECORDING_HINT));
    text
}

/// The keys are a public interface: see VERSIONING.md.
fn to_json(probes: &[Probe]) -> Value {
    let checks = probes.iter().map(|probe| {
        let (why, cost, next) = match &probe.support {
            Support::Yes => (None, None, None),
            Support::No { why } => (Some(why), Some(probe.cost), Some(probe.remedy)),
        };
        json!({
            "id": probe.id,
            "name": probe.name,
            "state": ProbeStatus::from_probe(probe).label(),
            "required": probe.required,
            "why": why,
            "cost": cost,
            "next": next,
        })
    });
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "kernel": kernel(),
        "ready": is_ready(probes),
        "checks": checks.collect::<Vec<_>>(),
    })
}

/// The release of the kernel, as `uname -r` prints it.
fn kernel() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

fn print_verified() -> CommandResult {
    let mut out = std::io::stdout();
    for &walk in WalkMode::supported() {
        let verified = verify(walk).map_err(SamplingError::from)?;
        let counts =
            verified.programs.iter().map(|(program, instructions)| (program.as_str(), *instructions));
        let load_ms = ("load_ms", u64::try_from(verified.load_time.as_millis()).unwrap_or(u64::MAX));
        for (label, value) in counts.chain([load_ms]) {
            writeln!(out, "{}\t{label}\t{value}", walk.label())
                .map_err(|error| Failure::runtime("can't print", error))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test_probe(id: &'static str, required: bool, works: bool) -> Probe {
        let support = if works { Support::Yes } else { Support::No { why: format!("{id} is refused") } };
        Probe { id, name: id, required, support, cost: "its cost", remedy: "its remedy" }
    }

    #[test]
    fn the_worst_probe_decides_the_conclusion_and_the_next_step() {
        let ok = [test_probe("a", true, true)];
        let limited = [test_probe("a", true, true), test_probe("b", false, false)];
        let missing = [test_probe("a", true, false), test_probe("b", false, false)];
        for (probes, conclusion, next, is_ready) in [
            (&ok[..], "Ready to profile.", FIRST_RECORDING_HINT, true),
            (&limited, "Ready to profile, with limits (1).", FIRST_RECORDING_HINT, true),
            (&missing, "Not ready: 1 of these can't be done without.", "its remedy", false),
        ] {
            let text = to_text(probes, false);
            assert!(text.ends_with(&format!("\n{conclusion}\nNext: {next}\n")), "{text}");
            assert!(!text.contains('\u{1b}'), "{text}");
            assert_eq!(to_json(probes)["ready"], is_ready);
        }
        assert!(
            to_text(&missing, true).contains("\u{1b}[31mmissing\u{1b}[0m  a\n         why   a is refused\n")
        );
    }

    #[test]
    fn the_json_document_has_exactly_these_keys() {
        let document = to_json(&[test_probe("a", true, true), test_probe("b", false, false)]);
        let keys = |value: &Value| value.as_object().map(|object| object.keys().cloned().collect::<Vec<_>>());
        assert_eq!(
            keys(&document),
            Some(["checks", "kernel", "ready", "version"].map(str::to_owned).to_vec())
        );
        for check in document["checks"].as_array().into_iter().flatten() {
            let expected = ["cost", "id", "name", "next", "required", "state", "why"];
            assert_eq!(keys(check), Some(expected.map(str::to_owned).to_vec()));
        }
        assert_eq!(document["checks"][0]["state"], "ok");
        assert_eq!(document["checks"][1]["next"], "its remedy");
    }
}
