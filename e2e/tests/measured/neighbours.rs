//! Two pods run the same file at the same time on the same CPUs. The sidecar of one sends all of its own pod's events and
//! none of the other's.

use std::collections::HashSet;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use rustix::process::Signal;
use sidewinder_e2e_judge::{Chain, Judge};
use sidewinder_e2e_pod::application::{
    APP_USER, AS_THE_SAME_USER, EVENTS_OF_EVERY_TASK, WITH_OTHER_USERS, app, configuration, container_of,
    security,
};
use sidewinder_e2e_pod::{
    Container, ENTRY_POINT, Image, Pod, PodSpec, SecurityContext, Sidecar, SidecarSpec,
};
use sidewinder_e2e_support::cgroup;
use sidewinder_e2e_support::collector::{self, Collector};
use sidewinder_e2e_support::never::never;
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::rate::{Expected, StolenTime};
use sidewinder_e2e_support::received::Received;
use sidewinder_e2e_support::session::{Daemon, Settings, is_degraded};
use sidewinder_e2e_support::workload::{self, Report};
use sidewinder_otlp::decode::DecodedEvent;

/// The function that only the other pod's processes run.
const FOREIGN: &str = "of_the_neighbour";
const OWN: &str = "of_the_app";
/// CPUs that both pods share.
const CPUS: [u32; 2] = [0, 1];
/// Processes of the other pod on each of them.
const NEIGHBOURS: usize = 2;
/// How long the application runs before the kubelet starts it again.
const RESTARTED_AFTER_SECONDS: &str = "1";
/// The profiler of the whole node has more to do.
const NODE_IS_SLOWER: u32 = 5;
/// Where a container sees its own cgroup.
const CGROUPS: &str = "/sys/fs/cgroup";
/// What each process of a storm takes of a CPU.
const STORM_MILLIS: &str = "2";

/// How much of it there is.
struct Extent {
    seconds: u32,
    samples_per_second: u32,
    /// Sessions follow each other until so many events have arrived.
    events: usize,
}

impl Extent {
    fn of_this_run() -> Self {
        match std::env::var_os("SIDEWINDER_WHOLE_PODS") {
            Some(_) => Self { seconds: 60, samples_per_second: 4_999, events: 500_000 },
            None => Self { seconds: 6, samples_per_second: 997, events: 1 },
        }
    }
}

/// What a session brought.
struct Brought {
    /// Whether the sidecar said so.
    hears_of_every_task: bool,
    own_ids: HashSet<String>,
    /// Of the other pod's containers.
    foreign_ids: HashSet<String>,
    /// Of the application's containers, each under its id.
    reports: Vec<(String, Report)>,
    stolen_ns: u64,
    sidecar: Received,
    node: Received,
}

/// A process of another pod that is in the application's PID namespace.
struct Intruder(Child);

impl Intruder {
    fn start(pod: &Pod, neighbour: &Container, seconds: &str) -> Result<Self> {
        let procs = neighbour.cgroup().procs();
        let mut command = cgroup::command_in(&procs, workload::TENANT.compiled()?);
        command.args(["neighbour", seconds]).stdout(Stdio::null());
        Ok(Self(pod.spawn_among_its_processes(&mut command)?))
    }
}

