//! `sidewinder check`: which features work on this machine, what the missing ones cost, and how to get them; what is read of
//! each language runtime, and of given processes.

mod counters;
mod limit;
mod native;
mod probe_status;
mod process;
mod runtimes;

use std::fmt::Write as _;
use std::io;
use std::process::ExitCode;

use serde_json::{Value, json};
use sidewinder_base::exit::ExitCause;
use sidewinder_base::terminal::supports_colour;
use sidewinder_bpf::{LoadError, Probe, Support, WalkMode, probe, verify};
use sidewinder_sampling::SamplingError;
use sidewinder_text::escaped_json;
use tracing::level_filters::LevelFilter;

use self::counters::CounterReport;
use self::limit::Limit;
use self::probe_status::ProbeStatus;
use self::process::{Obstacle, ProcessReport};
use super::{CommandResult, log_to_stderr, print_all};
use crate::cli::CheckArgs;

/// The next step if nothing required is missing.
const FIRST_RECORDING_HINT: &str = "sidewinder record -a -d 10s -o profile.html";

pub(crate) fn check(args: &CheckArgs) -> CommandResult {
    if args.verify {
        // Why the kernel refuses a program is in the log.
        log_to_stderr(LevelFilter::WARN);
        return print_verified();
    }
    let report = CheckReport {
        probes: probe(),
        counters: counters::reports(),
        file_limit: limit::file_limit(),
        processes: process::look_at(&args.pid)?,
    };
    let text = match args.json {
        true => escaped_json(&format!("{:#}\n", report.to_json())).into_owned(),
        false => report.to_text(supports_colour(&io::stdout()), args.verbose),
    };
    print_all(&text)?;
    Ok(report.failure().map_or(ExitCode::SUCCESS, |cause| ExitCode::from(cause as u8)))
}

/// Everything that was found out.
struct CheckReport {
    probes: Vec<Probe>,
    counters: Vec<CounterReport>,
    file_limit: Option<Limit>,
    /// Of the processes that were asked for.
    processes: Vec<ProcessReport>,
}

impl CheckReport {
    /// Whether everything that profiling requires works.
    fn is_ready(&self) -> bool {
        self.count(ProbeStatus::Missing) == 0
    }

    fn count(&self, status: ProbeStatus) -> usize {
        self.probes.iter().filter(|probe| ProbeStatus::from_probe(probe) == status).count()
    }

    /// Why the exit code isn't 0. A missing privilege comes first, since it may be the reason for the rest.
    fn failure(&self) -> Option<ExitCause> {
        let obstacles = || self.processes.iter().filter_map(|process| process.obstacle.as_ref());
        if !self.is_ready() || obstacles().any(|obstacle| matches!(obstacle, Obstacle::Denied(_))) {
            return Some(ExitCause::Privilege);
        }
        obstacles().next().map(|_| ExitCause::Runtime)
    }

    /// With what is fine in a line or two, unless it is verbose.
    fn to_text(&self, is_coloured: bool, is_verbose: bool) -> String {
        let paint = |status: ProbeStatus, text: &str| match is_coloured {
            true => format!("\u{1b}[{}m{text}\u{1b}[0m", status.colour_code()),
            false => text.to_owned(),
        };
        let mut text = format!("Sidewinder {} on Linux {}\n\n", env!("CARGO_PKG_VERSION"), kernel());
        // Writing to a string does not fail.
        let works = self.count(ProbeStatus::Ok);
        if !is_verbose && works > 0 {
            let label = paint(ProbeStatus::Ok, &format!("{:<7}", ProbeStatus::Ok.label()));
            _ = writeln!(text, "{label}  {works} of {} kernel features", self.probes.len());
        }
        for probe in &self.probes {
            let status = ProbeStatus::from_probe(probe);
            if status == ProbeStatus::Ok && !is_verbose {
                continue;
            }
            _ = writeln!(text, "{}  {}", paint(status, &format!("{:<7}", status.label())), probe.name);
            if let Support::No { why, .. } = &probe.support {
                for (label, text_part) in [("why ", &**why), ("cost", probe.cost), ("next", probe.remedy)] {
                    _ = writeln!(text, "         {label}  {text_part}");
                }
            }
        }
        // Who asks about processes wants to read about these.
        text += &match self.processes[..] {
            [] => {
                let runtimes = if is_verbose { runtimes::table } else { runtimes::summary };
                counters::table(&self.counters, is_verbose, &paint) + &runtimes(self.file_limit, &paint)
            }
            _ => runtimes::processes(&self.processes, &paint),
        };
        let missing = self.probes.iter().find(|probe| ProbeStatus::from_probe(probe) == ProbeStatus::Missing);
        let (conclusion, step) = match (self.count(ProbeStatus::Missing), self.count(ProbeStatus::Limited)) {
            (0, 0) => (paint(ProbeStatus::Ok, "Ready to profile."), None),
            (0, limits) => {
                (paint(ProbeStatus::Limited, &format!("Ready to profile, with limits ({limits}).")), None)
            }
            (count, _) => {
                let text = format!("Not ready: {count} missing.");
                (paint(ProbeStatus::Missing, &text), missing.map(|probe| probe.remedy))
            }
        };
        _ = writeln!(text, "\n{conclusion}\nNext: {}", step.unwrap_or(FIRST_RECORDING_HINT));
        text
    }

