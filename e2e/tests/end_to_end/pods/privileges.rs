//! What becomes of a sidecar that lacks something: it stays up, says what is missing and why, and begins as soon as it is
//! there.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use sidewinder_e2e_instrumented::examples;
use sidewinder_e2e_pod::{Container, Image, Pod, PodSpec, Seccomp, SecurityContext, Sidecar, SidecarSpec};
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::session::is_degraded;
use sidewinder_e2e_support::{requirement, workload};

use super::{
    APP_USER, AS_THE_SAME_USER, EVENTS_OF_EVERY_TASK, NOWHERE, app, app_at, configuration, security,
};

/// The longest that a sidecar takes to say how it is, on a machine that has much else to do.
const PATIENCE: Duration = Duration::from_secs(30);
/// What failed is tried again after half a minute.
const RETRIED_WITHIN: Duration = Duration::from_secs(75);
/// Exit code for a privilege or the kernel.
const PRIVILEGE: i32 = 3;
const BTF: &str = "/sys/kernel/btf";

/// What is expected of a sidecar.
enum Outcome {
    /// It samples the events of its pod's containers.
    Profiling,
    /// It samples the events of the whole node, keeps those of its pod, and says so in its status.
    OfEveryTask,
    /// It does not, and its reason has all of these words.
    Idle(&'static [&'static str]),
}

struct Case {
    /// What is missing.
    name: &'static str,
    pod: PodSpec,
    security: SecurityContext,
    outcome: Outcome,
}

fn cases() -> Vec<Case> {
    let pod = PodSpec::default();
    let same_user = security(APP_USER, &AS_THE_SAME_USER);
    let case = |name, pod, security, outcome| Case { name, pod, security, outcome };
    let refusing =
        |calls| SecurityContext { seccomp: Seccomp::RuntimeDefaultWithout(calls), ..same_user.clone() };
    vec![
        case("nothing", pod, same_user.clone(), Outcome::Profiling),
        case(
            "BTF",
            pod,
            SecurityContext { masked_paths: vec![BTF], ..same_user.clone() },
            Outcome::Idle(&["BTF"]),
        ),
        case("CAP_BPF", pod, security(APP_USER, &["CAP_PERFMON"]), Outcome::Idle(&["CAP_BPF"])),
        case("CAP_PERFMON", pod, security(APP_USER, &["CAP_BPF"]), Outcome::Idle(&["CAP_PERFMON"])),
        case("CAP_SYS_PTRACE, as root", pod, security(0, &AS_THE_SAME_USER), Outcome::OfEveryTask),
        case(
            "CAP_SYS_PTRACE, as another user",
            pod,
            security(APP_USER + 1, &AS_THE_SAME_USER),
            Outcome::OfEveryTask,
        ),
        case(
            "the node's user namespace",
            PodSpec { has_host_users: false, ..pod },
            same_user.clone(),
            Outcome::Idle(&["user namespace"]),
        ),
        case("bpf(2), by seccomp", pod, refusing(&["bpf"]), Outcome::Idle(&["seccomp"])),
        case(
            "perf_event_open(2), by seccomp",
            pod,
            refusing(&["perf_event_open"]),
            Outcome::Idle(&["seccomp"]),
        ),
        case(
            "a shared PID namespace",
            PodSpec { shares_processes: false, ..pod },
            same_user,
            Outcome::Idle(&["shareProcessNamespace"]),
        ),
    ]
}

/// A case that runs: an application, the sidecar, and two of the same that end when they fail.
struct Running {
    case: Case,
    sidecar: Sidecar,
    propagating: Sidecar,
    check: Container,
    _app: Container,
    _pod: Pod,
}

