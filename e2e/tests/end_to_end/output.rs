//! What `record`, `view` and `diff` write is whole or not there, whatever becomes of them meanwhile.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, mkfifo};
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::received::Received;
use sidewinder_e2e_support::sidewinder::{self, Running};
use sidewinder_e2e_support::workload::{self, Gated, LADDER};
use sidewinder_e2e_support::{paths, requirement};
use sidewinder_otlp::conformance;

const OK: i32 = 0;
const RUNTIME: i32 = 1;
const USAGE: i32 = 2;
const OWN_FAILURE: i32 = 125;
const NOT_EXECUTABLE: i32 = 126;
const NOT_FOUND: i32 = 127;
/// Longer than any of these takes.
const PATIENCE: Duration = Duration::from_secs(60);
const OLD: &str = "what was there before";
/// Long enough for samples of a program that computes.
const SAMPLED_FOR: Duration = Duration::from_millis(500);
/// Some tenths of a second of CPU time, for a shell.
const BUSY: &str = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";

/// A folder with one file in it, `out.html`.
fn old_file() -> Result<(tempfile::TempDir, std::path::PathBuf)> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("out.html");
    fs::write(&path, OLD)?;
    Ok((folder, path))
}

fn names(folder: &Path) -> Result<Vec<String>> {
    let names = fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let mut names: Vec<String> = names.collect::<Result<_>>()?;
    names.sort();
    Ok(names)
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap_or_default()
}

/// A program that computes for as long as it is recorded. Its few functions are named in milliseconds, so that signals come while
/// the output is written; the whole machine's take seconds.
fn workload() -> Result<Gated> {
    let mut workload = Gated::start(workload::in_background(&LADDER.command(&[300, 10])?))?;
    workload.open()?;
    Ok(workload)
}

/// Whoever runs the tests may ignore hangups, as `nohup` does, which children inherit.
fn hangups_not_ignored() -> Command {
    let mut command = Command::new("env");
    command.arg("--default-signal=HUP");
    command
}

/// A running recording of a program, until it is stopped.
fn recording(workload: &Gated, output: &Path) -> Result<Running> {
    let mut command = hangups_not_ignored();
    command.arg(paths::sidewinder()?).args(["record", "-F", "97", "-p"]).arg(workload.pid().to_string());
    command.arg("-o").arg(output);
    let running = Running::start_sampling(command)?;
    // Nothing would be written without samples.
    thread::sleep(SAMPLED_FOR);
    Ok(running)
}

fn send(running: &Running, signal: Signal) -> Result<()> {
    Ok(kill(Pid::from_raw(i32::try_from(running.pid())?), signal)?)
}

/// Whether a file holds a page, and all of it.
fn is_whole_page(path: &Path) -> Result<bool> {
    let page = fs::read_to_string(path)?;
    Ok(page.len() > 10_000 && page.trim_end().ends_with("</html>"))
}

#[promise(Record)]
fn hanging_up_ends_a_recording_as_an_interrupt_does() -> Result<()> {
    if !requirement::ebpf("hanging up ends a recording")? {
        return Ok(());
    }
    let workload = workload()?;
    for signal in [Signal::SIGHUP, Signal::SIGTERM, Signal::SIGINT] {
        let (folder, path) = old_file()?;
        let mut running = recording(&workload, &path)?;
        send(&running, signal)?;
        let ended = running.wait(PATIENCE)?;
        assert_eq!(ended.status.code(), Some(OK), "{signal}: {}", ended.log);
        ensure!(is_whole_page(&path)?, "{signal}: {}", ended.log);
        assert_eq!(names(folder.path())?, ["out.html"]);
    }
    // Under `nohup` it continues.
    let (_folder, path) = old_file()?;
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' HUP; exec \"$@\"", "sh"]).arg(paths::sidewinder()?);
    command.args(["record", "-F", "97", "-d", "2s", "-p"]).arg(workload.pid().to_string());
    command.arg("-o").arg(&path).stdin(Stdio::null());
    let mut running = Running::start_sampling(command)?;
    send(&running, Signal::SIGHUP)?;
    let ended = running.wait(PATIENCE)?;
    ensure!(ended.status.success() && is_whole_page(&path)?, "{}: {}", ended.status, ended.log);
    Ok(())
}

