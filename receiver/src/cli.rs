//! The command line. The doc comments of arguments are the help texts: their first paragraphs are what `-h` prints.

mod code;
mod debuginfod;
mod parse;
mod record;
mod table;
mod top;
mod values;
mod view;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

pub(crate) use self::code::{AnnotateArgs, CodeArgs};
pub(crate) use self::debuginfod::DebuginfodArgs;
pub(crate) use self::record::RecordArgs;
pub(crate) use self::table::TableArgs;
pub(crate) use self::top::TopArgs;
pub(crate) use self::values::{FormatArg, UnwindArg};
use self::values::{address, process};
pub(crate) use self::view::{DiffArgs, ViewArgs};

/// A continuous profiler that runs as a sidecar of the pod it profiles and speaks OpenTelemetry.
///
/// With a configuration and no command, it runs as configured: it profiles the processes in the receiver's scope and sends
/// profiles to the exporters until it is stopped.
#[derive(Debug, Parser)]
#[command(
    name = "sidewinder",
    version,
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  \
        sidewinder record -F 997 -d 10s -o profile.html -a          the whole machine, as a flame graph\n  \
        sidewinder record -o out.pb.gz -- ./server --port 8080      a command, for `go tool pprof`\n  \
        sidewinder --config sidewinder.yaml                         continuously, for an OpenTelemetry Collector\n  \
        sidewinder check                                            what this kernel allows\n\n\
        Exit codes: 0 success, 1 runtime, 2 usage or configuration, 3 privilege or kernel."
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) run: RunArgs,
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

