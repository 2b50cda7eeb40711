//! Many Java virtual machines beside a sidecar that has the memory that the chart gives it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use sidewinder_e2e_pod::application::{APP_USER, AS_THE_SAME_USER, configuration, security};
use sidewinder_e2e_pod::{ContainerSpec, Image, Mount, Pod, PodSpec, SecurityContext, Sidecar, SidecarSpec};
use sidewinder_e2e_support::collector::{Collector, Setup};
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::{java, requirement};
use sidewinder_otlp::FrameType;
use sidewinder_otlp::decode::AttributeValue;

/// The chart's limit.
const LIMIT_BYTES: u64 = 64 << 20;
const MACHINES: usize = 50;
/// Until all of them run, and until there are so many events of them.
const PATIENCE: Duration = Duration::from_secs(120);
const EVENTS: u64 = 16_000;
/// What a virtual machine runs: a method that calls itself so often.
const FRAMES: &str = "30";
const METHOD: &str = "Deep.call(int)";
/// Of the events of Java threads in the second half, those in which each frame of Java has a name. Some names are forgotten for others
/// (`vm_functions_forgotten`), and read again.
const NAMED_SHARE: f64 = 0.95;

/// All virtual machines, in one container with what they need of this machine.
fn application(home: &Path, classes: &Path) -> ContainerSpec {
    let script = format!(
        "for i in $(seq {MACHINES}); do
            {home}/bin/java -Xmx32m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp {classes} Deep 600 {FRAMES} &
        done
        wait",
        home = home.display(),
        classes = classes.display(),
    );
    let folders = ["/bin", "/usr", "/lib", "/lib64", "/etc"].into_iter().map(Path::new);
    let folders = folders.filter(|folder| folder.exists()).chain([classes]);
    ContainerSpec {
        arguments: ["/bin/sh", "-c", &script].map(str::to_owned).to_vec(),
        environment: vec!["PATH=/usr/bin:/bin".to_owned()],
        mounts: folders.map(Mount::in_place).collect(),
        security: SecurityContext::user(APP_USER),
        cpu: None,
        memory_limit_bytes: None,
    }
}

#[promise(PodMemory, test_all)]
fn beside_fifty_java_virtual_machines_a_container_of_64_mib_names_their_methods() -> Result<()> {
    let test = "fifty Java virtual machines";
    if !sidewinder_e2e_pod::are_possible(test)? {
        return Ok(());
    }
    let Some(home) = java::homes(None).into_iter().next() else {
        return requirement::absent(test, "no JDK in /usr/lib/jvm");
    };
    let classes = java::compiled(&["Deep.java"])?;
    fs::set_permissions(classes.path(), Permissions::from_mode(0o755))?;
    let collector = Collector::set_up(Setup { unix_socket: true, ..Setup::default() })?;
    let pod = Pod::start(PodSpec::default())?;
    let spec = SidecarSpec {
        configuration: configuration(499, "ignore", SidecarSpec::COLLECTOR_ENDPOINT),
        security: security(APP_USER, &AS_THE_SAME_USER),
        memory_limit_bytes: Some(LIMIT_BYTES),
        collector: Some(collector.socket_for_everybody()?),
    };
    let mut sidecar = Sidecar::start(&pod, &Image::new()?, &spec)?;
    sidecar.wait_until_profiling()?;
    let app = pod.run(&application(&home, classes.path()))?;
    let deadline = Instant::now() + PATIENCE;
    // And the shell.
    while fs::read_to_string(app.cgroup().procs())?.lines().count() <= MACHINES {
        ensure!(Instant::now() < deadline, "not all run: {}", app.log());
        thread::sleep(Duration::from_millis(200));
    }
    let deadline = Instant::now() + PATIENCE;
    let status = loop {
        ensure!(sidecar.container_mut().ended()?.is_none(), "it has ended: {}", sidecar.container().log());
        let status = sidecar.status()?.context("it does not answer")?;
        let events =
            status.pointer("/receivers/profiling/events").and_then(Value::as_u64).unwrap_or_default();
        if events >= EVENTS {
            break status;
        }
        ensure!(Instant::now() < deadline, "only {events} events: {status}");
        thread::sleep(Duration::from_millis(500));
    };
    let memory = sidecar.container().memory().context("it has no limit")?;
    let (peak, kills) = (memory.peak_bytes()?, memory.kills()?);
    drop((app, sidecar));
    let received = collector.stop()?;

    let middle_ns = {
        let times = || received.events().map(|event| event.time_unix_ns);
        let (first, last) = times().min().zip(times().max()).context("no event")?;
        first + (last - first) / 2
    };
    let mut named: BTreeMap<i64, u64> = BTreeMap::new();
    let (mut pids, mut of_java, mut all_named) = (BTreeSet::new(), 0_u64, 0_u64);
    for event in received.events().filter(|event| event.time_unix_ns >= middle_ns) {
        let Some(pid) = event.profile.resource.get("process.pid").and_then(AttributeValue::as_int) else {
            continue;
        };
        let frames = event.sample.stack.iter().filter(|frame| frame.frame_type() == Some(FrameType::Jvm));
        let (mut names, mut are_named) = (Vec::new(), true);
        for frame in frames {
            names.extend(frame.function());
            are_named &= frame.is_marker() != Some(true);
        }
        if names.is_empty() {
            continue;
        }
        pids.insert(pid);
        of_java += 1;
        all_named += u64::from(are_named);
        *named.entry(pid).or_default() += u64::from(names.contains(&METHOD));
    }
    let machines = named.values().filter(|count| **count > 0).count();
    eprintln!(
        "{} KiB at most; {of_java} events of {} processes, {machines} with {METHOD}, {all_named} with all names; {}",
        peak >> 10,
        pids.len(),
        status["receivers"]["profiling"]
    );
    assert_eq!(kills, 0);
    ensure!(machines == MACHINES, "methods of {machines} of {MACHINES} have names: {status}");
    ensure!(all_named as f64 >= NAMED_SHARE * of_java as f64, "{all_named} of {of_java}: {status}");
    Ok(())
}