impl Running {
    fn start(case: Case, image: &Image) -> Result<Self> {
        let pod = Pod::start(case.pod).with_context(|| case.name)?;
        // Ten of them: busy ones would leave the sidecars little of two CPUs.
        let app = pod.run(&app(workload::TENANT, &["app", "600", "idle"], None)?)?;
        let spec = |error_mode| SidecarSpec {
            configuration: configuration(19, error_mode, NOWHERE),
            security: case.security.clone(),
            memory_limit_bytes: None,
            collector: None,
        };
        let sidecar = Sidecar::start(&pod, image, &spec("ignore"))?;
        let check = pod.run(&image.container(&["check"], &case.security))?;
        let propagating = Sidecar::start(&pod, image, &spec("propagate"))?;
        Ok(Self { sidecar, propagating, check, _app: app, _pod: pod, case })
    }

    fn assert_as_expected(&mut self) -> Result<()> {
        match self.case.outcome {
            Outcome::Profiling => {
                self.sidecar.wait_until_profiling_within(PATIENCE)?;
                self.assert_has_events_of_containers(true)
            }
            Outcome::OfEveryTask => {
                self.sidecar.wait_until_profiling_within(PATIENCE)?;
                self.assert_has_events_of_containers(false)
            }
            Outcome::Idle(words) => self.assert_idle(words),
        }
    }

    /// Waits for it: the status changes after a while, and another container's events are tried first.
    fn assert_has_events_of_containers(&self, has_them: bool) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let status = self.sidecar.status()?.context("it does not answer")?;
            let containers = status.pointer("/receivers/profiling/containers").and_then(Value::as_u64);
            if containers.is_some() == has_them && is_degraded(&status, EVENTS_OF_EVERY_TASK) != has_them {
                return Ok(());
            }
            let log = self.sidecar.container().log();
            ensure!(Instant::now() < deadline, "events of {containers:?} containers: {status}: {log}");
            thread::sleep(Duration::from_millis(200));
        }
    }

    fn assert_idle(&mut self, words: &[&str]) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        let (activity, reason) = loop {
            let (activity, reason) = self.sidecar.activity()?;
            if !reason.is_empty() || Instant::now() > deadline {
                break (activity, reason);
            }
            thread::sleep(Duration::from_millis(200));
        };
        ensure!(activity == "failed", "it is {activity:?}: {}", self.sidecar.container().log());
        ensure!(self.sidecar.container_mut().ended()?.is_none(), "the sidecar has ended");
        let (log, propagated) =
            (self.sidecar.container().log(), self.propagating.container_mut().wait(PATIENCE)?);
        let said = self.propagating.container().log();
        for word in words {
            for text in [&reason, &log, &said] {
                ensure!(text.contains(word), "{word:?} is not in {text:?}");
            }
        }
        ensure!(
            propagated.code() == Some(PRIVILEGE),
            "with error_mode: propagate it ended with {propagated}: {said}"
        );
        // What it can do it could do here: it is the pod that is none.
        let expected = if self.case.pod.shares_processes { PRIVILEGE } else { 0 };
        let checked = self.check.wait(PATIENCE)?;
        ensure!(checked.code() == Some(expected), "check ended with {checked}: {}", self.check.log());
        Ok(())
    }
}

#[promise(PodCapabilities, test_all)]
fn a_sidecar_that_lacks_something_stays_up_says_so_and_begins_when_it_is_there() -> Result<()> {
    if !sidewinder_e2e_pod::are_possible("a sidecar that lacks something")? {
        return Ok(());
    }
    let image = Image::new()?;
    let mut running =
        cases().into_iter().map(|case| Running::start(case, &image)).collect::<Result<Vec<_>>>()?;
    let mut failures = Vec::new();
    for running in &mut running {
        let judged = running.assert_as_expected();
        let (activity, reason) = running.sidecar.activity()?;
        eprintln!("without {}: {activity}: {reason}", running.case.name);
        if let Err(error) = judged {
            failures.push(format!("without {}: {error:#}", running.case.name));
        } else if running.case.security.masked_paths == [BTF] {
            // It is tried again while the others are looked at.
            running.sidecar.container().unmask(BTF)?;
        }
    }
    ensure!(failures.is_empty(), "{}", failures.join("\n\n"));
    let recovered = running.iter_mut().find(|running| running.case.security.masked_paths == [BTF]);
    let sidecar = &mut recovered.context("no such case")?.sidecar;
    sidecar.wait_until_profiling_within(RETRIED_WITHIN).context("with BTF again")
}

