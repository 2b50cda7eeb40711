//! A small document stays small: in a cgroup of 64 MiB, what would expand to gigabytes is refused, and the profiler goes on.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use sidewinder_e2e_support::cgroup::MemoryLimit;
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::sidewinder::{self, Running};
use sidewinder_e2e_support::{collector, http, requirement};

const LIMIT_BYTES: u64 = 64 << 20;
const TIMEOUT: Duration = Duration::from_secs(60);
const USAGE: i32 = 2;

/// A field of a message of protobuf: its number, and what it contains.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2], &*varint(content.len()), content].concat()
}

fn integer(number: u8, value: usize) -> Vec<u8> {
    [&[number << 3], &*varint(value)].concat()
}

fn varint(mut value: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

/// A stack that has one location so often, with so many inlined calls, in pprof's format.
fn pprof(references: usize, lines: usize) -> Vec<u8> {
    let sample = field(2, &[field(1, &vec![1; references]), field(2, &[1])].concat());
    let location = field(4, &[integer(1, 1), field(4, &integer(1, 1)).repeat(lines)].concat());
    let function = field(5, &[integer(1, 1), integer(2, 3)].concat());
    let strings = ["", "samples", "count", "main"].map(|text| field(6, text.as_bytes())).concat();
    [field(1, &[integer(1, 1), integer(2, 2)].concat()), sample, location, function, strings].concat()
}

/// The same in OTLP, with profiles that are empty.
fn otlp(references: usize, lines: usize, empty_profiles: usize) -> Vec<u8> {
    let [mapping, link, attribute] = [1, 4, 6].map(|table| field(table, &[]));
    let locations = [field(2, &[]), field(2, &field(3, &integer(1, 1)).repeat(lines))].concat();
    let functions = [field(3, &[]), field(3, &integer(1, 3))].concat();
    let strings = ["", "samples", "count", "main"].map(|text| field(5, text.as_bytes())).concat();
    let stacks = [field(7, &[]), field(7, &field(1, &vec![1; references]))].concat();
    let dictionary = [mapping, locations, functions, link, strings, attribute, stacks].concat();
    let sample = field(2, &[integer(1, 1), field(4, &[1])].concat());
    let profile = field(2, &[field(1, &[integer(1, 1), integer(2, 2)].concat()), sample].concat());
    let profiles = [profile, field(2, &[]).repeat(empty_profiles)].concat();
    [field(1, &field(2, &profiles)), field(2, &dictionary)].concat()
}

/// `None` where there is no controller of memory.
fn limit(test: &str) -> Result<Option<MemoryLimit>> {
    match MemoryLimit::new(&format!("sidewinder-{test}-{}", std::process::id()), LIMIT_BYTES) {
        Ok(limit) => Ok(Some(limit)),
        Err(error) => requirement::skip(test, &format!("{error:#}")).map(|()| None),
    }
}

#[promise(Formats)]
fn files_that_expand_to_gigabytes_are_refused_within_64_mib() -> Result<()> {
    let Some(limit) = limit("small_files")? else { return Ok(()) };
    let folder = tempfile::tempdir()?;
    let page = folder.path().join("out.html").display().to_string();
    for (name, document, says) in [
        ("references.pb", pprof(40_000, 40_000), "expands to more than"),
        ("references.otlp", otlp(40_000, 40_000, 0), "expands to more than"),
        ("profiles.otlp", otlp(1, 1, 1_000_000), "so many entries that it takes more than"),
    ] {
        let path = folder.path().join(name);
        fs::write(&path, document)?;
        let mut command = sidewinder::command_within(&limit)?;
        command.arg("view").arg(&path).args(["-o", &page]);
        let ended = Running::start(command)?.wait(TIMEOUT)?;
        ensure!(ended.status.code() == Some(USAGE) && ended.log.contains(says), "{name}: {}", ended.log);
    }
    ensure!(limit.kills()? == 0);
    Ok(())
}

#[promise(Formats)]
fn messages_that_expand_to_gigabytes_are_refused_within_64_mib_and_others_are_taken() -> Result<()> {
    let Some(limit) = limit("small_messages")? else { return Ok(()) };
    let [port, _] = collector::free_ports()?;
    let mut command = sidewinder::command_within(&limit)?;
    command.args(["view", &format!("--listen=127.0.0.1:{port}")]);
    let page = Running::start(command)?;
    let deadline = Instant::now() + TIMEOUT;
    while !page.log().contains("Receiving") {
        ensure!(Instant::now() < deadline, "{}", page.log());
        thread::sleep(Duration::from_millis(20));
    }
    let send = |message: &[u8]| {
        let headers = [("Content-Type", "application/x-protobuf")];
        http::request(port, "POST", "/v1development/profiles", &headers, message)
    };
    for _ in 0..10 {
        for (message, says) in [
            (otlp(40_000, 40_000, 0), "expands to more than"),
            (otlp(1, 1, 1_000_000), "so many entries that it takes more than"),
        ] {
            let answer = send(&message)?;
            ensure!(answer.status == 400 && answer.text().contains(says), "{answer:?}");
        }
        let taken = send(&otlp(10, 10, 10))?;
        ensure!(taken.status == 200, "{taken:?}");
    }
    let ended = page.stop()?;
    ensure!(ended.status.success() && ended.log.contains("with 110 profiles"), "{}", ended.log);
    ensure!(limit.kills()? == 0);
    Ok(())
}