/// The terminal takes the messages of progress, then it is gone: nobody can be told anything any more.
#[promise(Record)]
fn a_closed_terminal_ends_a_recording_which_is_written() -> Result<()> {
    if !requirement::ebpf("a closed terminal")? || !requirement::program("a closed terminal", "setsid")? {
        return Ok(());
    }
    let workload = workload()?;
    let (folder, path) = old_file()?;
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let line = rustix::fs::open(ptsname(&master, Vec::new())?, flags, Mode::empty())?;
    let side = || line.try_clone().map(Stdio::from);
    let mut process = hangups_not_ignored()
        .args(["setsid", "--ctty", "--wait"])
        .arg(paths::sidewinder()?)
        .args(["record", "-F", "97", "-p", &workload.pid().to_string(), "-o"])
        .arg(&path)
        .stdin(side()?)
        .stdout(side()?)
        .stderr(side()?)
        .spawn()?;
    drop(line);
    let mut screen = File::from(master);
    let mut shown = String::new();
    let has_samples = |shown: &str| {
        shown.split('\r').any(|line| line.contains("% complete") && !line.contains(" 0 samples"))
    };
    while !has_samples(&shown) {
        let mut bytes = [0; 4096];
        let count = screen.read(&mut bytes).with_context(|| format!("it ended: {shown}"))?;
        shown.push_str(&String::from_utf8_lossy(&bytes[..count]));
    }
    drop(screen);
    let status = process.wait()?;
    ensure!(is_whole_page(&path)?, "{status}: {shown}");
    assert_eq!(status.code(), Some(OK), "{shown}");
    assert_eq!(names(folder.path())?, ["out.html"]);
    Ok(())
}

#[promise(Record)]
fn who_is_killed_leaves_the_old_file_or_the_whole_new_one() -> Result<()> {
    if !requirement::ebpf("who is killed")? {
        return Ok(());
    }
    let workload = workload()?;
    // While samples are taken; at once after the recording was told to end; and in the middle of what comes then.
    let cases: [(&[Signal], u64); 4] = [
        (&[Signal::SIGKILL], 0),
        (&[Signal::SIGINT, Signal::SIGKILL], 1),
        (&[Signal::SIGINT, Signal::SIGKILL], 10),
        (&[Signal::SIGINT; 3], 3),
    ];
    for (signals, delay_ms) in cases {
        let (folder, path) = old_file()?;
        let mut running = recording(&workload, &path)?;
        for signal in signals {
            // It may have ended.
            let _ = send(&running, *signal);
            thread::sleep(Duration::from_millis(delay_ms));
        }
        let ended = running.wait(PATIENCE)?;
        let is_old = fs::read_to_string(&path)? == OLD;
        ensure!(is_old || is_whole_page(&path)?, "{signals:?} after {delay_ms} ms: {}", ended.status);
        ensure!(!ended.status.success() || !is_old, "{signals:?} after {delay_ms} ms: {}", ended.log);
        ensure!(ended.status.signal() != Some(Signal::SIGSEGV as i32));
        assert_eq!(names(folder.path())?, ["out.html"], "{signals:?} after {delay_ms} ms");
    }
    Ok(())
}