impl Drop for Intruder {
    fn drop(&mut self) {
        // It goes with the other pod's cgroup, if it is still there.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn session(extent: &Extent, user: SecurityContext) -> Result<Brought> {
    let collector = Collector::set_up(collector::Setup { unix_socket: true, ..collector::Setup::default() })?;
    let (ours, theirs) = (Pod::start(PodSpec::default())?, Pod::start(PodSpec::default())?);
    for pod in [&ours, &theirs] {
        pod.reuse_process_ids()?;
    }
    let spec = SidecarSpec {
        configuration: configuration(extent.samples_per_second, "propagate", SidecarSpec::COLLECTOR_ENDPOINT),
        security: user,
        memory_limit_bytes: None,
        collector: Some(collector.socket_for_everybody()?),
    };
    let mut sidecar = Sidecar::start(&ours, &Image::new()?, &spec)?;
    sidecar.wait_until_profiling()?;
    let beside = Collector::start()?;
    let node =
        Settings { samples_per_second: extent.samples_per_second / NODE_IS_SLOWER, ..Settings::default() };
    let node = Daemon::start(&node, &beside.grpc_endpoint())?;

    let stolen = StolenTime::start();
    let longer = (extent.seconds + 60).to_string();
    let mut neighbours = Vec::new();
    for cpu in CPUS {
        for _ in 0..NEIGHBOURS {
            neighbours.push(theirs.run(&app(workload::TENANT, &["neighbour", &longer], Some(cpu))?)?);
        }
        neighbours.push(theirs.run(&app(
            workload::TENANT,
            &["neighbour", &longer, STORM_MILLIS],
            Some(cpu),
        )?)?);
    }
    let intruder = Intruder::start(&ours, neighbours.first().context("no neighbour")?, &longer)?;

    let seconds = extent.seconds.to_string();
    let [first, last] = CPUS;
    let mut steady = ours.run(&app(workload::TENANT, &["app", &seconds], Some(first))?)?;
    let mut storm = ours.run(&app(workload::TENANT, &["app", &seconds, STORM_MILLIS], Some(last))?)?;
    let mut own_ids: HashSet<String> =
        [steady.id(), storm.id(), sidecar.container().id(), ours.pause().id()].map(str::to_owned).into();
    let mut reports = Vec::new();
    let deadline = Instant::now() + Duration::from_secs(extent.seconds.into());
    while Instant::now() < deadline {
        let mut restarted =
            ours.run(&app(workload::TENANT_FP, &["app", RESTARTED_AFTER_SECONDS], Some(last))?)?;
        own_ids.insert(restarted.id().to_owned());
        reports.push(report(&mut restarted)?);
    }
    reports.extend([report(&mut steady)?, report(&mut storm)?]);
    let stolen_ns = stolen.elapsed_ns();
    let foreign_ids = neighbours.iter().map(|container| container.id().to_owned()).collect();
    drop((intruder, neighbours));

    let said = sidecar.status()?.context("it does not answer")?;
    let hears_of_every_task = is_degraded(&said, EVENTS_OF_EVERY_TASK);
    sidecar.container().signal(Signal::TERM)?;
    let status = sidecar.container_mut().wait(Duration::from_secs(20))?;
    ensure!(status.success(), "the sidecar ended with {status}:\n{}", sidecar.container().log());
    eprintln!("{}", sidecar.container().log());
    node.stop()?;
    let (sidecar, node) = (collector.stop()?, beside.stop()?);
    Ok(Brought { hears_of_every_task, own_ids, foreign_ids, reports, stolen_ns, sidecar, node })
}

fn report(container: &mut Container) -> Result<(String, Report)> {
    let status = container.wait(Duration::from_secs(120))?;
    ensure!(status.success(), "the application ended with {status}:\n{}", container.log());
    Ok((container.id().to_owned(), workload::report_in(&container.log())?))
}

fn is_the_sidecars(event: &DecodedEvent<'_>) -> bool {
    event.profile.resource.get("process.executable.path").and_then(|path| path.as_str()) == Some(ENTRY_POINT)
}

/// The events in whose stack there is a function.
fn through<'a>(judge: &mut Judge, received: &'a Received, function: &str) -> Vec<DecodedEvent<'a>> {
    received.events().filter(|event| judge.passes_through(event, function)).collect()
}

impl Brought {
    /// How many events there should be of these containers.
    fn expected(&self, extent: &Extent, reports: &[(String, Report)]) -> Expected {
        let cpu_ns = reports.iter().map(|(_, report)| report.cpu_ns).sum();
        Expected::of(extent.samples_per_second, cpu_ns, self.stolen_ns)
    }

