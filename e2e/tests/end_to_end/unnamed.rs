//! `record` says which processes have frames without a name and what would name them, and `check -p` says the same of a process
//! before it is recorded.

use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::{python, requirement, sidewinder};
use tempfile::TempDir;

const NODE: &str = "function f(n) { return n < 2 ? n : f(n - 1) + f(n - 2) } for (;;) f(20)";
const PYTHON: &str = "def works():\n    while True: sum(range(1000))\nworks()";
const SWITCH: &str = "--perf-basic-prof";
const TOO_EARLY: &str = "[JavaScript not detected yet]";
const PATIENCE: Duration = Duration::from_secs(30);

/// A program that runs until this goes.
struct Program {
    child: Child,
    /// Its working directory, in which node leaves a log.
    _folder: TempDir,
}

impl Program {
    fn start(command: &mut Command) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let child = command.current_dir(folder.path()).stdout(Stdio::null()).spawn();
        Ok(Self { child: child.context("cannot start it")?, _folder: folder })
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(format!("/tmp/perf-{}.map", self.pid()));
    }
}

fn node(options: &str) -> Result<Program> {
    Program::start(Command::new("node").args(["-e", NODE]).env("NODE_OPTIONS", options))
}

fn python() -> Result<Program> {
    Program::start(Command::new(python::SYSTEM).args(["-c", PYTHON]))
}

/// What `record` says of these processes, to people and as JSON.
fn recorded(suffix: &str, programs: &[&Program], options: &[&str]) -> Result<(String, Vec<Value>)> {
    let folder = tempfile::tempdir()?;
    let (output, summary) = (folder.path().join(format!("out{suffix}")), folder.path().join("summary.json"));
    let mut command = sidewinder::command()?;
    command.args(["record", "-F", "499", "-d", "1s", "-o"]).arg(&output).arg("--summary-json").arg(&summary);
    let pids: Vec<String> = programs.iter().map(|program| program.pid().to_string()).collect();
    command.arg("-p").arg(pids.join(",")).args(options);
    let ended = sidewinder::Running::start(command)?.wait(PATIENCE)?;
    ensure!(ended.status.success(), "{}: {}", ended.status, ended.log);
    let summary: Value = serde_json::from_str(&std::fs::read_to_string(&summary)?)?;
    Ok((ended.log, summary["unnamed"].as_array().context("no list")?.clone()))
}

/// What `check -p` says of a process, once that satisfies a condition.
fn checked(program: &Program, is_it: impl Fn(&Value) -> bool) -> Result<Value> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let ended = sidewinder::run(&["check", "--json", "-p", &program.pid().to_string()])?;
        let document: Value = serde_json::from_str(&ended.log).context(ended.log)?;
        let process = &document["processes"][0];
        if is_it(process) {
            return Ok(process.clone());
        }
        ensure!(Instant::now() < deadline, "{process:#}");
        thread::sleep(Duration::from_millis(100));
    }
}

#[promise(Names, test_all)]
fn code_of_node_without_names_is_reported_with_the_switch_that_names_it() -> Result<()> {
    let title = "unnamed code of node";
    if !requirement::ebpf(title)? || !requirement::program(title, "node")? {
        return Ok(());
    }
    let (without, with) = (node("")?, node(SWITCH)?);
    let process = checked(&without, |process| process["runtimes"][0]["names"]["state"] == "ok")?;
    let runtime = &process["runtimes"][0];
    ensure!(runtime["id"] == "v8" && runtime["next"].is_null(), "{process:#}");
    let (log, unnamed) = recorded(".folded", &[&without], &[])?;
    ensure!(unnamed.is_empty() && !log.contains("without a name"), "{log}");

    // Without the functions that are read from memory, the code has only the names that the process publishes.
    for suffix in [".otlp", ".folded"] {
        let (log, unnamed) = recorded(suffix, &[&without, &with], &["--no-interpreters"])?;
        let [group] = &unnamed[..] else { anyhow::bail!("{unnamed:#?}\n{log}") };
        ensure!(group["pids"] == serde_json::json!([without.pid()]), "{group:#}");
        ensure!(group["runtime"] == "v8" && group["cause"] == "generated_code", "{group:#}");
        let (samples, some) = (group["samples"].as_u64(), group["unnamed"].as_u64());
        ensure!(samples >= some && some > Some(10), "{group:#}");
        let line = format!("node (pid {}): ", without.pid());
        let line = log.lines().find(|text| text.contains(&line)).context(log.clone())?;
        ensure!(
            line.ends_with(group["next"].as_str().unwrap_or_default()) && line.contains(SWITCH),
            "{line}"
        );
    }
    let (log, unnamed) = recorded(".folded", &[&without], &["--quiet", "--no-interpreters"])?;
    ensure!(log.is_empty() && unnamed.len() == 1, "{log:?}");
    Ok(())
}