/// A filesystem of its own, of 32 KiB, which nobody else sees.
#[promise(Record)]
fn a_full_disk_leaves_the_old_file_and_nothing_beside_it() -> Result<()> {
    if !requirement::ebpf("a full disk")? {
        return Ok(());
    }
    let kept = tempfile::tempdir()?;
    let folded = kept.path().join("in.folded");
    fs::write(&folded, "main;work 3\n")?;
    let workload = workload()?;
    let pid = workload.pid().to_string();
    let script = "mount -t tmpfs -o size=32k none \"$1\" && cd \"$1\" && echo old > out.html && shift && \"$@\"; \
                  echo \"code=$? kept=$(cat out.html) names=$(ls -A)\"";
    for arguments in [
        &["record", "-p", &pid, "-d", "500ms", "-o", "out.html"][..],
        &["view", "-o", "out.html", text(&folded)],
        &["diff", "-o", "out.html", text(&folded), text(&folded)],
    ] {
        let disk = tempfile::tempdir()?;
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", script, "sh"]).arg(disk.path()).arg(paths::sidewinder()?);
        command.args(arguments).stdin(Stdio::null());
        let ended = Running::start(command)?.wait(PATIENCE)?;
        ensure!(ended.log.contains("code=1 kept=old names=out.html"), "{arguments:?}: {}", ended.log);
        ensure!(ended.log.contains("No space left on device"), "{arguments:?}: {}", ended.log);
    }
    Ok(())
}

/// As a container's engine puts a single file where nothing else can be put.
#[promise(Record)]
fn a_file_that_is_mounted_is_written_in_its_place() -> Result<()> {
    if !nix::unistd::geteuid().is_root() {
        return requirement::skip("a file that is mounted", "mounting needs root");
    }
    let folder = tempfile::tempdir()?;
    let (inside, outside) = (folder.path().join("inside.folded"), folder.path().join("outside.folded"));
    let input = folder.path().join("in.folded");
    fs::write(&input, "main;work 3\n")?;
    fs::write(&inside, "")?;
    fs::write(&outside, OLD.repeat(10))?;
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", "mount --bind \"$1\" \"$2\" && shift 2 && exec \"$@\"", "sh"]);
    command.arg(&outside).arg(&inside).arg(paths::sidewinder()?);
    command.args(["view", "-o"]).arg(&inside).arg(&input).stdin(Stdio::null());
    let ended = Running::start(command)?.wait(PATIENCE)?;
    assert_eq!(ended.status.code(), Some(OK), "{}", ended.log);
    assert_eq!(fs::read_to_string(&outside)?, "main;work 3\n");
    assert_eq!(names(folder.path())?, ["in.folded", "inside.folded", "outside.folded"]);
    Ok(())
}

