//! A sidecar that includes or excludes a program of its pod, by which more processes are forked than its list has room for.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use libbpf_rs::query::MapInfoIter;
use libbpf_rs::{MapCore as _, MapHandle};
use rustix::process::Signal;
use serde_json::Value;
use sidewinder_e2e_judge::Judge;
use sidewinder_e2e_pod::{Container, Image, Pod, PodSpec, Sidecar, SidecarSpec};
use sidewinder_e2e_support::collector::{Collector, Setup};
use sidewinder_e2e_support::never::never;
use sidewinder_e2e_support::observe::{self, BpfObject};
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::received::Received;
use sidewinder_e2e_support::workload;
use sidewinder_otlp::decode::DecodedEvent;

use super::{APP_USER, AS_THE_SAME_USER, app, configuration, container_of, security};

const SAMPLES_PER_SECOND: u32 = 997;
/// The list has room for 8,192.
const FORKS: &str = "20000";
/// How long children are looked for that come after these.
const LATER_SECONDS: &str = "4";
const PATIENCE: Duration = Duration::from_secs(120);
/// Of 20,000, processes that may be listed at the end: those that run, and those that the kernel has not freed yet.
const LISTED_MAX: usize = 1_000;
/// Events of later children: of some 2,000 if they run for half of the time.
const LATER_EVENTS_MIN: usize = 60;
/// The function that only later children run.
const LATER: &str = "of_a_late_child";

/// What a sidecar with some scope brought.
struct Brought {
    received: Received,
    /// Ids of the containers of the program that forks, and of another one.
    forking: String,
    other: String,
    /// Processes that were listed in the end.
    listed: usize,
    status: Value,
}

/// The map of listed processes among those that a process holds.
fn listed(pid: u32) -> Result<MapHandle> {
    let held = observe::bpf_objects(pid);
    let mut maps = MapInfoIter::default().filter(|map| held.contains(&BpfObject::Map(map.id)));
    let map = maps.find(|map| map.name == "listed").context("no list of processes")?;
    Ok(MapHandle::from_map_id(map.id)?)
}

fn wait_for_forks(container: &Container) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !container.log().contains("forked") {
        ensure!(
            Instant::now() < deadline,
            "it does not come to an end with its children: {}",
            container.log()
        );
        thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

fn session(scope: &str) -> Result<Brought> {
    let collector = Collector::set_up(Setup { unix_socket: true, ..Setup::default() })?;
    let pod = Pod::start(PodSpec::default())?;
    let configuration = configuration(SAMPLES_PER_SECOND, "propagate", SidecarSpec::COLLECTOR_ENDPOINT);
    let scoped = configuration.replace("{ mode: pod }", &format!("{{ {scope} }}"));
    ensure!(scoped != configuration, "the configuration has another form");
    let spec = SidecarSpec {
        configuration: scoped,
        security: security(APP_USER, &AS_THE_SAME_USER),
        memory_limit_bytes: None,
        collector: Some(collector.socket_for_everybody()?),
    };
    let mut sidecar = Sidecar::start(&pod, &Image::new()?, &spec)?;
    sidecar.wait_until_profiling()?;
    let other = pod.run(&app(workload::TENANT, &["app", "120"], None)?)?;
    let mut forking = pod.run(&app(workload::FORKS, &[FORKS, LATER_SECONDS], None)?)?;
    wait_for_forks(&forking)?;
    let ended = forking.wait(PATIENCE)?;
    ensure!(ended.success(), "{ended}: {}", forking.log());
    // The kernel frees processes some time after their end.
    let list = listed(sidecar.container().pid())?;
    let deadline = Instant::now() + PATIENCE;
    while list.keys().count() > LISTED_MAX && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(100));
    }
    let (listed, status) = (list.keys().count(), sidecar.status()?.context("it does not answer")?);
    sidecar.container().signal(Signal::TERM)?;
    let ended = sidecar.container_mut().wait(Duration::from_secs(20))?;
    ensure!(ended.success(), "the sidecar ended with {ended}:\n{}", sidecar.container().log());
    eprintln!("{}", sidecar.container().log());
    let (forking, other) = (forking.id().to_owned(), other.id().to_owned());
    Ok(Brought { received: collector.stop()?, forking, other, listed, status })
}

/// Whether the program that forks was running, which the runtime's own process in its container is not yet.
fn is_of_the_program(event: &DecodedEvent<'_>) -> bool {
    let path = event.profile.resource.get("process.executable.path").and_then(|path| path.as_str());
    path.is_some_and(|path| path.ends_with("/forks"))
}

impl Brought {
    fn events_of<'a>(&'a self, container: &'a str) -> impl Iterator<Item = DecodedEvent<'a>> {
        self.received.events().filter(move |event| container_of(event) == Some(container))
    }

    fn assert_list_is_small(&self) {
        assert!(self.listed <= LISTED_MAX, "{} processes are listed", self.listed);
        let full = self.status.pointer("/receivers/profiling/scope_list_full");
        assert_eq!(full.and_then(Value::as_u64), Some(0), "{}", self.status);
    }
}

#[promise(OnePod, test_all)]
fn after_twenty_thousand_forks_new_children_of_an_included_program_are_seen() -> Result<()> {
    if !sidewinder_e2e_pod::are_possible("an included program that forks")? {
        return Ok(());
    }
    let brought = session("mode: processes, include: { names: [forks] }")?;
    let mut judge = Judge::default();
    let later =
        brought.events_of(&brought.forking).filter(|event| judge.passes_through(event, LATER)).count();
    let (all, others) = (brought.received.events().count(), brought.events_of(&brought.other).count());
    eprintln!("{later} of {all} events are of later children");
    assert!(later >= LATER_EVENTS_MIN, "{later} of {all} events are of later children");
    never(others > 0, "a program that is not included", format_args!("{others} events"));
    brought.assert_list_is_small();
    Ok(())
}

#[promise(OnePod, test_all)]
fn after_twenty_thousand_forks_no_child_of_an_excluded_program_is_seen() -> Result<()> {
    if !sidewinder_e2e_pod::are_possible("an excluded program that forks")? {
        return Ok(());
    }
    let brought = session("mode: pod, exclude: { names: [forks] }")?;
    let mut judge = Judge::default();
    let excluded = |event: &DecodedEvent<'_>, judge: &mut Judge| {
        is_of_the_program(event) || judge.passes_through(event, LATER)
    };
    let excluded = brought.received.events().filter(|event| excluded(event, &mut judge)).count();
    let others = brought.events_of(&brought.other).count();
    eprintln!("{others} events of the other program, {excluded} of the excluded one");
    never(excluded > 0, "a program that is excluded", format_args!("{excluded} events"));
    assert!(others >= LATER_EVENTS_MIN, "{others} events of a program that is not excluded");
    brought.assert_list_is_small();
    Ok(())
}
