//! The commands under "Ten questions" of `docs/use.md`, as a user would type them.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use flate2::read::GzDecoder;
use sidewinder_e2e_instrumented::service::Service;
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::workload::{Gated, LADDER};
use sidewinder_e2e_support::{command, paths, requirement};
use sidewinder_render::decode_document;

use crate::top::Terminal;

const HEADING: &str = "## Ten questions";
/// How long the examples record, and how long the test does.
const SECONDS: (&str, &str) = ("-d 10", "-d 1");

/// How the functions begin in which the service computes while it makes a report: of these, each answer has some.
const FUNCTION: &str = "sidewinder_example_service::work::";

/// What an answer has besides, by a part of its command.
const BESIDES: [(&str, &[&str]); 5] = [
    // Where threads without work wait.
    ("--wall", &["sleeping", "epoll_wait"]),
    // Of another process.
    ("-a -d", &["climb"]),
    ("pprof -top", &["Type: cpu", "flat%"]),
    ("speedscope", &["https://www.speedscope.app/file-format-schema.json"]),
    ("firefox", &["preprocessedProfileVersion"]),
];

/// All text in what a command has written.
fn text_of(file: &Path) -> Result<String> {
    /// Where base64 of a gzip file begins in a page.
    const GZIP: &str = "H4sI";
    let bytes = fs::read(file)?;
    let gunzipped = |bytes: &[u8]| -> Result<Vec<u8>> {
        let mut content = Vec::new();
        GzDecoder::new(bytes).read_to_end(&mut content)?;
        Ok(content)
    };
    let bytes = match file.extension().and_then(OsStr::to_str) {
        Some("html") => {
            let page = String::from_utf8(bytes)?;
            let (_, data) = page.split_once(GZIP).context("no data")?;
            let data = data.split('<').next().unwrap_or_default();
            let document = gunzipped(&BASE64_STANDARD.decode(format!("{GZIP}{data}"))?)?;
            decode_document(&document)?.to_string().into_bytes()
        }
        Some("gz") => gunzipped(&bytes)?,
        _ => bytes,
    };
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The commands of the section, without what is said of them.
fn commands() -> Result<Vec<String>> {
    let text = fs::read_to_string(paths::repository().join("docs/use.md"))?;
    let (_, section) = text.split_once(HEADING).context("no such section")?;
    let section = section.split("\n## ").next().unwrap_or_default();
    let lines = section.lines().filter_map(|line| line.strip_prefix("$ "));
    Ok(lines.map(|line| line.split("  #").next().unwrap_or_default().trim_end().to_owned()).collect())
}

/// The thread of a process that uses the most CPU time now.
fn busiest_thread(pid: u32) -> Result<u32> {
    let used = || -> Result<HashMap<u32, u64>> {
        let ticks = |tid: u32| -> Option<u64> {
            let stat = fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat")).ok()?;
            // `utime`, counted from behind the name.
            stat.rsplit_once(')')?.1.split_whitespace().nth(11)?.parse().ok()
        };
        let tids = fs::read_dir(format!("/proc/{pid}/task"))?
            .filter_map(|task| task.ok()?.file_name().to_str()?.parse::<u32>().ok());
        Ok(tids.filter_map(|tid| Some((tid, ticks(tid)?))).collect())
    };
    let before = used()?;
    thread::sleep(Duration::from_millis(500));
    let since = |(tid, ticks): (u32, u64)| (ticks - before.get(&tid).copied().unwrap_or(ticks), tid);
    used()?.into_iter().map(since).max().map(|(_, tid)| tid).context("no thread")
}

#[promise(Questions, test_all)]
fn each_command_answers_its_question() -> Result<()> {
    let test = "each_command_answers_its_question";
    if !requirement::ebpf(test)? || !requirement::program(test, "go")? {
        return Ok(());
    }
    let service = Service::start(4, 2_000)?;
    let [trace, _] = service.begin_report(600)?;
    let mut other = Gated::start(LADDER.command(&[600, 10])?)?;
    other.open()?;
    let program = paths::sidewinder()?;
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", program.parent().context("a path")?.display());
    let folder = tempfile::tempdir()?;
    let commands = commands()?;
    ensure!(commands.len() >= 12, "{commands:?}");
    for line in commands {
        let tid = busiest_thread(service.pid())?.to_string();
        let words = line.split(' ').map(|word| match word {
            "PID" => service.pid().to_string(),
            "TID" => tid.clone(),
            "TRACE" => trace.clone(),
            other => other.to_owned(),
        });
        let words: Vec<String> = words.collect();
        if let Some(arguments) = line.starts_with("sidewinder top").then(|| &words[1..]) {
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            let mut terminal = Terminal::run(&arguments)?;
            terminal.until("samples", |screen| screen.contains("% complete"))?;
            terminal.press("q")?;
            ensure!(terminal.ended()?.success(), "{line}");
            continue;
        }
        let typed = words.join(" ").replace(SECONDS.0, SECONDS.1);
        let start = Instant::now();
        let mut shell = Command::new("sh");
        shell.args(["-c", &typed]).env("PATH", &path).current_dir(&folder);
        let printed = command::run(&mut shell)?;
        eprintln!("{:6.1} s  {typed}", start.elapsed().as_secs_f64());
        let written = words.iter().position(|word| word == "-o").and_then(|at| words.get(at + 1));
        let records = line.starts_with("sidewinder record");
        let answer = match written.map(String::as_str).or(records.then_some("profile.html")) {
            Some(file) => {
                let path = folder.path().join(file);
                ensure!(fs::metadata(&path)?.len() > 500, "{line}: little in {file}");
                text_of(&path)?
            }
            None => printed,
        };
        if line.starts_with("sidewinder check") {
            ensure!(answer.contains(&service.pid().to_string()), "{line}: {answer}");
            continue;
        }
        let besides = BESIDES.iter().filter(|(part, _)| line.contains(part)).flat_map(|(_, texts)| *texts);
        let request = line.contains("TRACE").then_some(&*trace);
        for text in besides.copied().chain(request).chain([FUNCTION]) {
            ensure!(answer.contains(text), "{line}: no {text} in {} bytes", answer.len());
        }
    }
    ensure!(fs::metadata(folder.path().join("profile.html"))?.len() > 10_000, "no page");
    Ok(())
}