/// Without `process_vm_readv`, as where `kernel.yama.ptrace_scope` is 1: programs read the memory from Linux 6.1 on, and a
/// sidecar on an older kernel says that it lacks something.
#[promise(PodCapabilities, test_all)]
fn a_sidecar_reads_what_its_app_publishes_or_says_that_it_must_not() -> Result<()> {
    const NAME: &str = "a sidecar that must not read memory by system call";
    if !sidewinder_e2e_pod::are_possible(NAME)? {
        return Ok(());
    }
    let has_programs = requirement::is_linux((6, 1))?;
    let pod = Pod::start(PodSpec::default())?;
    let _app = pod.run(&app_at(examples::build_c()?, &["600"], None)?)?;
    let image = Image::new()?;
    let allowed = security(APP_USER, &AS_THE_SAME_USER);
    let refused =
        SecurityContext { seccomp: Seccomp::RuntimeDefaultWithout(&["process_vm_readv"]), ..allowed.clone() };
    for (security, is_refused) in [(refused, !has_programs), (allowed, false)] {
        let configuration = configuration(97, "propagate", NOWHERE);
        let spec = SidecarSpec { configuration, security, memory_limit_bytes: None, collector: None };
        let mut sidecar = Sidecar::start(&pod, &image, &spec)?;
        sidecar.wait_until_profiling()?;
        let deadline = Instant::now() + PATIENCE;
        // Where nothing is refused, readings are what there is to wait for.
        let status = loop {
            let status = sidecar.status()?.context("it does not answer")?;
            let number =
                |name: &str| status.pointer(&format!("/receivers/profiling/{name}")).and_then(Value::as_u64);
            if number("contexts_refused") > Some(0) || number("contexts_read") > Some(0) {
                break status;
            }
            ensure!(Instant::now() < deadline, "{status}: {}", sidecar.container().log());
            thread::sleep(Duration::from_millis(200));
        };
        let receiver = &status["receivers"]["profiling"];
        ensure!(receiver["contexts_refused"] == u64::from(is_refused), "{receiver}");
        ensure!(is_degraded(&status, "process_context") == is_refused, "{status}");
    }
    Ok(())
}

/// A sysctl that has its old value again when this goes.
struct Sysctl {
    path: &'static str,
    before: String,
}

impl Sysctl {
    fn set(path: &'static str, value: &str) -> Result<Self> {
        let before = fs::read_to_string(path)?;
        fs::write(path, value).with_context(|| format!("cannot write {path}"))?;
        Ok(Self { path, before })
    }
}

impl Drop for Sysctl {
    fn drop(&mut self) {
        if let Err(error) = fs::write(self.path, &self.before) {
            eprintln!("{} could not be set back to {}: {error}", self.path, self.before.trim());
        }
    }
}

#[promise(PodCapabilities)]
fn with_its_capabilities_a_sidecar_samples_on_a_node_that_lets_nobody_else() -> Result<()> {
    if !sidewinder_e2e_pod::are_possible("a sidecar under perf_event_paranoid 4")? {
        return Ok(());
    }
    let _paranoid = Sysctl::set("/proc/sys/kernel/perf_event_paranoid", "4")?;
    let pod = Pod::start(PodSpec::default())?;
    let spec = SidecarSpec {
        configuration: configuration(19, "propagate", NOWHERE),
        security: security(APP_USER, &AS_THE_SAME_USER),
        memory_limit_bytes: None,
        collector: None,
    };
    Sidecar::start(&pod, &Image::new()?, &spec)?.wait_until_profiling()
}
