//! Output that somebody else reads, or stops to read: what commands print ends with them, and a closed pipe is no error.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::sidewinder;

const TIMEOUT: Duration = Duration::from_secs(60);

/// 5,000 functions of two programs that are one, with another name; one function takes more in the second.
fn write_profiles(folder: &Path) -> Result<[String; 2]> {
    let profile = |more: u32| -> String {
        let line = |number| format!("app;main;function_{number} {}\n", if number == 7 { more } else { 10 });
        (0..5_000).map(line).collect()
    };
    let paths = ["before.folded", "after.folded"].map(|name| folder.join(name));
    fs::write(&paths[0], profile(10))?;
    fs::write(&paths[1], profile(900))?;
    Ok(paths.map(|path| path.display().to_string()))
}

fn wait(mut process: Child) -> Result<Output> {
    let deadline = Instant::now() + TIMEOUT;
    while process.try_wait()?.is_none() {
        if Instant::now() > deadline {
            process.kill()?;
            process.wait()?;
            ensure!(false, "it does not end");
        }
        thread::sleep(Duration::from_millis(10));
    }
    Ok(process.wait_with_output()?)
}

/// A pipe that nobody reads any more.
fn closed_pipe() -> Result<Stdio> {
    let (reader, writer) = std::io::pipe()?;
    drop(reader);
    Ok(writer.into())
}

#[promise(Record, test_all)]
fn a_closed_pipe_is_no_error_of_any_command_that_prints() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let [before, after] = write_profiles(folder.path())?;
    let to_stdout = ["-o", "/dev/stdout", "--format"];
    let views = ["folded", "html", "svg", "pprof", "otlp", "firefox", "speedscope"];
    let views = views.map(|format| [&["view", &before], &to_stdout[..], &[format]].concat());
    let others = [
        &["--help"][..],
        &["--version"],
        &["record", "--help"],
        &["components"],
        &["print-config"],
        &["validate"],
        &["completions", "bash"],
        &["check"],
        &["check", "--json"],
        &["inspect", "--rows", "/proc/self/exe"],
        &["inspect", "/proc/self/exe"],
        &["view", &before],
        &["diff", &before, &after],
        &["diff", "--rows", "5000", &before, &after],
    ];
    for arguments in others.into_iter().chain(views.iter().map(Vec::as_slice)) {
        let ended = |stdout: Stdio| -> Result<Output> {
            let mut command = sidewinder::command()?;
            wait(command.args(arguments).stdout(stdout).stderr(Stdio::piped()).spawn()?)
        };
        let closed = ended(closed_pipe()?)?;
        let said = String::from_utf8_lossy(&closed.stderr).into_owned();
        ensure!(!said.contains("can't") && !said.to_lowercase().contains("pipe"), "{arguments:?}: {said}");
        // `check` says by its exit code what is missing here, and a page is served until it is interrupted.
        let expected = if arguments[0] == "view" { Some(0) } else { ended(Stdio::null())?.status.code() };
        ensure!(
            closed.status.code() == expected,
            "{arguments:?}: {}, not {expected:?}: {said}",
            closed.status
        );
    }
    Ok(())
}

/// In a terminal the page is served, and Ctrl-C ends that. In a file nobody would read its address.
#[promise(Record)]
fn a_comparison_in_a_file_ends_and_is_whole() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let [before, after] = write_profiles(folder.path())?;
    let path = folder.path().join("out.txt");
    let mut command = sidewinder::command()?;
    command.args(["diff", &before, &after]).stdout(File::create(&path)?).stderr(Stdio::piped());
    let ended = wait(command.spawn()?)?;
    let text = fs::read_to_string(&path)?;
    ensure!(ended.status.success(), "{}: {}", ended.status, String::from_utf8_lossy(&ended.stderr));
    let row = text.lines().find(|line| line.ends_with("  function_7")).unwrap_or_default();
    ensure!(row.contains("<0.0001") && !text.contains("http://"), "{text}");
    Ok(())
}