/// Waits until a recording waits for a reader of its output.
fn until_waiting(running: &Running) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !running.log().contains("waiting for somebody to read") {
        ensure!(Instant::now() < deadline, "it does not wait: {}", running.log());
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

#[promise(Record, test_all)]
fn a_pipe_is_written_to_once_and_waited_for() -> Result<()> {
    if !requirement::ebpf("a pipe")? {
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let pipe = folder.path().join("out.folded");
    mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU)?;
    let workload = workload()?;
    let record = || -> Result<Running> {
        let mut command = sidewinder::command()?;
        command.args(["record", "-d", "1s", "-p"]).arg(workload.pid().to_string()).arg("-o").arg(&pipe);
        Running::start(command)
    };
    let mut running = record()?;
    // The reader comes when the recording is over.
    until_waiting(&running)?;
    let read = Command::new("timeout").args(["30", "cat"]).arg(&pipe).output()?;
    let read = String::from_utf8(read.stdout)?;
    let ended = running.wait(PATIENCE)?;
    assert_eq!(ended.status.code(), Some(OK), "{}", ended.log);
    ensure!(!read.is_empty() && read.lines().all(|line| line.contains(' ')), "{read}");

    // Nobody comes: an interrupt ends the waiting.
    let mut running = record()?;
    until_waiting(&running)?;
    send(&running, Signal::SIGINT)?;
    let ended = running.wait(PATIENCE)?;
    assert_eq!(ended.status.code(), Some(RUNTIME), "{}", ended.log);
    ensure!(ended.log.contains("nobody has read the pipe"), "{}", ended.log);
    assert_eq!(names(folder.path())?, ["out.folded"]);
    Ok(())
}

#[promise(Record, test_all)]
fn standard_output_and_devices_are_written_to_directly() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let input = folder.path().join("in.folded");
    fs::write(&input, "main;work 3\n")?;
    let shell = |script: &str| -> Result<String> {
        let output = Command::new("bash")
            .args(["-c", script, "bash"])
            .arg(paths::sidewinder()?)
            .arg(&input)
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .output()?;
        ensure!(output.status.success(), "{script}: {output:?}");
        Ok(String::from_utf8(output.stdout)?)
    };
    let view = "\"$1\" view --format folded \"$2\" -o";
    assert_eq!(shell(&format!("{view} /dev/stdout | cat"))?, "main;work 3\n");
    // What was written before stays, and what comes after is behind it.
    shell(&format!("{{ echo first; {view} /dev/stdout; echo last; }} > kept"))?;
    assert_eq!(fs::read_to_string(folder.path().join("kept"))?, "first\nmain;work 3\nlast\n");
    assert_eq!(shell(&format!("{view} >(sed s/main/start/) | cat"))?, "start;work 3\n");
    shell(&format!("{view} /dev/null"))?;
    assert_eq!(names(folder.path())?, ["in.folded", "kept"]);
    let ended = sidewinder::run(&["view", "--format", "folded", "-o", "/dev/full", text(&input)])?;
    assert_eq!(ended.status.code(), Some(RUNTIME), "{}", ended.log);
    let ended = sidewinder::run(&["view", "-o", "/dev/stdout", text(&input)])?;
    assert_eq!(ended.status.code(), Some(USAGE), "{}", ended.log);
    ensure!(ended.log.contains("--format"), "{}", ended.log);
    Ok(())
}

#[promise(RecordCommand, test_all)]
fn a_command_that_never_ran_leaves_the_file_as_it_was() -> Result<()> {
    if !requirement::ebpf("a command that never ran")? {
        return Ok(());
    }
    let (folder, path) = old_file()?;
    let broken = folder.path().join("broken");
    fs::write(&broken, "#!/no/such/interpreter\n")?;
    let mut mode = fs::metadata(&broken)?.permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut mode, 0o755);
    fs::set_permissions(&broken, mode)?;
    let new = folder.path().join("new.html");
    for (command, code) in
        [("./nope", NOT_FOUND), ("/etc/passwd", NOT_EXECUTABLE), (text(&broken), NOT_FOUND)]
    {
        for output in [&path, &new] {
            let ended = sidewinder::run(&["record", "-o", text(output), "--", command])?;
            assert_eq!(ended.status.code(), Some(code), "{command}: {}", ended.log);
            ensure!(ended.log.contains("can't execute") && !ended.log.contains("wrote"), "{}", ended.log);
        }
        assert_eq!(fs::read_to_string(&path)?, OLD);
        assert_eq!(names(folder.path())?, ["broken", "out.html"]);
    }
    // One that ran, and ends by itself with the same code, was recorded.
    let busy = format!("{BUSY}; exit 127");
    let ended = sidewinder::run(&["record", "-F", "997", "-o", text(&path), "--", "sh", "-c", &busy])?;
    assert_eq!(ended.status.code(), Some(NOT_FOUND), "{}", ended.log);
    ensure!(is_whole_page(&path)?, "{}", ended.log);
    Ok(())
}

