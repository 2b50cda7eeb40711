//! Off-CPU time, page faults, waits for locks and their wakers, and probes in a pod, with the privileges of a sidecar: its own pod's, and no other's.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rustix::process::Signal;
use sidewinder_e2e_judge::Judge;
use sidewinder_e2e_pod::{
    Container, ContainerSpec, Image, Pod, PodSpec, SecurityContext, Sidecar, SidecarSpec,
};
use sidewinder_e2e_support::collector::{Collector, Setup};
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::received::Received;
use sidewinder_e2e_support::workload::{CONVOYS, FAULTS, Program};

use super::{AS_THE_SAME_USER, NOWHERE, app, configuration, container_of, security};

/// The user of distroless images.
const USER: u32 = 65_532;
const PATIENCE: Duration = Duration::from_secs(60);
/// A function that the profiles of each of these types show, and the least sum of their values there.
const EXPECTED: [(&str, &str, i64); 7] = [
    ("off_cpu", "wait_for_a_condition", 1_000_000_000),
    ("faults", "grow_large", 1_000),
    ("contentions", "wait_for_red", 50),
    ("delay", "wait_for_red", 1_000_000_000),
    ("waker_delay", "leave", 1_000_000_000),
    ("uprobe_wait_for_green", "wait_for_green", 50),
    ("tracepoint_sched_sched_switch", "wait_for_red", 50),
];

/// The configuration with all kinds of profile.
fn with_all_kinds(error_mode: &str, endpoint: &str) -> Result<String> {
    let configuration = configuration(19, error_mode, endpoint);
    // The path that it has in the containers, too.
    let program = CONVOYS.compiled()?;
    let keys = format!(
        "scope: {{ mode: pod }}\n    off_cpu_threshold: 1\n    lock_threshold: 1\n    lock_wakers: true\n    \
         events: [{{ name: page-faults, period: 64 }}]\n    probe_links: ['uprobe:{}:wait_for_green', \
         'tracepoint:sched:sched_switch']",
        program.display()
    );
    let changed = configuration.replace("scope: { mode: pod }", &keys);
    ensure!(changed != configuration, "the configuration has another form");
    Ok(changed)
}

/// As the sidecar's user: without CAP_SYS_PTRACE, it can't read what programs other users' processes run.
fn application(program: Program, arguments: &[&str]) -> Result<ContainerSpec> {
    Ok(ContainerSpec { security: SecurityContext::user(USER), ..app(program, arguments, None)? })
}

/// What the sidecar of a pod sends while two pods run the same programs, and the containers of its own.
fn session() -> Result<(Received, Vec<String>)> {
    let collector = Collector::set_up(Setup { unix_socket: true, ..Setup::default() })?;
    let (pod, other) = (Pod::start(PodSpec::default())?, Pod::start(PodSpec::default())?);
    let spec = SidecarSpec {
        // The program of the probe does not run yet, which would be an error otherwise.
        configuration: with_all_kinds("ignore", SidecarSpec::COLLECTOR_ENDPOINT)?,
        security: security(USER, &AS_THE_SAME_USER),
        memory_limit_bytes: None,
        collector: Some(collector.socket_for_everybody()?),
    };
    let mut sidecar = Sidecar::start(&pod, &Image::new()?, &spec)?;
    sidecar.wait_until_profiling()?;
    let run = |pod: &Pod| -> Result<[Container; 2]> {
        Ok([
            pod.run(&application(CONVOYS, &["mutex", "8"])?)?,
            pod.run(&application(FAULTS, &["4", "2000", "2000"])?)?,
        ])
    };
    let (mut own, mut others) = (run(&pod)?, run(&other)?);
    for container in own.iter_mut().chain(&mut others) {
        let ended = container.wait(PATIENCE)?;
        ensure!(ended.success(), "{ended}: {}", container.log());
    }
    sidecar.container().signal(Signal::TERM)?;
    let ended = sidecar.container_mut().wait(Duration::from_secs(20))?;
    ensure!(ended.success(), "the sidecar ended with {ended}:\n{}", sidecar.container().log());
    Ok((collector.stop()?, own.iter().map(|container| container.id().to_owned()).collect()))
}

#[promise(OnePod)]
fn a_sidecar_with_two_capabilities_samples_all_kinds_of_profile_of_its_own_pod_only() -> Result<()> {
    if !sidewinder_e2e_pod::are_possible("all kinds of profile in a pod")? {
        return Ok(());
    }
    let (received, own) = session()?;
    let mut judge = Judge::default();
    let mut sums: BTreeMap<&str, i64> = BTreeMap::new();
    for event in received.events() {
        let container = container_of(&event).unwrap_or("no container");
        let (sample_type, is_own) = (&*event.profile.sample_type, own.iter().any(|id| id == container));
        let expected = EXPECTED.iter().find(|(of_type, ..)| *of_type == sample_type);
        if let Some((sample_type, function, _)) = expected
            && judge.passes_through(&event, function)
        {
            ensure!(is_own, "{sample_type} of {container}, which is another pod's");
            *sums.entry(sample_type).or_default() += event.value;
        }
    }
    eprintln!("{sums:?}");
    for (sample_type, function, least) in EXPECTED {
        let sum = sums.get(sample_type).copied().unwrap_or(0);
        ensure!(sum >= least, "{sample_type} in {function}: {sum}");
    }
    Ok(())
}

#[promise(PodCapabilities, test_all)]
fn a_sidecar_without_a_capability_says_which_one_the_kinds_of_profile_need() -> Result<()> {
    if !sidewinder_e2e_pod::are_possible("kinds of profile without a capability")? {
        return Ok(());
    }
    let (pod, image) = (Pod::start(PodSpec::default())?, Image::new()?);
    for (has, lacks) in [("CAP_BPF", "CAP_PERFMON"), ("CAP_PERFMON", "CAP_BPF")] {
        let spec = SidecarSpec {
            configuration: with_all_kinds("ignore", NOWHERE)?,
            security: security(USER, &[has]),
            memory_limit_bytes: None,
            collector: None,
        };
        let mut sidecar = Sidecar::start(&pod, &image, &spec)?;
        let deadline = Instant::now() + PATIENCE;
        let (activity, reason) = loop {
            let (activity, reason) = sidecar.activity()?;
            if !reason.is_empty() || Instant::now() > deadline {
                break (activity, reason);
            }
            thread::sleep(Duration::from_millis(200));
        };
        ensure!(activity == "failed" && reason.contains(lacks), "{activity}: {reason}");
        ensure!(sidecar.container_mut().ended()?.is_none(), "the sidecar has ended");
    }
    Ok(())
}
