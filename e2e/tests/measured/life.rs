//! How a sidecar ends and starts again, and how long it may take.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, ensure};
use libbpf_rs::query::{LinkInfoIter, MapInfoIter, ProgInfoIter};
use rustix::process::Signal;
use sidewinder_e2e_pod::application::{
    APP_USER, AS_THE_SAME_USER, NOWHERE, app, app_at, configuration, container_of, security,
};
use sidewinder_e2e_pod::{ContainerSpec, Image, Mount, Pod, PodSpec, SecurityContext, Sidecar, SidecarSpec};
use sidewinder_e2e_support::collector::{Collector, Setup};
use sidewinder_e2e_support::conservation::Summary;
use sidewinder_e2e_support::observe::{self, BpfObject};
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::workload;

/// What a kubelet leaves a sidecar after the application's end.
const GRACE: Duration = Duration::from_secs(2);
const SAMPLES_PER_SECOND: u32 = 499;
/// The limit of an application that takes more.
const GREEDY_BYTES: u64 = 256 << 20;
/// How long it may take until it is killed for that.
const KILLED_WITHIN: Duration = Duration::from_secs(60);
/// How long the kernel may take to free what nobody holds.
const FREED_WITHIN: Duration = Duration::from_secs(10);

/// A sidecar that samples, and sends to a Collector, or to nobody.
fn sidecar(pod: &Pod, collector: Option<&Collector>) -> Result<Sidecar> {
    let endpoint = if collector.is_some() { SidecarSpec::COLLECTOR_ENDPOINT } else { NOWHERE };
    let spec = SidecarSpec {
        configuration: configuration(SAMPLES_PER_SECOND, "ignore", endpoint),
        security: security(APP_USER, &AS_THE_SAME_USER),
        memory_limit_bytes: None,
        collector: collector.map(Collector::socket_for_everybody).transpose()?,
    };
    let mut sidecar = Sidecar::start(pod, &Image::new()?, &spec)?;
    sidecar.wait_until_profiling()?;
    Ok(sidecar)
}

fn collector() -> Result<Collector> {
    Collector::set_up(Setup { unix_socket: true, ..Setup::default() })
}

fn unix_now_ns() -> Result<u64> {
    Ok(u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos())?)
}

/// Tells a sidecar to end, and holds it to the time that it has.
fn terminate(sidecar: &mut Sidecar) -> Result<()> {
    sidecar.container().signal(Signal::TERM)?;
    let status = sidecar.container_mut().wait(GRACE)?;
    ensure!(status.success(), "it ended with {status}: {}", sidecar.container().log());
    Ok(())
}

#[promise(PodTests)]
fn within_two_seconds_of_sigterm_everything_sampled_has_been_delivered() -> Result<()> {
    if !sidewinder_e2e_pod::are_possible("SIGTERM")? {
        return Ok(());
    }
    let (collector, pod) = (collector()?, Pod::start(PodSpec::default())?);
    let mut sidecar = sidecar(&pod, Some(&collector))?;
    let _app = pod.run(&app(workload::TENANT, &["app", "60"], None)?)?;
    thread::sleep(Duration::from_secs(3));
    let told_ns = unix_now_ns()?;
    terminate(&mut sidecar)?;
    let received = collector.stop()?;
    let last_ns = received.events().map(|event| event.time_unix_ns).max().context("nothing arrived")?;
    let summary = Summary::from_log(&sidecar.container().log()).context("it has not said how it ended")?;
    assert_eq!(received.events().count() as u64, summary.events_exported, "{summary:?}");
    let before_ns = told_ns.saturating_sub(last_ns);
    ensure!(before_ns < 1_000_000_000, "the last event is of {before_ns} ns before the signal");
    Ok(())
}

/// A large program that is new to the profiler, so that walks and names wait for what its files state.
const COMPILER: &str = "/usr/bin/clang";
/// Compilers that run at once: more than there are CPUs.
const COMPILERS: usize = 4;
/// From their start to the signal. Their files are mapped by then, and have no tables yet.
const COMPILING: Duration = Duration::from_millis(700);

/// Compiles a source that takes some seconds.
fn compiler(source: &Path) -> Result<ContainerSpec> {
    let compiler = fs::canonicalize(COMPILER)?;
    let source_name = source.display().to_string();
    let mut spec = app_at(compiler, &["-O2", "-c", &source_name, "-o", "/dev/null"], None)?;
    spec.mounts.push(Mount::in_place(source));
    Ok(spec)
}