#[promise(RecordCommand, test_all)]
fn a_command_that_we_end_is_a_success() -> Result<()> {
    if !requirement::ebpf("a command that we end")? {
        return Ok(());
    }
    let (_folder, path) = old_file()?;
    let endless = ["sh", "-c", "while :; do :; done"];
    let record = ["record", "-o", text(&path)];
    let ended = sidewinder::run(&[&record[..], &["-d", "1s", "--"], &endless].concat())?;
    assert_eq!(ended.status.code(), Some(OK), "{}", ended.log);
    ensure!(is_whole_page(&path)?, "{}", ended.log);
    let mut command = sidewinder::command()?;
    command.args(record).arg("--").args(endless);
    let recording = Running::start_sampling(command)?;
    thread::sleep(SAMPLED_FOR);
    let ended = recording.stop()?;
    assert_eq!(ended.status.code(), Some(OK), "{}", ended.log);
    let ended = sidewinder::run(&["record", "-d", "30s", "-o", text(&path), "--", "sh", "-c", "exit 7"])?;
    assert_eq!(ended.status.code(), Some(7), "{}", ended.log);
    // Who is killed by somebody else is not.
    let ended =
        sidewinder::run(&["record", "-d", "30s", "-o", text(&path), "--", "sh", "-c", "kill -TERM $$"])?;
    assert_eq!(ended.status.code(), Some(128 + Signal::SIGTERM as i32), "{}", ended.log);
    Ok(())
}

/// The same in each format: nothing is written, and the likely cause is said.
#[promise(Record, test_all)]
fn an_empty_recording_leaves_the_file_as_it_was() -> Result<()> {
    if !requirement::ebpf("an empty recording")? {
        return Ok(());
    }
    let mut idle = Command::new("sleep").arg("60").spawn()?;
    let folder = tempfile::tempdir()?;
    let at = |name: &str| folder.path().join(name);
    let checked = ["otlp", "pb.gz", "folded", "svg", "html", "firefox.json", "speedscope.json"].iter().try_for_each(|suffix| {
        let path = at(&format!("out.{suffix}"));
        fs::write(&path, OLD)?;
        let record = ["record", "-d", "300ms", "-o", text(&path)];
        let ended = sidewinder::run(&[&record[..], &["-p", &idle.id().to_string()]].concat())?;
        let said = "no event was recorded, so nothing was written: the target used no CPU\n  next: record while it is busy";
        ensure!(ended.log.contains(said) && !ended.log.contains("wrote "), "{suffix}: {}", ended.log);
        assert_eq!((ended.status.code(), fs::read_to_string(&path)?.as_str()), (Some(RUNTIME), OLD), "{suffix}");
        // The exit code is a command's own, unless we have ended it.
        let ended = sidewinder::run(&[&record[..], &["-F", "1", "--", "sh", "-c", "exit 7"]].concat())?;
        assert_eq!((ended.status.code(), fs::read_to_string(&path)?.as_str()), (Some(7), OLD), "{suffix}: {}", ended.log);
        ensure!(ended.log.contains("is too short for a sample at 1 Hz"), "{suffix}: {}", ended.log);
        Ok(())
    });
    idle.kill()?;
    idle.wait()?;
    checked?;
    let ended = sidewinder::run(&[
        "record",
        "-F",
        "1",
        "-d",
        "300ms",
        "-o",
        text(&at("new.html")),
        "--",
        "sleep",
        "60",
    ])?;
    assert_eq!(ended.status.code(), Some(OWN_FAILURE), "{}", ended.log);
    ensure!(!at("new.html").exists(), "{}", ended.log);
    Ok(())
}

/// An output that can't be written is reported before anything is read or recorded: there are no inputs.
#[promise(Record)]
fn a_wrong_output_is_told_before_the_work() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let at = |name: &str| folder.path().join(name).display().to_string();
    fs::create_dir(folder.path().join("folder.svg"))?;
    let (nowhere, unknown, is_folder) = (at("no/out.html"), at("out.bin"), at("folder.svg"));
    let svg = at("d.svg");
    for (arguments, part) in [
        (&["diff", "-o", &svg, "/no/such", "/no/such"][..], "only the page can show a comparison"),
        (&["diff", "-o", &nowhere, "/no/such", "/no/such"], "No such file"),
        (&["view", "-o", &nowhere, "/no/such"], "no/out.html"),
        (&["view", "-o", &unknown, "/no/such"], "--format"),
        (&["view", "-o", &is_folder, "/no/such"], "directory"),
        (&["record", "-a", "-o", &nowhere], "no/out.html"),
        (&["record", "-a", "-o", &unknown], "--format"),
        (&["record", "-a", "-o", &is_folder], "directory"),
        (&["record", "-o", &nowhere, "--", "true"], "no/out.html"),
    ] {
        let ended = sidewinder::run(arguments)?;
        let code = if arguments.contains(&"--") { 125 } else { USAGE };
        assert_eq!(ended.status.code(), Some(code), "{arguments:?}: {}", ended.log);
        ensure!(ended.log.contains(part) && ended.log.contains("next: "), "{arguments:?}: {}", ended.log);
    }
    assert_eq!(names(folder.path())?, ["folder.svg"]);
    Ok(())
}

