//! `sidewinder check`: what works here, what its absence costs, and what to do about it.

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

/// What to do where all is well.
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

/// What there is to say of a probe in one word.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ProbeStatus {
    Ok,
    /// Profiling works, and lacks something.
    Limited,
    /// Nothing works without it.
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
    let paint = |state: ProbeStatus, text: &str| match is_coloured {
        true => format!("\u{1b}[{}m{text}\u{1b}[0m", state.colour_code()),
        false => text.to_owned(),
    };
    let mut text = format!("Sidewinder {} on Linux {}\n\n", env!("CARGO_PKG_VERSION"), kernel());
    // Writing into a string does not fail.
    for probe in probes {
        let state = ProbeStatus::from_probe(probe);
        _ = writeln!(text, "{}  {}", paint(state, &format!("{:<7}", state.label())), probe.name);
        if let Support::No { why } = &probe.support {
            for (what, words) in [("why ", &**why), ("cost", probe.cost), ("next", probe.remedy)] {
                _ = writeln!(text, "         {what}  {words}");
            }
        }
    }
    let count = |state| probes.iter().filter(|probe| ProbeStatus::from_probe(probe) == state).count();
    let next =
        |state| probes.iter().find(|probe| ProbeStatus::from_probe(probe) == state).map(|probe| probe.remedy);
    let (verdict, step) = match (count(ProbeStatus::Missing), count(ProbeStatus::Limited)) {
        (0, 0) => (paint(ProbeStatus::Ok, "Ready to profile."), None),
        (0, limits) => {
            (paint(ProbeStatus::Limited, &format!("Ready to profile, with limits ({limits}).")), None)
        }
        (missing, _) => {
            let verdict = format!("Not ready: {missing} of these can't be done without.");
            (paint(ProbeStatus::Missing, &verdict), next(ProbeStatus::Missing))
        }
    };
    _ = writeln!(text, "\n{verdict}\nNext: {}", step.unwrap_or(FIRST_RECORDING_HINT));
    text
}

/// The keys are a promise: see VERSIONING.md.
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

/// The release of the kernel, as `uname -r` says it.
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
        for (what, number) in counts.chain([load_ms]) {
            writeln!(out, "{}\t{what}\t{number}", walk.label())
                .map_err(|error| Failure::runtime("can't print", error))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe_of(id: &'static str, required: bool, works: bool) -> Probe {
        let support = if works { Support::Yes } else { Support::No { why: format!("{id} is refused") } };
        Probe { id, name: id, required, support, cost: "its cost", remedy: "its remedy" }
    }

    #[test]
    fn the_worst_probe_tells_the_verdict_and_the_next_step() {
        let ok = [probe_of("a", true, true)];
        let limited = [probe_of("a", true, true), probe_of("b", false, false)];
        let missing = [probe_of("a", true, false), probe_of("b", false, false)];
        for (probes, verdict, next, is_ready) in [
            (&ok[..], "Ready to profile.", FIRST_RECORDING_HINT, true),
            (&limited, "Ready to profile, with limits (1).", FIRST_RECORDING_HINT, true),
            (&missing, "Not ready: 1 of these can't be done without.", "its remedy", false),
        ] {
            let text = to_text(probes, false);
            assert!(text.ends_with(&format!("\n{verdict}\nNext: {next}\n")), "{text}");
            assert!(!text.contains('\u{1b}'), "{text}");
            assert_eq!(to_json(probes)["ready"], is_ready);
        }
        assert!(
            to_text(&missing, true).contains("\u{1b}[31mmissing\u{1b}[0m  a\n         why   a is refused\n")
        );
    }

    #[test]
    fn a_document_for_programs_has_just_these_keys() {
        let document = to_json(&[probe_of("a", true, true), probe_of("b", false, false)]);
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