#[promise(PodTests, test_all)]
fn within_two_seconds_of_sigterm_it_is_gone_though_nobody_takes_what_was_sampled() -> Result<()> {
    if !sidewinder_e2e_pod::are_possible("SIGTERM with a dead Collector")? {
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755))?;
    let source = folder.path().join("long.c");
    let function = |number| {
        format!(
            "int f{number}(int x) {{ int y = 0; for (int i = 0; i < x; i++) y += i * x ^ {number}; return y; }}\n"
        )
    };
    fs::write(&source, (0..20_000).map(function).collect::<String>())?;

    let pod = Pod::start(PodSpec::default())?;
    let mut sidecar = sidecar(&pod, None)?;
    let _app = pod.run(&app(workload::TENANT, &["app", "60"], None)?)?;
    thread::sleep(Duration::from_secs(3));
    let spec = compiler(&source)?;
    let compilers = (0..COMPILERS).map(|_| pod.run(&spec)).collect::<Result<Vec<_>>>()?;
    thread::sleep(COMPILING);
    terminate(&mut sidecar)?;
    compilers.iter().try_for_each(|compiler| compiler.signal(Signal::KILL).with_context(|| compiler.log()))
}

/// Programs, maps and links that the kernel has.
fn bpf_objects() -> BTreeSet<BpfObject> {
    let programs = ProgInfoIter::default().map(|program| BpfObject::Program(program.id));
    let maps = MapInfoIter::default().map(|map| BpfObject::Map(map.id));
    let links = LinkInfoIter::default().map(|link| BpfObject::Link(link.id));
    programs.chain(maps).chain(links).collect()
}

#[promise(PodTests)]
fn a_sidecar_that_is_killed_leaves_nothing_behind_and_its_successor_samples() -> Result<()> {
    if !sidewinder_e2e_pod::are_possible("a sidecar that is killed")? {
        return Ok(());
    }
    let (collector, pod) = (collector()?, Pod::start(PodSpec::default())?);
    let _app = pod.run(&app(workload::TENANT, &["app", "120"], None)?)?;
    let mut first = sidecar(&pod, Some(&collector))?;
    let held = observe::bpf_objects(first.container().pid());
    ensure!(held.len() > 10 && held.is_subset(&bpf_objects()), "it holds {held:?}");
    // The socket of its status, which `status` and the next profiler remove, and nothing else.
    for (folder, sockets) in [("tmp", 0), ("dev/shm", 1)] {
        let folder = PathBuf::from(format!("/proc/{}/root/{folder}", first.container().pid()));
        let files = fs::read_dir(&folder)?.collect::<std::io::Result<Vec<_>>>()?;
        let is_socket = |file: &fs::DirEntry| file.file_type().is_ok_and(|kind| kind.is_socket());
        ensure!(files.len() == sockets && files.iter().all(is_socket), "{files:?}");
    }
    let mounts = fs::read_to_string(format!("/proc/{}/mounts", first.container().pid()))?;
    ensure!(!mounts.contains(" bpf "), "something may be pinned: {mounts}");

    first.container().signal(Signal::KILL)?;
    first.container_mut().wait(GRACE)?;
    let deadline = Instant::now() + FREED_WITHIN;
    let mut left = held.clone();
    while !left.is_empty() {
        ensure!(Instant::now() < deadline, "{left:?} of {} objects are still there", held.len());
        thread::sleep(Duration::from_millis(50));
        left = &held & &bpf_objects();
    }
    drop(first);

    let mut second = sidecar(&pod, Some(&collector))?;
    let restarted_ns = unix_now_ns()?;
    thread::sleep(Duration::from_secs(2));
    terminate(&mut second)?;
    let received = collector.stop()?;
    let events = received.events().filter(|event| event.time_unix_ns >= restarted_ns).count();
    ensure!(events > SAMPLES_PER_SECOND as usize / 16, "{events} events after the restart");
    Ok(())
}

/// A program that takes memory until it has none left.
const GREEDY: &str = "/usr/bin/tail";

#[promise(PodTests, test_all)]
fn an_application_that_is_killed_for_its_memory_is_sampled_until_then_and_when_it_comes_again() -> Result<()>
{
    if !sidewinder_e2e_pod::are_possible("an application without memory")? {
        return Ok(());
    }
    let (collector, pod) = (collector()?, Pod::start(PodSpec::default())?);
    let mut sidecar = sidecar(&pod, Some(&collector))?;
    let mut mounts = Mount::libraries_of(Path::new(GREEDY))?;
    mounts.push(Mount::in_place(GREEDY));
    let greedy = ContainerSpec {
        arguments: [GREEDY, "/dev/zero"].map(str::to_owned).into(),
        environment: Vec::new(),
        mounts,
        security: SecurityContext::user(APP_USER),
        cpu: None,
        memory_limit_bytes: Some(GREEDY_BYTES),
    };
    let mut ids = Vec::new();
    for _ in 0..2 {
        let mut application = pod.run(&greedy)?;
        let status = application.wait(KILLED_WITHIN)?;
        let kills = application.memory().context("it has no limit")?.kills()?;
        ensure!(
            (status.code(), kills) == (Some(128 + 9), 1),
            "{status}, {kills} kills: {}",
            application.log()
        );
        ids.push(application.id().to_owned());
    }
    terminate(&mut sidecar)?;
    let received = collector.stop()?;
    for id in ids {
        let events = received.events().filter(|event| container_of(event) == Some(&id)).count();
        ensure!(events > 0, "no event of container {id}");
    }
    Ok(())
}