    /// The keys are a public interface: see VERSIONING.md.
    fn to_json(&self) -> Value {
        let checks = self.probes.iter().map(|probe| {
            let (why, cost, next) = match &probe.support {
                Support::Yes => (None, None, None),
                Support::No { why, .. } => (Some(why), Some(probe.cost), Some(probe.remedy)),
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
            "ready": self.is_ready(),
            "checks": checks.collect::<Vec<_>>(),
            "counters": counters::table_json(&self.counters),
            "runtimes": runtimes::table_json(self.file_limit),
            "processes": runtimes::processes_json(&self.processes),
        })
    }
}

/// The release of the kernel, as `uname -r` prints it.
fn kernel() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

fn print_verified() -> CommandResult {
    if WalkMode::supported().is_empty() {
        return Err(SamplingError::from(LoadError::NoLoops).into());
    }
    for &walk in WalkMode::supported() {
        let verified = verify(walk).map_err(SamplingError::from)?;
        let counts =
            verified.programs.iter().map(|(program, instructions)| (program.as_str(), *instructions));
        let load_ms = ("load_ms", u64::try_from(verified.load_time.as_millis()).unwrap_or(u64::MAX));
        for (label, value) in counts.chain([load_ms]) {
            print_all(&format!("{}\t{label}\t{value}\n", walk.label()))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use sidewinder_bpf::Requirement;
    use sidewinder_vm::{Finding, RUNTIMES, Runtime, RuntimeDescription, describe};

    use super::native::{NativeReport, StrippedFile};
    use super::process::RuntimeReport;
    use super::*;

    fn test_probe(id: &'static str, required: bool, works: bool) -> Probe {
        let support = match works {
            true => Support::Yes,
            false => Support::No { why: format!("{id} is refused"), lacks: Requirement::Kernel },
        };
        Probe { id, name: id, required, support, cost: "its cost", remedy: "its remedy" }
    }

    fn report<const PROBES: usize>(probes: [Probe; PROBES]) -> CheckReport {
        CheckReport { probes: probes.into(), counters: Vec::new(), file_limit: None, processes: Vec::new() }
    }

    fn process(obstacle: Option<Obstacle>) -> ProcessReport {
        let runtime = RuntimeReport {
            support: describe(Some(Runtime::V8)),
            version: Some("11.3".into()),
            file: "/usr/bin/node".into(),
            frames: Finding::ok("by their frame pointers"),
            names: Finding::limited("no perf map"),
            next: Some("run it with a map".to_owned()),
        };
        let runtimes = if obstacle.is_none() { vec![runtime] } else { Vec::new() };
        ProcessReport {
            pid: 7,
            executable: "/srv/app".into(),
            runtimes,
            native: NativeReport::default(),
            obstacle,
        }
    }

    #[test]
    fn the_worst_probe_decides_the_conclusion_and_the_next_step() {
        let ok = report([test_probe("a", true, true)]);
        let limited = report([test_probe("a", true, true), test_probe("b", false, false)]);
        let missing = report([test_probe("a", true, false), test_probe("b", false, false)]);
        for (report, conclusion, next, failure) in [
            (&ok, "Ready to profile.", FIRST_RECORDING_HINT, None),
            (&limited, "Ready to profile, with limits (1).", FIRST_RECORDING_HINT, None),
            (&missing, "Not ready: 1 missing.", "its remedy", Some(ExitCause::Privilege)),
        ] {
            let text = report.to_text(false, false);
            assert!(text.ends_with(&format!("\n{conclusion}\nNext: {next}\n")), "{text}");
            assert!(!text.contains('\u{1b}'), "{text}");
            assert_eq!(report.to_json()["ready"], failure.is_none());
            assert_eq!(report.failure(), failure);
        }
        assert!(
            missing
                .to_text(true, false)
                .contains("\u{1b}[31mmissing\u{1b}[0m  a\n         why   a is refused\n")
        );
    }

    #[test]
    fn all_runtimes_are_listed_unless_processes_are_asked_for() {
        let mut report = report([test_probe("a", true, true)]);
        let verbose = report.to_text(false, true);
        let is_listed = |row: &&RuntimeDescription| verbose.contains(&format!("  {}\n", row.name));
        assert!(RUNTIMES.iter().all(is_listed), "{verbose}");
        let text = report.to_text(false, false);
        assert!(RUNTIMES.iter().all(|row| text.contains(row.label)), "{text}");
        // Of Node.js, names are read, whatever it publishes; of other programs with V8 they aren't.
        let line = |start| text.lines().find(|line| line.contains(start)).unwrap_or_default();
        assert!(line("all functions: ").contains("Node.js 18 to 26"), "{text}");
        let published = line("with names if the runtime publishes them: ");
        assert!(published.contains("V8 of Deno") && !published.contains("Node.js"), "{text}");
        report.processes.push(process(None));
        let text = report.to_text(false, false);
        assert!(
            text.contains(
                "\nProcess 7, /srv/app\n\
                 limited  V8 11.3, /usr/bin/node\n         \
                 frames  ok: by their frame pointers\n         names   limited: no perf map\n         \
                 next    run it with a map\n"
            ),
            "{text}"
        );
        assert!(!text.contains("CPython"), "{text}");
    }

    #[test]
    fn what_works_takes_a_line_and_what_does_not_is_explained() {
        let probes = [
            test_probe("a", true, true),
            test_probe("b", true, true),
            test_probe("c", false, false),
            test_probe("d", false, true),
        ];
        let report = report(probes);
        let text = report.to_text(false, false);
        let start = "ok       3 of 4 kernel features\nlimited  c\n         why   c is refused\n";
        assert!(text.contains(start), "{text}");
        assert!(!text.contains("  a\n") && text.lines().count() <= 20, "{text}");
        let verbose = report.to_text(false, true);
        assert!(["  a\n", "  b\n", "  d\n"].iter().all(|line| verbose.contains(line)), "{verbose}");
        assert!(verbose.contains("limited  c\n         why   c is refused\n"), "{verbose}");
        // Who may not open files has to know.
        let limit = Limit { why: "it is forbidden", next: "allow it" };
        let text = CheckReport { file_limit: Some(limit), ..report }.to_text(false, false);
        assert!(text.contains("         why     it is forbidden\n         next    allow it\n"), "{text}");
    }

    #[test]
    fn native_code_without_symbols_is_limited() {
        let mut native = process(None);
        native.runtimes = Vec::new();
        let with = |native| CheckReport { processes: vec![native], ..report([test_probe("a", true, true)]) };
        let report = with(native);
        assert!(report.to_text(false, false).contains("ok       native code only: no known runtime"));
        let native =
            NativeReport { files: 9, stripped: vec![StrippedFile::example(), StrippedFile::example()] };
        let report = with(ProcessReport { native, runtimes: Vec::new(), ..process(None) });
        let text = report.to_text(false, false);
        assert!(
            text.contains(
                "limited  native code only: 2 of 9 files have no symbols; functions that they don't export have no names\n         \
                 file    /usr/lib/libz.so.1 (build ID 0aff)\n         next    install zlib1g-dbgsym, or use --debuginfod\n"
            ),
            "{text}"
        );
        assert_eq!(report.to_json()["processes"][0]["without_symbols"][1]["build_id"], "0aff");
    }

    #[test]
    fn a_process_that_cant_be_looked_at_decides_the_exit_code() {
        let denied = || Obstacle::Denied("no permission".into());
        for (obstacles, failure) in [
            (vec![None], None),
            (vec![None, Some(Obstacle::Gone)], Some(ExitCause::Runtime)),
            (vec![Some(Obstacle::Gone), Some(denied())], Some(ExitCause::Privilege)),
        ] {
            let processes = obstacles.into_iter().map(process).collect();
            let report = CheckReport { processes, ..report([test_probe("a", true, true)]) };
            assert_eq!(report.failure(), failure);
        }
        let report = CheckReport { processes: vec![process(Some(denied()))], ..report([]) };
        let text = report.to_text(false, false);
        assert!(text.contains("denied   no permission\n         next    run Sidewinder as root"), "{text}");
    }

    #[test]
    fn the_json_document_has_exactly_these_keys() {
        let probes = [test_probe("a", true, true), test_probe("b", false, false)];
        let processes = vec![process(None), process(Some(Obstacle::Gone))];
        let document = CheckReport { processes, ..report(probes) }.to_json();
        let keys = |value: &Value| {
            value.as_object().map(|object| object.keys().cloned().collect::<Vec<_>>().join(" "))
        };
        let has_keys = |list: &Value, expected: &str| {
            let items = list.as_array().map(Vec::as_slice).unwrap_or_default();
            assert!(!items.is_empty());
            items.iter().for_each(|item| assert_eq!(keys(item).as_deref(), Some(expected)));
        };
        assert_eq!(
            keys(&document).as_deref(),
            Some("checks counters kernel processes ready runtimes version")
        );
        has_keys(&document["checks"], "cost id name next required state why");
        has_keys(&document["runtimes"], "frames id name names next state why");
        has_keys(&document["processes"], "executable next pid runtimes state why without_symbols");
        has_keys(&document["processes"][0]["runtimes"], "file frames id name names next state version");
        assert_eq!(keys(&document["processes"][0]["runtimes"][0]["frames"]).as_deref(), Some("detail state"));
        assert_eq!(document["checks"][0]["state"], "ok");
        assert_eq!(document["checks"][1]["next"], "its remedy");
        assert_eq!(document["processes"][1]["state"], "gone");
    }
}
