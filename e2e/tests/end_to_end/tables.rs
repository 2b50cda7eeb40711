//! Unwind tables for which there is no room, and tables that are saved on disk.

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::Value;
use sidewinder_e2e_support::load::Load;
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::session::{Daemon, Settings};
use sidewinder_e2e_support::{requirement, sidewinder};

/// No Collector is there: what is sent is of no interest here.
const NOBODY: &str = "127.0.0.1:9";
const PATIENCE: Duration = Duration::from_secs(30);

/// A compiler, with libraries of 100 MB, that waits for its source.
fn waiting_compiler(folder: &Path) -> Result<Load> {
    let source = folder.join("source.c");
    mkfifo(&source, Mode::S_IRUSR | Mode::S_IWUSR)?;
    let mut command = Command::new("clang");
    command.args(["-fsyntax-only"]).arg(source);
    Load::start(command)
}

/// Starts the service for one process with these lines of YAML, and waits until what its status says of the receiver is enough.
fn profile_until(pid: u32, more: &[String], is_enough: impl Fn(&Value) -> bool) -> Result<(Daemon, Value)> {
    let settings = Settings { more: more.to_vec(), ..Settings::of_process(pid) };
    let daemon = Daemon::start(&settings, NOBODY)?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let status = daemon.receiver_status()?;
        if is_enough(&status) {
            return Ok((daemon, status));
        }
        ensure!(Instant::now() < deadline, "{status:#}\n{}", daemon.running().log());
        thread::sleep(Duration::from_millis(200));
    }
}

#[promise(Status, test_all)]
fn status_names_a_file_without_room_for_its_table_and_the_memory_that_is_enough() -> Result<()> {
    const NAME: &str = "files without room for their tables";
    if !requirement::ebpf(NAME)? || !requirement::program(NAME, "clang")? {
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let compiler = waiting_compiler(folder.path())?;
    let little = ["memory_limit_mib: 16".to_owned()];
    let incomplete = |status: &Value| status["tables_incomplete"].clone();
    let (daemon, status) =
        profile_until(compiler.pid(), &little, |status| !incomplete(status)["files"][0].is_null())?;
    let incomplete = incomplete(&status);
    let file = &incomplete["files"][0];
    let path = file["path"].as_str().context("no path")?;
    assert!(path.contains("libLLVM") || path.contains("libclang"), "{incomplete:#}");
    let bytes = |key: &str| file[key].as_u64().unwrap_or_default();
    assert!(bytes("left_out_code_bytes") > 1 << 20, "{incomplete:#}");
    assert!(bytes("left_out_code_bytes") <= bytes("code_bytes"), "{incomplete:#}");
    let enough_mib = incomplete["memory_limit_mib_for_all"].as_u64().context("no limit")?;
    assert!((17..512).contains(&enough_mib), "{incomplete:#}");
    let text = sidewinder::run(&["status", "--pid", &daemon.running().pid().to_string()])?.log;
    assert!(text.contains(path) && text.contains("would hold all"), "{text}");
    Ok(())
}

#[promise(Small, test_all)]
fn tables_that_were_saved_are_read_back_by_the_next_run() -> Result<()> {
    const NAME: &str = "saved tables";
    if !requirement::ebpf(NAME)? || !requirement::program(NAME, "clang")? {
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let compiler = waiting_compiler(folder.path())?;
    let directory = folder.path().join("tables");
    let saving = [format!("unwind: {{ tables_directory: {} }}", directory.display())];
    let saved_files =
        || std::fs::read_dir(&directory).map_or(0, |files| files.flatten().filter(is_table).count());
    let is_table_of_compiler = |_: &Value| saved_files() >= 3;
    let (daemon, first) = profile_until(compiler.pid(), &saving, is_table_of_compiler)?;
    daemon.stop()?;
    let read_back = |status: &Value| status["counters"]["tables_read_back"].as_u64().unwrap_or_default();
    assert_eq!(read_back(&first), 0, "{first:#}");
    let saved = saved_files() as u64;
    let (_daemon, second) = profile_until(compiler.pid(), &saving, |status| read_back(status) >= saved)?;
    assert_eq!(second["counters"]["tables_not_saved"], 0, "{second:#}");
    Ok(())
}

fn is_table(file: &std::fs::DirEntry) -> bool {
    file.path().extension().is_some_and(|extension| extension == "table")
}
