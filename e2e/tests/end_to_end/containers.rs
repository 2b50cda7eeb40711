//! Names of containers, from what their runtime keeps in files.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::received::Received;
use sidewinder_e2e_support::sidewinder::{self, Running};
use sidewinder_e2e_support::workload::TENANT;
use sidewinder_e2e_support::{command, requirement};

/// How long each container is recorded.
const RECORDED: Duration = Duration::from_millis(500);
/// Longer than a busy machine takes until a container computes.
const PATIENCE: Duration = Duration::from_secs(20);

/// Runs podman, which uses the storage of the machine.
fn podman(arguments: &[&str]) -> Result<String> {
    let mut command = command::in_second_hierarchy("exec podman --cgroup-manager cgroupfs \"$@\"");
    Ok(command::run(command.args(arguments))?.trim().to_owned())
}

/// An image that has nothing but a program, and is removed at the end.
#[derive(Debug)]
struct Image {
    name: String,
}

impl Image {
    fn of_tenant() -> Result<Self> {
        let program = TENANT.compiled()?;
        let folder = tempfile::tempdir()?;
        let archive = folder.path().join("root.tar");
        let parent = program.parent().context("a program without a folder")?;
        command::run(Command::new("tar").arg("-cf").arg(&archive).arg("-C").arg(parent).arg(TENANT.name))?;
        let name = format!("localhost/sidewinder-test-{}:1", std::process::id());
        podman(&["import", "--quiet", archive.to_str().context("a path that is not UTF-8")?, &name])?;
        Ok(Self { name })
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        _ = podman(&["rmi", "--force", &self.name]);
    }
}

/// A container that computes until it is removed, at the end.
#[derive(Debug)]
struct Container {
    id: String,
    name: String,
}

impl Container {
    fn start(image: &Image, number: u32) -> Result<Self> {
        let name = format!("sidewinder-test-{}-{number}", std::process::id());
        let program = format!("/{}", TENANT.name);
        // Without limits: not every machine lets us set them.
        let options = ["--network=none", "--log-driver=none", "--privileged", "--pids-limit=-1"];
        let limits = ["--ulimit=nofile=1024:1024", "--ulimit=nproc=1000:1000"];
        let run = ["run", "--detach", "--name", &name];
        let id = podman(&[&run[..], &options, &limits, &[&image.name, &program, "app", "60"]].concat())?;
        Ok(Self { id, name })
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        _ = podman(&["rm", "--force", "--time=0", &self.name]);
    }
}

#[promise(Runs)]
fn containers_of_podman_have_their_names_also_those_that_start_later() -> Result<()> {
    const TEST: &str = "containers_of_podman_have_their_names_also_those_that_start_later";
    if !requirement::ebpf(TEST)?
        || !requirement::program(TEST, "podman")?
        || !requirement::program(TEST, "crun")?
    {
        return Ok(());
    }
    let image = Image::of_tenant()?;
    let first = Container::start(&image, 1)?;
    let folder = tempfile::tempdir()?;
    let output = folder.path().join("out.otlp");
    let mut recording = sidewinder::command()?;
    recording.args(["record", "--comm", TENANT.name, "-o"]).arg(&output);
    let recording = Running::start_sampling(recording)?;
    thread::sleep(RECORDED);
    // By then podman's list has been read.
    let second = Container::start(&image, 2)?;
    wait_until_it_computes(&second)?;
    thread::sleep(RECORDED);
    let ended = recording.stop()?;
    ensure!(ended.status.success(), "{}", ended.log);
    let received = Received::from_otlp_file(&output)?;
    for container in [&first, &second] {
        let attribute = |profile: &sidewinder_otlp::decode::DecodedProfile, key: &str| {
            profile.resource.get(key).and_then(|value| Some(value.as_str()?.to_owned()))
        };
        let of_container = received
            .profiles
            .iter()
            .filter(|profile| attribute(profile, "container.id").as_deref() == Some(&container.id));
        let names: Vec<_> = of_container
            .map(|profile| ["container.name", "container.image.name"].map(|key| attribute(profile, key)))
            .collect();
        assert!(!names.is_empty(), "{} was not sampled:\n{}", container.name, ended.log);
        for name in names {
            assert_eq!(name, [Some(container.name.clone()), Some(image.name.clone())]);
        }
    }
    Ok(())
}

/// Waits until the container has used CPU time.
fn wait_until_it_computes(container: &Container) -> Result<()> {
    let pid = podman(&["inspect", "--format", "{{.State.Pid}}", &container.name])?;
    let deadline = Instant::now() + PATIENCE;
    // Fields 14 and 15 of proc_pid_stat(5), in ticks; the name in brackets before them may have spaces.
    let used = || -> Result<u64> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
        let fields = stat.rsplit(')').next().context("no fields")?;
        Ok(fields.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum())
    };
    while used()? < 5 {
        ensure!(Instant::now() < deadline, "{} does not compute", container.name);
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
