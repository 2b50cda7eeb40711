//! What `record` leaves out: other CPUs, the time before its beginning; and what it keeps apart: threads.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::{requirement, sidewinder};

const PATIENCE: Duration = Duration::from_secs(60);
/// The exit code of `record -- COMMAND` if it fails itself. A recording of no event does, and writes no file.
const RECORD_FAILED: i32 = 125;
/// Its two threads run one function for 300 ms, and another one from then on.
const PROGRAM: &str = "#include <pthread.h>
#include <time.h>
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec / 1e9; }
__attribute__((noinline)) void early(double until) { while (now() < until); }
__attribute__((noinline)) void late(void) { for (;;) now(); }
static void *work(void *name) { pthread_setname_np(pthread_self(), name); early(now() + 0.3); late(); return name; }
int main(void) {
    pthread_t threads[2];
    pthread_create(&threads[0], 0, work, \"first\");
    pthread_create(&threads[1], 0, work, \"second\");
    pthread_join(threads[0], 0);
}
";

/// The stacks of the program, which runs on CPU 0 alone, with their samples.
fn recorded(program: &Path, options: &[&str]) -> Result<Vec<(String, u64)>> {
    let output = program.with_extension("folded");
    let mut command = sidewinder::command()?;
    command.args(["record", "-F", "299", "-d", "1", "--no-kernel"]).args(options).arg("-o").arg(&output);
    command.args(["--", "taskset", "-c", "0"]).arg(program);
    if output.exists() {
        fs::remove_file(&output)?;
    }
    let ended = sidewinder::Running::start(command)?.wait(PATIENCE)?;
    if ended.status.code() == Some(RECORD_FAILED) && !output.exists() {
        return Ok(Vec::new());
    }
    ensure!(ended.status.success(), "{}: {}", ended.status, ended.log);
    let text = fs::read_to_string(output)?;
    let stack = |line: &str| {
        let (stack, count) = line.rsplit_once(' ').context("no count")?;
        Ok((stack.to_owned(), count.parse()?))
    };
    text.lines().map(stack).collect()
}

#[promise(Record, test_all)]
fn a_recording_can_leave_out_cpus_and_its_first_seconds_and_keep_threads_apart() -> Result<()> {
    let title = "switches of record";
    if !requirement::ebpf(title)? || !requirement::program(title, "taskset")? {
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let (source, program) = (folder.path().join("program.c"), folder.path().join("program"));
    fs::write(&source, PROGRAM)?;
    let mut compiler = Command::new("gcc");
    compiler.args(["-g", "-O1", "-D_GNU_SOURCE", "-pthread", "-o"]).arg(&program).arg(&source);
    ensure!(compiler.status().context("cannot run gcc")?.success());

    let stacks = recorded(&program, &["-C", "0", "-D", "2", "--per-thread"])?;
    let events = |part: &str| -> u64 {
        stacks.iter().filter(|(stack, _)| stack.contains(part)).map(|(_, count)| count).sum()
    };
    let [early, late] = [";early", ";late"].map(events);
    ensure!(late > 20 && early == 0, "{stacks:?}");
    let by_thread = ["program;first/", "program;second/"].map(events);
    ensure!(by_thread.iter().all(|events| *events > 5), "{stacks:?}");

    // From the beginning, the first function is there too, and threads are not told apart.
    let stacks = recorded(&program, &[])?;
    ensure!(stacks.iter().any(|(stack, _)| stack.contains(";early")), "{stacks:?}");
    ensure!(!stacks.iter().any(|(stack, _)| stack.contains("first/")), "{stacks:?}");
    // On the other CPU, it has nothing.
    if std::thread::available_parallelism()?.get() > 1 {
        let stacks = recorded(&program, &["-C", "1", "-D", "2"])?;
        ensure!(!stacks.iter().any(|(stack, _)| stack.contains(";late")), "{stacks:?}");
    }
    Ok(())
}