/// A command other than running as configured.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run as configured; `run` can be omitted if a configuration is given
    #[command(after_help = "Examples:\n  \
        sidewinder run --config sidewinder.yaml\n  \
        sidewinder run --config env:SIDEWINDER_CONFIG --set exporters.otlp_grpc.endpoint=collector:4317\n  \
        OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:4317 sidewinder run\n  \
        sidewinder run --ui                          with a live page on http://localhost:7878/\n\n\
        Without a configuration or OTEL_EXPORTER_OTLP_ENDPOINT, profiles are written to ./profile.otlp.\n\
        The configuration is reloaded on SIGHUP and when one of its files changes.")]
    Run(RunArgs),
    /// Record a profile into a file
    #[command(after_help = record::EXAMPLES, after_long_help = record::LONG_HELP)]
    Record(RecordArgs),
    /// Show the busiest functions and processes in the terminal, live
    #[command(after_help = "Examples:\n  \
        sidewinder top                     every process\n  \
        sidewinder top -p 1234 -F 997\n  \
        sidewinder top --off-cpu --sort self --rows 10\n  \
        sidewinder top --comm 'nginx*'\n\n\
        Keys: q quits, ? lists all keys, Tab shows processes, s, t and n sort by self, total and name, / filters, f switches between \
        short and full names, i folds inlined functions, + and - change the time range, p pauses, the arrows scroll.")]
    Top(TopArgs),
    /// Show a profile in the browser, or write it in another format
    #[command(after_help = "Examples:\n  \
        sidewinder view profile.otlp                 prints an address to open; Ctrl-C quits\n  \
        sidewinder view -o out.html cpu.pb.gz        writes the page to a file\n  \
        sidewinder view --source-path . profile.otlp     with the cost of each source line\n  \
        sidewinder view -o cpu.otlp cpu.pb.gz        converts it to OTLP\n  \
        sidewinder view --table --rows 40 cpu.pb.gz  the busiest functions, in the terminal\n  \
        perf record -g ./server && sidewinder view perf.data\n  \
        sidewinder view --listen                     shows what an OpenTelemetry profiler sends here\n\n\
        Reads OTLP, pprof, folded stacks, perf.data and the output of `perf script`, and writes every format that \
        `record` does. The page is served to this machine only, at an address that cannot be guessed.")]
    View(ViewArgs),
    /// Show the cost of each line or instruction of a function, in the terminal
    #[command(after_help = "Examples:\n  \
        sidewinder annotate profile.otlp parse_value --source-path src\n  \
        sidewinder annotate profile.otlp parse_value --assembly | less\n\n\
        Each line or instruction is shown with its self and total share of all samples. A call's total includes its callee, and \
        functions inlined at a line are named after it. `view` shows the same in the browser.")]
    Annotate(AnnotateArgs),
    /// Compare two profiles, as a table and as a page in the browser
    #[command(after_help = "Examples:\n  \
        sidewinder diff before.pb.gz after.pb.gz\n  \
        sidewinder diff -o change.html before.otlp after.otlp\n  \
        sidewinder diff --requests 1200,1500 before.otlp after.otlp     CPU time per request\n  \
        sidewinder diff --sample-type faults before.otlp after.otlp\n\n\
        By default, shares of all samples are compared, so the recordings may differ in length. P is the probability of such a \
        change by chance; ~ marks a change that is noise. Binaries whose names differ, such as app-1.2 and app-1.3, are compared \
        if most of their functions are the same.")]
    Diff(DiffArgs),
    /// Show the unwind table that the profiler would use for a file
    #[command(after_help = "Examples:\n  \
        sidewinder inspect /usr/bin/openssl                 how it is unwound, and the size of its table\n  \
        sidewinder inspect --pc 0x2a1f0 /usr/bin/openssl    the row for an address\n  \
        sidewinder inspect --rows '[vdso]'\n  \
        sidewinder inspect --validate ./server              where unwind information contradicts the code")]
    Inspect(InspectArgs),
    /// Report what this kernel and these privileges allow, what is lost without the rest, and how each runtime is supported
    #[command(after_help = "Examples:\n  \
        sidewinder check\n  \
        sidewinder check -p 1234                     which runtimes this process contains, and whether they can be read\n  \
        kubectl exec POD -c sidewinder -- /sidewinder check\n  \
        sidewinder check --json | jq -r '.checks[] | select(.state != \"ok\") | .id + \": \" + .next'\n\n\
        A check is ok, limited (profiling works with a restriction) or missing (nothing works without it). \
        Output to a terminal is coloured; NO_COLOR=1 disables that.\n\n\
        Exit codes: 0 ready to profile, 1 no such process, 3 something is missing or a process can't be read.")]
    Check(CheckArgs),
    /// Report on the profilers running here: what they sample, what they have sent, and what is wrong
    #[command(after_help = "Examples:\n  \
        sidewinder status\n  \
        kubectl exec POD -c sidewinder -- /sidewinder status\n  \
        sidewinder status --json | jq '.problems[]'\n\n\
        Problems come first, each with a next step: current ones, and losses in the last five minutes.\n\n\
        Exit codes: 0 healthy, 1 something is wrong or no profiler responds.")]
    Status(StatusArgs),
    /// Check whether the profilers running here are up, for a liveness probe; `status` reports degradations
    #[command(after_help = "Examples:\n  \
        sidewinder health && echo up\n  \
        livenessProbe: { exec: { command: [/sidewinder, health] } }      in a container's spec\n\n\
        Exit codes: 0 all are up, 1 one is down or none responds.")]
    Health(HealthArgs),
    /// Check the configuration and the files that it names, and report all errors at once
    #[command(after_help = "Examples:\n  \
        sidewinder validate --config sidewinder.yaml\n  \
        sidewinder validate --config base.yaml --config site.yaml --set receivers::profiling::samples_per_second=19\n  \
        sidewinder validate --skip-files --config relay.yaml        in CI, where the files are missing\n\n\
        Opens certificates, keys, tokens and passwords, and checks that the directories of queues and output files exist. Nothing \
        is changed.\n\n\
        Exit codes: 0 valid, possibly with warnings, 2 invalid.")]
    Validate(ValidateArgs),
    /// Print the effective configuration, including defaults
    #[command(after_help = "Examples:\n  \
        sidewinder print-config --config sidewinder.yaml\n  \
        sidewinder print-config --config base.yaml --config site.yaml --format json | jq .exporters\n\n\
        Secrets are shown as [REDACTED], unless --mode unredacted is given.")]
    PrintConfig(PrintConfigArgs),
    /// List the components available to a configuration
    #[command(after_help = "Examples:\n  \
        sidewinder components")]
    Components,
    /// Print shell completions
    #[command(after_help = "Examples:\n  \
        sidewinder completions bash > /etc/bash_completion.d/sidewinder\n  \
        sidewinder completions zsh > \"${fpath[1]}/_sidewinder\"")]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Write one manual page per command
    #[command(after_help = "Examples:\n  \
        sidewinder manual /usr/local/share/man/man1")]
    Manual {
        /// The directory to write to; created if it does not exist
        folder: PathBuf,
    },
}