    fn assert_nothing_is_foreign(&self, judge: &mut Judge) -> Result<()> {
        let foreign = through(judge, &self.sidecar, FOREIGN);
        for event in foreign.iter().take(3) {
            eprintln!("foreign: {}, {:?}", judge.describe(event), event.profile.resource);
        }
        let is_of_others =
            |event: &DecodedEvent<'_>| container_of(event).is_some_and(|id| !self.own_ids.contains(id));
        let of_others = self.sidecar.events().filter(is_of_others).count();
        never(
            !foreign.is_empty() || of_others > 0,
            "a foreign event",
            format_args!("{} by their function, {of_others} by their container", foreign.len()),
        );
        // The same minute without a scope: there was something to see.
        let is_theirs =
            |event: &DecodedEvent<'_>| container_of(event).is_some_and(|id| self.foreign_ids.contains(id));
        let theirs = self.node.events().filter(is_theirs).count() * NODE_IS_SLOWER as usize;
        let (own, all) = (through(judge, &self.sidecar, OWN).len(), self.node.events().count());
        eprintln!("{own} own events, and about {theirs} of the neighbour's by the profiler of the node");
        ensure!(theirs > own, "about {theirs} of the neighbour's by {all} events of the node, {own} own");
        Ok(())
    }

    fn assert_all_of_the_own(&self, extent: &Extent, judge: &mut Judge) {
        let own = through(judge, &self.sidecar, OWN);
        for (id, report) in &self.reports {
            let events = own.iter().filter(|event| container_of(event) == Some(id)).count();
            let expected = self.expected(extent, &[(id.clone(), report.clone())]);
            eprintln!("{events} events of a container, {expected}");
        }
        let expected = self.expected(extent, &self.reports).beside_others();
        let verdict = judge.verdict(own.iter().copied(), &Chain::in_order(&["main", OWN, "work", "burn"]));
        eprintln!("{} events of the application, {expected}: {verdict}", own.len());
        assert!(expected.admits(own.len(), 0.01), "{} events, {expected}", own.len());
        assert!(verdict.right_share() >= 0.995, "{verdict}");
    }

    /// The sidecar's own cgroup namespace hides from it which container it is itself. A process that is gone at once may
    /// be gone before it is read.
    fn assert_containers_are_known(&self) {
        let all = self.sidecar.events().count();
        let is_nobodys = |event: &DecodedEvent<'_>| container_of(event).is_none() && !is_the_sidecars(event);
        let nobodys: Vec<_> = self.sidecar.events().filter(is_nobodys).collect();
        let examples: Vec<_> = nobodys.iter().take(3).map(|event| &event.profile.resource).collect();
        assert!(nobodys.len() * 100 <= all, "{} of {all} have no container: {examples:?}", nobodys.len());
    }
}

fn only_the_own_pod(test: &str, security: &SecurityContext) -> Result<()> {
    if !sidewinder_e2e_pod::are_possible(test)? {
        return Ok(());
    }
    let extent = Extent::of_this_run();
    let sees_no_cgroup = security.masked_paths.contains(&CGROUPS);
    let mut events = 0;
    while events < extent.events {
        let brought = session(&extent, security.clone())?;
        assert_eq!(brought.hears_of_every_task, sees_no_cgroup);
        let mut judge = Judge::default();
        brought.assert_nothing_is_foreign(&mut judge)?;
        brought.assert_all_of_the_own(&extent, &mut judge);
        brought.assert_containers_are_known();
        events += brought.sidecar.events().count();
        eprintln!("{test}: {events} events so far, none of them foreign");
    }
    Ok(())
}

#[promise(OnePod)]
fn a_sidecar_as_root_sees_all_of_its_pod_and_nothing_of_a_neighbour_that_runs_the_same_file() -> Result<()> {
    only_the_own_pod("a sidecar as root", &security(0, &WITH_OTHER_USERS))
}

#[promise(OnePod, test_all)]
fn a_sidecar_as_the_applications_user_sees_the_same() -> Result<()> {
    only_the_own_pod("a sidecar as the application's user", &security(APP_USER, &AS_THE_SAME_USER))
}

/// The events of containers keep a neighbour out by themselves. Here only the programs' own look at who runs does: whoever
/// can't see its own cgroup gets the events of every task.
#[promise(OnePod, test_all)]
fn a_sidecar_that_hears_of_every_task_sees_the_same() -> Result<()> {
    let security =
        SecurityContext { masked_paths: vec!["/sys/fs/cgroup"], ..security(APP_USER, &AS_THE_SAME_USER) };
    only_the_own_pod("a sidecar that hears of every task", &security)
}
