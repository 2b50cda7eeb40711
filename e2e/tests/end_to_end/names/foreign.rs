//! Everybody may put a map of code where a process's own would be. It is read only if the process could have written and read
//! it itself.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::{self as unix, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use sidewinder_e2e_support::collector::Collector;
use sidewinder_e2e_support::never::never;
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::session::{Daemon, Settings};
use sidewinder_e2e_support::{paths, requirement, sidewinder};

use super::traps::{Ending, count, run};

/// The user of the processes, and one who has nothing to do with them.
const APP: u32 = 12_001;
const STRANGER: u32 = 12_002;
const ROOT: u32 = 0;
/// What the process calls its code, what root and the other user call it, and what none but root may read.
const MADE: &str = "made_here";
const BY_ROOT: &str = "named_by_root";
const FORGED: &str = "forged_by_stranger";
const SECRET: &str = "secret_of_root";
const PATIENCE: Duration = Duration::from_secs(30);

/// What is where the map of a process would be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Laid {
    /// Its own map.
    Own,
    /// A map that root has written for it, as agents do.
    OfRoot,
    /// A symbolic link, by itself, to a file of root's.
    Symlink,
    /// A readable map by a third user.
    OfStranger,
    Fifo,
    Device,
    /// A hard link to a file that only root may read.
    HardLinkToSecret,
    /// A hard link to a file of root's that everybody may read.
    HardLink,
}

impl Laid {
    /// The reason by which it is counted; `None` where it is read.
    const fn refusal(self) -> Option<&'static str> {
        match self {
            Self::Own | Self::OfRoot => None,
            Self::Symlink => Some("symlink"),
            Self::OfStranger => Some("owner"),
            Self::Fifo | Self::Device => Some("not_regular"),
            Self::HardLinkToSecret => Some("unreadable"),
            Self::HardLink => Some("hard_link"),
        }
    }

    fn lay(self, path: &Path, of_root: &OfRoot) -> Result<()> {
        match self {
            Self::Own => {}
            Self::OfRoot => fs::write(path, line_of(BY_ROOT))?,
            Self::Symlink => {
                unix::symlink(&of_root.secret, path)?;
                unix::lchown(path, Some(APP), Some(APP))?;
            }
            Self::OfStranger => {
                fs::write(path, line_of(FORGED))?;
                unix::chown(path, Some(STRANGER), Some(STRANGER))?;
            }
            Self::Fifo => make(&["mkfifo", "-m", "0666"], path, &[])?,
            Self::Device => make(&["mknod", "-m", "0666"], path, &["c", "1", "5"])?,
            Self::HardLinkToSecret => fs::hard_link(&of_root.secret, path)?,
            Self::HardLink => fs::hard_link(&of_root.public, path)?,
        }
        Ok(())
    }
}

/// A line of a map for the code of `runs_code`.
fn line_of(name: &str) -> String {
    format!("300000000000 1000 {name}\n")
}

fn make(command: &[&str], path: &Path, more: &[&str]) -> Result<()> {
    let path = path.to_str().context("no text")?;
    run(Path::new("/"), &[command, &[path], more].concat())
}

/// Files of root's, on the file system of the maps.
struct OfRoot {
    secret: PathBuf,
    public: PathBuf,
}

impl OfRoot {
    fn write(folder: &Path) -> Result<Self> {
        let (secret, public) = (folder.join("secret"), folder.join("public"));
        for (path, mode) in [(&secret, 0o600), (&public, 0o644)] {
            fs::write(path, line_of(SECRET))?;
            fs::set_permissions(path, Permissions::from_mode(mode))?;
        }
        Ok(Self { secret, public })
    }
}

/// A process, and what is where its map would be; both go with this.
struct Target {
    program: Ending,
    laid: Laid,
    map: PathBuf,
}

impl Target {
    fn start(program: &Path, user: u32, laid: Laid, of_root: &OfRoot) -> Result<Self> {
        let mut command = Command::new(program);
        command.uid(user).gid(user).args((laid == Laid::Own).then_some(MADE));
        let program = Ending::start(&mut command, &format!("{laid:?}"))?;
        let map = PathBuf::from(format!("/tmp/perf-{}.map", program.pid()));
        let target = Self { program, laid, map };
        laid.lay(&target.map, of_root)?;
        Ok(target)
    }

    fn pid(&self) -> u32 {
        self.program.pid()
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.map);
    }
}