/// Whoever reads no more is no failure; who can't take what is printed is.
#[promise(Record)]
fn what_is_printed_ends_with_its_reader() -> Result<()> {
    for command in ["print-config", "completions bash", "components"] {
        let script = format!("set -o pipefail; \"$0\" {command} | true; \"$0\" {command} > /dev/full");
        let output = Command::new("bash").args(["-c", &script]).arg(paths::sidewinder()?).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.code() == Some(RUNTIME) && !said.contains("panicked"), "{command}: {output:?}");
        ensure!(said.contains("can't print"), "{command}: {said}");
    }
    Ok(())
}

#[promise(Formats)]
fn other_forms_become_otlp_that_conforms() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let path = |name: &str| folder.path().join(name);
    fs::write(path("a.folded"), "main;work 3\nmain;vfs_write_[k] 2\n")?;
    let view = |from: &str, to: &str| -> Result<()> {
        let ended = sidewinder::run(&["view", "-o", text(&path(to)), text(&path(from))])?;
        ensure!(ended.status.success(), "{from} to {to}: {}", ended.log);
        Ok(())
    };
    view("a.folded", "a.otlp")?;
    view("a.folded", "a.pb.gz")?;
    view("a.pb.gz", "b.otlp")?;
    // Which code is the kernel's is told by files in pprof's form, and folded stacks name none.
    for (name, kernel) in [("a", "vfs_write_[k]"), ("b", "vfs_write")] {
        assert_eq!(conformance::check(&fs::read(path(&format!("{name}.otlp")))?), [], "{name}");
        view(&format!("{name}.otlp"), &format!("{name}2.folded"))?;
        let stacks = fs::read_to_string(path(&format!("{name}2.folded")))?;
        assert_eq!(stacks, format!("main;{kernel} 2\nmain;work 3\n"), "{name}");
    }
    Ok(())
}

/// Through each form that holds all of it, and with the table that was asked for.
#[promise(Formats, test_all)]
fn a_recording_in_any_form_becomes_otlp_and_has_its_table() -> Result<()> {
    if !requirement::ebpf("a recording in any form")? {
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let path = |name: &str| folder.path().join(name);
    let ladder = LADDER.command(&[2, 10])?;
    let mut command = sidewinder::command()?;
    command.args(["record", "-F", "499", "--table", "-o"]).arg(path("a.otlp")).arg("--");
    command.arg(ladder.get_program()).args(ladder.get_args());
    let ended = Running::start(command)?.wait(PATIENCE)?;
    ensure!(ended.status.success() && ended.log.lines().any(|line| line.contains(" burn")), "{}", ended.log);
    let events = Received::from_otlp_file(&path("a.otlp"))?.events().count() as u64;
    let view = |from: &str, to: &str| -> Result<()> {
        let ended = sidewinder::run(&["view", "-o", text(&path(to)), text(&path(from))])?;
        ensure!(ended.status.success(), "{from} to {to}: {}", ended.log);
        Ok(())
    };
    let total = |name: &str| -> Result<u64> {
        let lines = fs::read_to_string(path(name))?;
        let counts = lines.lines().filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok());
        Ok(counts.sum())
    };
    view("a.otlp", "a.folded")?;
    for (other, back) in [("b.pb.gz", "b.otlp"), ("c.folded", "c.otlp")] {
        view("a.otlp", other)?;
        view(other, back)?;
        assert_eq!(conformance::check(&fs::read(path(back))?), [], "{back}");
        view(back, "back.folded")?;
        assert_eq!(fs::read_to_string(path("back.folded"))?, fs::read_to_string(path("a.folded"))?, "{back}");
        assert_eq!(total("back.folded")?, events, "{back}");
    }
    if requirement::program("a recording in any form", "go")? {
        let top = Command::new("go")
            .args(["tool", "pprof", "-symbolize=none", "-top"])
            .arg(path("b.pb.gz"))
            .env("PPROF_TMPDIR", folder.path())
            .output()?;
        let said = String::from_utf8_lossy(&top.stdout);
        ensure!(said.lines().any(|line| line == "File: ladder"), "{said}");
    }
    Ok(())
}