/// Of a program that starts with the recording, the first samples are from before the tables of `node` are built.
#[promise(Names, test_all)]
fn samples_from_before_functions_were_known_ask_for_more_time_and_no_switch() -> Result<()> {
    let title = "first samples of node";
    if !requirement::ebpf(title)? || !requirement::program(title, "node")? {
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let summary = folder.path().join("summary.json");
    let mut command = sidewinder::command()?;
    let output = folder.path().join("out.folded");
    command.args(["record", "-F", "997", "-d", "6s", "-o"]).arg(&output);
    command.arg("--summary-json").arg(&summary).args(["--", "node", "-e", NODE]);
    let ended = sidewinder::Running::start(command)?.wait(PATIENCE)?;
    let summary: Value =
        serde_json::from_str(&std::fs::read_to_string(&summary).context(ended.log.clone())?)?;
    let groups = summary["unnamed"].as_array().context("no list")?;
    let of_node = groups.iter().find(|group| group["runtime"] == "v8").context(ended.log.clone())?;
    ensure!(of_node["cause"] == "too_early" && !ended.log.contains(SWITCH), "{of_node:#}\n{}", ended.log);
    let stacks = std::fs::read_to_string(&output)?;
    // On a slow machine later walks give up before the tables are built.
    let has_given_up = summary["outcomes"]["no_table"].as_u64() > Some(0);
    ensure!(has_given_up || stacks.contains(TOO_EARLY), "no stack says that functions are missing");
    let twice = format!("{TOO_EARLY};{TOO_EARLY}");
    ensure!(!stacks.contains(&twice), "a run of missing functions has one marker");
    Ok(())
}

#[promise(Names)]
fn functions_of_python_are_read_by_check_and_none_is_reported_as_unnamed() -> Result<()> {
    let title = "names of Python";
    if !requirement::python(title)? {
        return Ok(());
    }
    let program = python()?;
    let process = checked(&program, |process| {
        let detail = process["runtimes"][0]["names"]["detail"].as_str();
        detail.is_some_and(|detail| detail.starts_with("read works (<string>:1)"))
    })?;
    let runtime = &process["runtimes"][0];
    ensure!(
        runtime["id"] == "cpython" && runtime["state"] == "ok" && runtime["next"].is_null(),
        "{process:#}"
    );
    let (log, unnamed) = recorded(".folded", &[&program], &[])?;
    ensure!(unnamed.is_empty() && !log.contains("without a name"), "{log}");
    Ok(())
}

/// Root without the right to read other users' processes: as a sidecar without `SYS_PTRACE`.
#[promise(Names)]
fn a_privilege_that_is_missing_is_named() -> Result<()> {
    let title = "memory of Python that can't be read";
    if !requirement::python(title)? || !requirement::program(title, "setpriv")? {
        return Ok(());
    }
    let mut user = Command::new("setpriv");
    user.args(["--reuid=65534", "--regid=65534", "--clear-groups", python::SYSTEM, "-c", PYTHON]);
    let program = Program::start(&mut user)?;
    let profiler = sidewinder::command()?.get_program().to_owned();
    let pid = program.pid().to_string();
    // Until `setpriv` has become another user.
    checked(&program, |process| process["runtimes"][0]["id"] == "cpython")?;

    let run = |arguments: &[&str]| {
        let mut command = Command::new("setpriv");
        command.arg("--bounding-set=-sys_ptrace").arg(&profiler).args(arguments).args(["-p", &pid]);
        sidewinder::Running::start(command)?.wait(PATIENCE)
    };
    let ended = run(&["check"])?;
    ensure!(ended.status.code() == Some(3), "{}: {}", ended.status, ended.log);
    ensure!(ended.log.contains("denied") && ended.log.contains("CAP_SYS_PTRACE"), "{}", ended.log);
    let folder = tempfile::tempdir()?;
    let output = folder.path().join("out.folded").display().to_string();
    let ended = run(&["record", "-F", "499", "-d", "2s", "-o", &output])?;
    ensure!(ended.status.success(), "{}: {}", ended.status, ended.log);
    let line = ended.log.lines().find(|line| line.contains("without a name")).context(ended.log.clone())?;
    ensure!(line.contains(&format!("(pid {pid})")) && line.contains("CAP_SYS_PTRACE"), "{line}");
    Ok(())
}

#[promise(Names)]
fn a_process_that_does_not_exist_is_an_error() -> Result<()> {
    let mut child = Command::new("true").spawn()?;
    let pid = child.id().to_string();
    child.wait()?;
    let ended = sidewinder::run(&["check", "-p", &pid])?;
    ensure!(ended.log.contains("there is no such process") && ended.log.contains("pgrep"), "{}", ended.log);
    // 3 if the machine is not ready either.
    ensure!(matches!(ended.status.code(), Some(1 | 3)), "{}", ended.status);
    Ok(())
}

#[promise(Names, test_all)]
fn code_without_symbols_is_listed_with_its_build_id_and_its_package() -> Result<()> {
    if !requirement::ebpf("a recording of a stripped program")? {
        return Ok(());
    }
    let gzip = Program::start(Command::new("gzip").arg("-9").stdin(std::fs::File::open("/dev/zero")?))?;
    let is_of_dpkg = std::path::Path::new("/var/lib/dpkg/info/gzip.list").exists();
    let named = |log: &str| {
        let line = log.lines().find(|line| line.contains("gzip (build ID ")).context(log.to_owned())?;
        let advice = log.lines().skip_while(|other| *other != line).take(2).collect::<String>();
        ensure!(advice.contains("--debuginfod"), "{log}");
        ensure!(!is_of_dpkg || advice.contains("install gzip-dbgsym"), "{log}");
        Ok(line.to_owned())
    };
    for suffix in [".folded", ".otlp"] {
        let (log, _) = recorded(suffix, &[&gzip], &[])?;
        ensure!(named(&log)?.contains(" samples are in code without symbols: "), "{log}");
        // Both have the same lines.
        ensure!(log.contains(" samples in 1.0 s at 499 Hz, ") && log.contains("%  "), "{log}");
    }
    let (log, _) = recorded(".otlp", &[&gzip], &["--wall"])?;
    let headline = log
        .lines()
        .find(|line| line.contains(" s of wall time of all threads in 1.0 s"))
        .context(log.clone())?;
    ensure!(!headline.starts_with("0.000 s"), "{log}");
    let checked = sidewinder::run(&["check", "-p", &gzip.pid().to_string()])?.log;
    named(&checked)?;
    ensure!(
        checked.contains("files have no symbols") && !checked.contains("ok       native code only"),
        "{checked}"
    );
    Ok(())
}