/// Where the configuration comes from.
#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    /// A YAML file, or file:PATH, env:NAME, yaml:TEXT; repeatable: later ones win, maps are merged, lists replaced
    #[arg(long, value_name = "SOURCE")]
    pub(crate) config: Vec<String>,
    /// A single setting, a.b=c or a::b=c; applied last; repeatable
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Feature gates to enable (id) or disable (-id), separated by commas
    #[arg(long, value_name = "IDS", value_delimiter = ',', allow_hyphen_values = true)]
    pub(crate) feature_gates: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    /// Serve a live page on this machine; the same as --set service.ui.enabled=true
    #[arg(long)]
    pub(crate) ui: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ValidateArgs {
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    /// Don't check the files and directories that the configuration names, because the service runs elsewhere
    #[arg(long)]
    pub(crate) skip_files: bool,
}

impl RunArgs {
    /// Whether no argument was given.
    pub(crate) fn is_empty(&self) -> bool {
        let Self { config: ConfigArgs { config, set, feature_gates }, ui } = self;
        config.is_empty() && set.is_empty() && feature_gates.is_empty() && !ui
    }

    /// The sources of the configuration, including other flags.
    pub(crate) fn into_config(mut self) -> ConfigArgs {
        if self.ui {
            self.config.set.push("service.ui.enabled=true".to_owned());
        }
        self.config
    }
}

#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    /// An executable or a shared library; [vdso] for the kernel's vDSO
    pub(crate) file: PathBuf,
    /// Print every row, tab-separated: start, CFA, frame pointer, return address
    #[arg(long, conflicts_with = "ranges")]
    pub(crate) rows: bool,
    /// Print every range with its mode and the reason for it
    #[arg(long)]
    pub(crate) ranges: bool,
    /// Print the row for one address, as given in the file
    #[arg(long, value_name = "ADDRESS", value_parser = address, conflicts_with_all = ["rows", "ranges"])]
    pub(crate) pc: Option<u64>,
    /// Check the rows against the machine code: print each row that contradicts it (tab-separated: start, end, the
    /// statement, the row, what the code does), then one line of counts. The exit code is 0 in any case
    #[arg(long, conflicts_with_all = ["rows", "ranges", "pc"])]
    pub(crate) validate: bool,
    /// How stacks would be unwound
    #[arg(long, value_name = "MODE", default_value = "auto")]
    pub(crate) unwind: UnwindArg,
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Report which language runtimes this process contains, and whether their frames and names can be read now;
    /// repeatable or comma-separated
    #[arg(short, long, value_name = "PID", value_parser = process, value_delimiter = ',')]
    pub(crate) pid: Vec<u32>,
    /// Also list what works, and what each language runtime needs
    #[arg(short, long, conflicts_with = "json")]
    pub(crate) verbose: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Only load the programs of each walk mode that this kernel supports, and print for each, separated by tabs: the mode,
    /// the program, the number of instructions that the verifier followed; and finally the load time, as `load_ms`
    #[arg(long, hide = true, conflicts_with_all = ["json", "pid", "verbose"])]
    pub(crate) verify: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// Print JSON, one document per line
    #[arg(long)]
    pub(crate) json: bool,
    /// Only the profiler with this process ID
    #[arg(long, value_name = "PID")]
    pub(crate) pid: Option<u32>,
}

#[derive(Debug, Args)]
pub(crate) struct HealthArgs {
    /// Only the profiler with this process ID
    #[arg(long, value_name = "PID")]
    pub(crate) pid: Option<u32>,
}