/// All that may be there, for processes of a user and one of root.
fn targets(folder: &Path) -> Result<Vec<Target>> {
    let source = paths::e2e().join("workloads/runs_code.c").display().to_string();
    run(folder, &["cc", "-O2", "-o", "runs_code", &source])?;
    fs::set_permissions(folder, Permissions::from_mode(0o755))?;
    let of_root = OfRoot::write(folder)?;
    let cases = [
        (APP, Laid::Own),
        (ROOT, Laid::Own),
        (APP, Laid::OfRoot),
        (APP, Laid::Symlink),
        (APP, Laid::OfStranger),
        (ROOT, Laid::OfStranger),
        (APP, Laid::Fifo),
        (APP, Laid::Device),
        (APP, Laid::HardLinkToSecret),
        (APP, Laid::HardLink),
    ];
    let program = folder.join("runs_code");
    cases.into_iter().map(|(user, laid)| Target::start(&program, user, laid, &of_root)).collect()
}

fn expected_refusals(targets: &[Target]) -> BTreeMap<String, u64> {
    let mut expected = BTreeMap::new();
    for reason in targets.iter().filter_map(|target| target.laid.refusal()) {
        *expected.entry(reason.to_owned()).or_default() += 1;
    }
    expected
}

/// Those that are not zero.
fn refusals(counts: &Value) -> Result<BTreeMap<String, u64>> {
    let counts: BTreeMap<String, u64> = serde_json::from_value(counts.clone())?;
    Ok(counts.into_iter().filter(|(_, count)| *count > 0).collect())
}

#[promise(PerfMaps)]
fn a_map_of_code_is_read_only_where_its_process_could_have_written_and_read_it() -> Result<()> {
    let title = "maps of code by others";
    if !requirement::ebpf(title)? {
        return Ok(());
    }
    let folder = tempfile::tempdir_in("/tmp")?;
    let targets = targets(folder.path())?;
    let expected = expected_refusals(&targets);
    let mut pids: Vec<_> = targets.iter().map(Target::pid).collect();
    let collector = Collector::start()?;
    let settings =
        Settings { samples_per_second: 199, pid: pids.pop(), other_pids: pids, ..Settings::default() };
    let daemon = Daemon::start(&settings, &collector.grpc_endpoint())?;
    let profiler = daemon.running().pid().to_string();
    let deadline = Instant::now() + PATIENCE;
    loop {
        thread::sleep(Duration::from_millis(500));
        let status = sidewinder::run(&["status", "--json", "--pid", &profiler])?;
        let document: Value = serde_json::from_str(&status.log).context(status.log)?;
        let counts = document.pointer("/receivers/profiling/files_refused").context("nothing is counted")?;
        let counted = refusals(counts)?;
        if counted == expected {
            break;
        }
        ensure!(Instant::now() < deadline, "{counted:?} instead of {expected:?}: {}", daemon.running().log());
    }
    thread::sleep(Duration::from_secs(2));
    let log = daemon.stop()?.log;
    let received = collector.stop()?;
    for target in &targets {
        let pid = target.pid();
        let named = |name: &'static str| count(&received, pid, move |found| found.contains(name));
        let (made, by_root) = (named(MADE), named(BY_ROOT));
        let foreign = named(SECRET) + named(FORGED);
        eprintln!("{:?}: {made} {by_root} {foreign}", target.laid);
        never(foreign > 0, "a foreign name", format_args!("{:?}: {foreign} frames", target.laid));
        match target.laid {
            Laid::Own => ensure!(made > 3, "{made} frames have the name that their process wrote"),
            Laid::OfRoot => ensure!(by_root > 3, "{by_root} frames have the name that root wrote"),
            _ => {}
        }
        let path = target.map.display().to_string();
        let said = log.lines().filter(|line| line.contains(&path)).count();
        ensure!(said == usize::from(target.laid.refusal().is_some()), "said {said} times of {path}: {log}");
    }
    Ok(())
}

#[promise(PerfMaps, test_all)]
fn a_recording_by_root_reads_no_map_that_its_process_could_not_read() -> Result<()> {
    let title = "maps of code by others, recorded";
    if !requirement::ebpf(title)? {
        return Ok(());
    }
    let folder = tempfile::tempdir_in("/tmp")?;
    let targets = targets(folder.path())?;
    let (profile, summary) = (folder.path().join("out.folded"), folder.path().join("summary.json"));
    let mut command = sidewinder::command()?;
    command.args(["record", "-d", "4s", "-o"]).arg(&profile).arg("--summary-json").arg(&summary);
    for target in &targets {
        command.args(["-p", &target.pid().to_string()]);
    }
    let ended = sidewinder::Running::start(command)?.wait(PATIENCE)?;
    ensure!(ended.status.success(), "{}", ended.log);
    let folded = fs::read_to_string(&profile)?;
    ensure!(folded.contains(MADE) && folded.contains(BY_ROOT), "{folded}");
    ensure!(!folded.contains(SECRET) && !folded.contains(FORGED), "{folded}");
    let summary: Value = serde_json::from_str(&fs::read_to_string(summary)?)?;
    let (counted, expected) = (refusals(&summary["files_refused"])?, expected_refusals(&targets));
    ensure!(counted == expected, "{counted:?} instead of {expected:?}: {}", ended.log);
    Ok(())
}
