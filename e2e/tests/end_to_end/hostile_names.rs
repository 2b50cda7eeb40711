//! Names that others choose reach the terminal written out: none of them moves the cursor or forges a line.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::{requirement, sidewinder};
use tempfile::TempDir;

/// Clears the screen in both encodings of the sequence, rings, and begins a line as `check` does.
const HOSTILE: &str = "a\u{1b}[2J\u{9b}2J\u{7}\nok       forged";
/// What is shown of it, whatever the notation of the rest.
const SHOWN: &str = "ok       forged";

/// A folder with this name, and a busy program in it with the same.
struct HostileProgram {
    child: Child,
    path: PathBuf,
    folder: TempDir,
}

impl HostileProgram {
    fn start() -> Result<Self> {
        let folder = TempDir::with_prefix(HOSTILE)?;
        let path = folder.path().join(HOSTILE);
        fs::copy("/bin/bash", &path)?;
        let mut command = Command::new(&path);
        command.args(["-c", "while :; do :; done"]).stdout(Stdio::null());
        let child = command.spawn().context("cannot start it")?;
        Ok(Self { child, path, folder })
    }

    fn file(&self, content: &str, suffix: &str) -> Result<PathBuf> {
        let path = self.folder.path().join(format!("{HOSTILE}{suffix}"));
        fs::write(&path, content)?;
        Ok(path)
    }
}

impl Drop for HostileProgram {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a run prints, which has the name in it, but not its effects.
fn printed(arguments: &[&dyn AsRef<Path>]) -> Result<()> {
    let arguments: Vec<OsString> = arguments.iter().map(|argument| argument.as_ref().into()).collect();
    let log = sidewinder::run(&arguments)?.log;
    without_effects(&log).with_context(|| format!("{arguments:?}"))
}

fn without_effects(log: &str) -> Result<()> {
    ensure!(!log.contains(|letter: char| letter != '\n' && letter.is_control()), "{log:?}");
    ensure!(!log.lines().any(|line| line.trim_start().starts_with(SHOWN)), "{log}");
    ensure!(log.contains(SHOWN), "the name is not shown: {log}");
    Ok(())
}

#[promise(Formats)]
fn each_command_writes_hostile_names_out() -> Result<()> {
    let program = HostileProgram::start()?;
    let pid = program.child.id().to_string();
    let nothing = program.folder.path().join(HOSTILE).join("missing");
    let text = program.file("no profile", ".txt")?;
    let folded = program.file(&format!("{}\u{1b}[2J 5\n", "main;work"), ".folded")?;
    let otlp = program.file("no profile", ".otlp")?;
    let keys = program
        .file("receivers:\n  profiling:\n    \"a\\e[2J\\N\\u009b2J\\a\\nok       forged\": 1\n", ".yaml")?;
    let syntax = program.file("receivers: [\n", ".yaml")?;
    let set = format!("receivers.profiling.{HOSTILE}=1");
    let value = format!("receivers.profiling.samples_per_second={HOSTILE}");
    printed(&[&"check", &"-p", &pid])?;
    printed(&[&"check", &"-p", &pid, &"--json"])?;
    printed(&[&"inspect", &program.path])?;
    printed(&[&"inspect", &"--validate", &program.path])?;
    for file in [&nothing, &text, &otlp] {
        printed(&[&"inspect", file])?;
        printed(&[&"view", &"-o", &"/dev/null", &"--format", &"folded", file])?;
        printed(&[&"annotate", file, &"main"])?;
        printed(&[&"diff", file, file])?;
    }
    printed(&[&"annotate", &folded, &HOSTILE])?;
    printed(&[&"view", &"-o", &program.folder.path().join(format!("{HOSTILE}.svg")), &folded])?;
    printed(&[&"record", &"-a", &"-d", &"1s", &"-o", &nothing])?;
    printed(&[
        &"record",
        &"-a",
        &"-d",
        &"1s",
        &"-o",
        &program.folder.path().join(format!("{HOSTILE}.what")),
    ])?;
    printed(&[&"record", &"-p", &HOSTILE])?;
    printed(&[&"record", &"-a", &"--probe", &format!("uprobe:{HOSTILE}")])?;
    printed(&[
        &"record",
        &"-a",
        &"--source-path",
        &nothing,
        &"-d",
        &"1s",
        &"-o",
        &"/dev/null",
        &"--format",
        &"html",
    ])?;
    printed(&[&format!("--{HOSTILE}")])?;
    printed(&[&HOSTILE])?;
    printed(&[&"completions", &HOSTILE])?;
    for file in [&nothing, &keys, &syntax] {
        printed(&[&"validate", &"--config", file])?;
        printed(&[&"--config", file])?;
    }
    for set in [&set, &value] {
        printed(&[&"validate", &"--set", set])?;
        printed(&[&"print-config", &"--set", set])?;
        printed(&[&"--set", set])?;
    }
    let path = format!("exporters.file.path='{}'", nothing.to_string_lossy());
    printed(&[&"print-config", &"--format", &"json", &"--set", &path])?;
    printed(&[&"validate", &"--feature-gates", &HOSTILE])?;
    Ok(())
}

#[promise(Formats, test_all)]
fn a_recording_writes_hostile_names_out() -> Result<()> {
    if !requirement::ebpf("a recording of a program with a hostile name")? {
        return Ok(());
    }
    let program = HostileProgram::start()?;
    let pid = program.child.id().to_string();
    for suffix in [".otlp", ".html", ".folded"] {
        let output = program.folder.path().join(format!("{HOSTILE}{suffix}"));
        printed(&[&"record", &"-p", &pid, &"-d", &"1s", &"--table", &"-o", &output])?;
    }
    // The child that executes the command prints this.
    for command in [&program.folder.path().join(HOSTILE).join("missing"), &program.file("nothing", ".sh")?] {
        printed(&[&"record", &"-o", &"/dev/null", &"--format", &"folded", &"--", command])?;
    }
    Ok(())
}