#[derive(Debug, Args)]
pub(crate) struct PrintConfigArgs {
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    /// Whether to show secrets
    #[arg(long, default_value = "redacted")]
    pub(crate) mode: PrintModeArg,
    /// The output format
    #[arg(long, default_value = "yaml")]
    pub(crate) format: PrintFormatArg,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum PrintModeArg {
    Redacted,
    Unredacted,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum PrintFormatArg {
    Yaml,
    Json,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn each_command_has_valid_examples() {
        for command in Cli::command().get_subcommands() {
            let help = [command.get_after_help(), command.get_after_long_help()];
            let help: String = help.into_iter().flatten().map(|help| format!("{help}\n")).collect();
            assert!(help.contains("Examples:"), "{} has none", command.get_name());
            let examples = help.lines().map(str::trim).filter_map(|line| line.strip_prefix("sidewinder "));
            for example in examples {
                // Two spaces separate an example from its description.
                let words = example.split("  ").next().unwrap_or_default();
                let words = words.split([' ']).take_while(|word| !["|", "&&", ">"].contains(word));
                let words = words.map(|word| word.trim_matches('\''));
                let parsed = Cli::try_parse_from(std::iter::once("sidewinder").chain(words));
                assert!(parsed.is_ok(), "{example}: {:?}", parsed.err());
            }
        }
    }

    #[test]
    fn a_recording_needs_exactly_one_kind_of_target() {
        let parse = |words: &[&str]| Cli::try_parse_from([&["sidewinder", "record"], words].concat());
        assert!(parse(&[]).is_err());
        assert!(parse(&["-a", "-p", "1"]).is_err());
        assert!(parse(&["-a"]).is_ok());
        assert!(parse(&["-p", "1", "-p", "2", "-d", "1m30s"]).is_ok());
        assert!(parse(&["-p", "1,2"]).is_ok() && parse(&["-p", "1,"]).is_err());
        assert!(parse(&["-o", "x.folded", "--", "ls", "-l"]).is_ok());
        assert!(parse(&["--comm", "a", "--comm", "b*"]).is_ok());
        assert!(parse(&["--comm", "a", "-p", "1"]).is_err());
        assert!(parse(&["-a", "--no-kernel", "--kernel"]).is_ok());
        assert!(parse(&["-a", "-d", "0s"]).is_err() && parse(&["-a", "-d", "0"]).is_err());
        assert!(parse(&["-a", "-C", "0-3,8", "-D", "500ms", "--per-thread"]).is_ok());
        assert!(parse(&["-a", "-C", "3-1"]).is_err() && parse(&["-a", "-D", "0"]).is_err());
        assert!(parse(&["-t", "7,8", "-d", "10"]).is_ok() && parse(&["-t", "7", "-p", "7"]).is_err());
    }

    #[test]
    fn tables_take_the_same_options_wherever_they_are_printed() {
        let parse = |words: &str| Cli::try_parse_from(format!("sidewinder {words}").split(' '));
        let layout = "--rows 5 --sort total --inlines own";
        for command in ["record -a --table", "view --table a.otlp", "diff a.otlp b.otlp", "top"] {
            assert!(parse(&format!("{command} {layout}")).is_ok(), "{command}");
            for wrong in ["--rows 0", "--sort name", "--inlines some"] {
                assert!(parse(&format!("{command} {wrong}")).is_err(), "{command} {wrong}");
            }
        }
        for command in ["record -a", "view a.otlp"] {
            for option in ["--rows 5", "--sort total", "--inlines own"] {
                let error = parse(&format!("{command} {option}")).expect_err("no table").to_string();
                assert!(error.contains("--table"), "{error}");
            }
        }
    }

    #[test]
    fn the_short_help_of_a_recording_fits_two_screens() {
        let mut command = Cli::command();
        let record = command.find_subcommand_mut("record").unwrap();
        let help = record.render_help().to_string();
        assert!(help.lines().count() <= 72, "{} lines:\n{help}", help.lines().count());
        for heading in ["Processes:", "Time:", "Output:", "Spans:", "Stacks:"] {
            assert!(help.lines().any(|line| line == heading), "{heading}\n{help}");
        }
    }

    #[test]
    fn top_shows_one_kind_of_profile() {
        let kinds: [&[&str]; 5] =
            [&["--off-cpu"], &["--wall"], &["--locks"], &["-e", "faults"], &["--probe", "uprobe:/bin/a:f"]];
        let parse =
            |words: &[&[&str]]| Cli::try_parse_from([&["sidewinder", "top"][..], &words.concat()].concat());
        for (index, kind) in kinds.iter().enumerate() {
            assert!(parse(&[kind]).is_ok(), "{kind:?}");
            for other in kinds.iter().skip(index + 1) {
                assert!(parse(&[kind, other]).is_err(), "{kind:?} {other:?}");
            }
        }
    }
}
