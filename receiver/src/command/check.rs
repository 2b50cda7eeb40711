//! `sidewinder check`: what works here, and what its absence costs.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use serde_json::json;
use sidewinder_bpf::{Probe, Support, Walk, probe, verify};

use super::Ended;
use crate::cli::CheckArgs;
use crate::exit::{Cause, Failure};
use crate::sampling::SamplingError;

pub(crate) fn check(args: &CheckArgs) -> Ended {
    if args.verify {
        return print_verified();
    }
    let probes = probe();
    let printed = if args.json { print_json(&probes) } else { print_text(&probes) };
    printed.map_err(|error| Failure::runtime("can't print", error))?;
    let is_ready = probes.iter().all(|probe| !probe.required || probe.support == Support::Yes);
    Ok(if is_ready { ExitCode::SUCCESS } else { ExitCode::from(Cause::Privilege as u8) })
}

fn print_text(probes: &[Probe]) -> std::io::Result<()> {
    let mut out = std::io::stdout();
    let is_coloured = out.is_terminal();
    let mark = |colour: u8, word: &str| {
        if is_coloured { format!("\u{1b}[{colour}m{word}\u{1b}[0m") } else { word.to_owned() }
    };
    for probe in probes {
        match &probe.support {
            Support::Yes => writeln!(out, "{}       {}", mark(32, "ok"), probe.name)?,
            Support::No { why } => {
                let word = if probe.required { mark(31, "missing") } else { mark(33, "limited") };
                writeln!(out, "{word}  {}", probe.name)?;
                writeln!(out, "         why:  {why}")?;
                writeln!(out, "         cost: {}", probe.cost)?;
                writeln!(out, "         next: {}", probe.remedy)?;
            }
        }
    }
    let missing = probes.iter().filter(|p| p.required && p.support != Support::Yes).count();
    match missing {
        0 => writeln!(out, "\nReady to profile."),
        _ => writeln!(out, "\nNot ready: {missing} of the things above can't be done without."),
    }
}

fn print_verified() -> Ended {
    let mut out = std::io::stdout();
    for &walk in Walk::all_of_this_kernel() {
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

fn print_json(probes: &[Probe]) -> std::io::Result<()> {
    let rows: Vec<_> = probes
        .iter()
        .map(|probe| {
            let why = match &probe.support {
                Support::Yes => None,
                Support::No { why } => Some(why),
            };
            json!({
                "name": probe.name,
                "required": probe.required,
                "works": why.is_none(),
                "why": why,
                "cost": probe.cost,
                "remedy": probe.remedy,
            })
        })
        .collect();
    writeln!(std::io::stdout(), "{}", serde_json::Value::from(rows))
}
