//! The process that a recording names, and its children: workers of a master that exist before the recording, and later ones.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::requirement;
use sidewinder_e2e_support::sidewinder::{self, Running};

const TIMEOUT: Duration = Duration::from_secs(30);

/// Waits, as a master does. `old-worker` and its child exist before the recording, as does a process that has left the family:
/// its parent ends at once. When the file `go` appears, a worker starts, and a process whose parent ends.
const MASTER: &str = r#"
./old-worker -c './old-helper -c "while :; do :; done" & while :; do :; done' &
(./old-orphan -c 'while :; do :; done' &)
touch ready
while [ ! -e go ]; do sleep 0.05; done
./new-worker -c 'while :; do :; done' &
(./new-orphan -c 'while :; do :; done' &)
wait
"#;
/// Works itself, and so does its child; ends 3 seconds after the file `go` appears.
const BUSY_MASTER: &str = r#"
./old-worker -c 'while :; do :; done' &
touch ready
while [ ! -e go ]; do :; done
./new-worker -c 'while :; do :; done' &
end=$(($(date +%s) + 3))
while [ $(date +%s) -lt $end ]; do i=0; while [ $i -lt 20000 ]; do i=$((i + 1)); done; done
"#;
const SHELLS: [&str; 7] =
    ["master", "old-worker", "old-helper", "old-orphan", "new-worker", "new-orphan", "stranger"];

/// A master in a folder, with all that it starts; dropping it ends all of them.
struct Family {
    master: Child,
    stranger: Child,
}

impl Family {
    fn start(folder: &Path, script: &str) -> Result<Self> {
        for name in SHELLS {
            fs::copy("/bin/sh", folder.join(name))?;
        }
        // What they take of the CPUs is enough, and the profiler and this test have the rest.
        let shell = |name: &str, script: &str| {
            let mut command = Command::new("nice");
            command.args(["-n", "10"]).arg(folder.join(name)).args(["-c", script]);
            command.current_dir(folder).process_group(0).spawn()
        };
        let master = shell("master", script)?;
        let family = Self { master, stranger: shell("stranger", "while :; do :; done")? };
        await_that(|| folder.join("ready").exists())?;
        Ok(family)
    }
}

impl Drop for Family {
    fn drop(&mut self) {
        for process in [&mut self.master, &mut self.stranger] {
            if let Ok(group) = i32::try_from(process.id()) {
                let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
            }
            let _ = process.wait();
        }
    }
}

fn await_that(is_so: impl Fn() -> bool) -> Result<()> {
    let deadline = Instant::now() + TIMEOUT;
    while !is_so() {
        ensure!(Instant::now() < deadline, "not within {TIMEOUT:?}");
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Records the master with these options, for a while or until it ends by itself; the file `go` appears when the recording has begun.
/// Returns the names of the processes in the recording, of those above.
fn recorded(script: &str, options: &[&str], until: Option<Duration>) -> Result<BTreeSet<String>> {
    let folder = tempfile::tempdir()?;
    let family = Family::start(folder.path(), script)?;
    // The child of a worker is another process later.
    thread::sleep(Duration::from_millis(300));
    let out = folder.path().join("out.folded");
    let mut command = sidewinder::command()?;
    command
        .args(["record", "-F", "499", "-p", &family.master.id().to_string()])
        .args(options)
        .arg("-o")
        .arg(&out);
    let mut running = Running::start_sampling(command)?;
    fs::write(folder.path().join("go"), "")?;
    let ended = match until {
        Some(time) => {
            thread::sleep(time);
            running.stop()?
        }
        None => running.wait(TIMEOUT)?,
    };
    ensure!(ended.status.success(), "{}: {}", ended.status, ended.log);
    let stacks = fs::read_to_string(&out).with_context(|| ended.log)?;
    let names = stacks.lines().filter_map(|line| line.split(';').next());
    Ok(names.filter(|name| SHELLS.contains(name)).map(ToOwned::to_owned).collect())
}

#[promise(RecordCommand)]
fn workers_that_run_already_and_those_to_come_are_recorded_with_their_master() -> Result<()> {
    if !requirement::ebpf("workers_that_run_already_and_those_to_come_are_recorded_with_their_master")? {
        return Ok(());
    }
    let mut names = recorded(MASTER, &[], Some(Duration::from_secs(4)))?;
    // It only waits, and a sample of that is chance.
    names.remove("master");
    let expected = ["new-orphan", "new-worker", "old-helper", "old-worker"];
    ensure!(names.iter().eq(expected), "{names:?}");
    Ok(())
}

/// It also ends with its process, though the children run on.
#[promise(Record, test_all)]
fn a_recording_without_children_is_of_one_process() -> Result<()> {
    if !requirement::ebpf("a_recording_without_children_is_of_one_process")? {
        return Ok(());
    }
    let names = recorded(BUSY_MASTER, &["--no-children"], None)?;
    ensure!(names.iter().eq(["master"]), "{names:?}");
    Ok(())
}

#[promise(Record)]
fn no_children_is_refused_where_there_are_none() -> Result<()> {
    for arguments in [
        &["record", "-a", "--no-children", "-d", "1"][..],
        &["record", "-t", "1", "--no-children", "-d", "1"],
        &["top", "--no-children"],
    ] {
        let ended = sidewinder::run(arguments)?;
        ensure!(ended.status.code() == Some(2), "{arguments:?}: {}: {}", ended.status, ended.log);
        ensure!(ended.log.contains("--no-children") || ended.log.contains("--pid"), "{}", ended.log);
    }
    Ok(())
}