/// A file of two kinds: a page with both, and the table of each, as large and in the order that is asked for.
#[promise(Formats, test_all)]
fn a_file_of_several_kinds_is_shown_as_a_whole() -> Result<()> {
    if !requirement::ebpf("a file of several kinds")? {
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let path = |name: &str| folder.path().join(name);
    let ladder = LADDER.command(&[2, 10])?;
    let mut command = sidewinder::command()?;
    command.args(["record", "-e", "cpu-clock@499,page-faults:1", "-o"]).arg(path("both.otlp")).arg("--");
    command.arg(ladder.get_program()).args(ladder.get_args());
    let ended = Running::start(command)?.wait(PATIENCE)?;
    ensure!(ended.status.success(), "{}", ended.log);

    let both = path("both.otlp");
    let tables = |options: &[&str]| -> Result<String> {
        let ended = sidewinder::run(&[&["view", "--table"], options, &[text(&both)]].concat())?;
        ensure!(ended.status.success(), "{}", ended.log);
        Ok(ended.log)
    };
    let by_self = tables(&["--rows", "2"])?;
    let lines: Vec<_> = by_self.lines().collect();
    assert_eq!((lines[0], lines[1].trim_start().starts_with("SELF")), ("CPU time", true), "{by_self}");
    ensure!(lines[2].contains(" burn"), "the busiest by self comes first: {by_self}");
    ensure!(lines[4].contains("in the other"), "two functions: {by_self}");
    ensure!(lines.contains(&"page faults"), "{by_self}");
    let one = tables(&["--sample-type", "samples"])?;
    ensure!(one.contains(" burn") && !one.contains("page faults") && !one.contains("CPU time"), "{one}");

    let ended = sidewinder::run(&["view", "-o", text(&path("both.html")), text(&both)])?;
    ensure!(ended.status.success(), "{}", ended.log);
    let page = fs::read_to_string(path("both.html"))?;
    let held = page.split("<template id=\"document\">").nth(1).and_then(|rest| rest.split('<').next());
    assert_eq!(held.map(|documents| documents.split(',').count()), Some(2));
    let ended = sidewinder::run(&["view", "-o", text(&path("one.folded")), text(&both)])?;
    ensure!(ended.log.contains("the file also holds faults"), "{}", ended.log);
    Ok(())
}

/// Wall time is made of samples of two other kinds, of which there is no profile.
#[promise(Wall)]
fn a_recording_of_wall_time_in_otlp_has_its_table() -> Result<()> {
    if !requirement::ebpf("the table of wall time")? {
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let ladder = LADDER.command(&[1, 10])?;
    let mut command = sidewinder::command()?;
    command.args(["record", "--wall", "--table", "-o"]).arg(folder.path().join("wall.otlp")).arg("--");
    command.arg(ladder.get_program()).args(ladder.get_args());
    let ended = Running::start(command)?.wait(PATIENCE)?;
    ensure!(ended.status.success(), "{}", ended.log);
    ensure!(ended.log.lines().any(|line| line.contains("%  burn ")), "{}", ended.log);
    Ok(())
}
