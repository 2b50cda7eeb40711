//! The container image, run with what Kubernetes grants a sidecar.
//!
//! The image takes minutes to build: `make image-test` does, and names it by `SIDEWINDER_IMAGE`.

use std::env;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};
use object::{Object as _, ObjectSection as _};
use serde_json::{Value, json};
use sidewinder_e2e_pod::{self as pod, Pod, PodSpec, SecurityContext, Sidecar, SidecarSpec};
use sidewinder_e2e_support::sidewinder::{Ended, Running};
use sidewinder_e2e_support::{command, paths, requirement};
use tempfile::TempDir;

/// Whoever nobody else is: what distributions without a shell use.
const USER: u32 = 65532;
/// `CAP_PERFMON` and `CAP_BPF`, as /proc/PID/status writes sets.
const TWO_CAPABILITIES: &str = "000000c000000000";
const NO_CAPABILITY: &str = "0000000000000000";
const GRANTED: [&str; 2] = ["CAP_BPF", "CAP_PERFMON"];
const IMAGE_BYTES_MAX: u64 = 15 << 20;
const NOT_POSSIBLE_HERE: i32 = 3;
const USAGE: i32 = 2;

const CONFIGURATION: &str = "{receivers: {profiling: {error_mode: propagate}}, \
     exporters: {otlp_grpc: {endpoint: '127.0.0.1:4317', tls: {insecure: true}}}, \
     service: {pipelines: {profiles: {receivers: [profiling], exporters: [otlp_grpc]}}}}";

#[test]
fn file_capabilities_are_taken_up_as_far_as_they_are_granted() -> Result<()> {
    const NAME: &str = "file capabilities";
    if !requirement::ebpf(NAME)? || !requirement::program(NAME, "setpriv")? {
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755))?;
    let binary = folder.path().join("sidewinder");
    fs::copy(paths::sidewinder()?, &binary)?;
    pod::give_file_capabilities(&binary)?;
    for (bounding_set, code) in [("-all,+bpf,+perfmon", 0), ("-all", NOT_POSSIBLE_HERE)] {
        let mut command = Command::new("setpriv");
        command.args([format!("--reuid={USER}"), format!("--regid={USER}"), "--clear-groups".to_owned()]);
        command
            .args(["--inh-caps=-all", &format!("--bounding-set={bounding_set}")])
            .arg(&binary)
            .arg("check");
        let Ended { status, log } = Running::start(command)?.wait(Duration::from_secs(60))?;
        assert_eq!(status.code(), Some(code), "{bounding_set}: {log}");
    }
    Ok(())
}

#[test]
fn the_image_holds_one_small_static_binary_that_says_where_it_is_from() -> Result<()> {
    let Some(image) = Image::open("the files of the image")? else { return Ok(()) };
    let bytes: u64 = image.layers()?.iter().map(|layer| layer["size"].as_u64().unwrap_or(u64::MAX)).sum();
    assert!(bytes <= IMAGE_BYTES_MAX, "the layers have {bytes} bytes");
    let settings = &image.config["config"];
    assert_eq!(settings["User"], format!("{USER}:{USER}"));
    assert_eq!(settings["Entrypoint"], json!(["/sidewinder"]));
    for label in ["title", "description", "licenses", "version", "revision"] {
        let label = format!("org.opencontainers.image.{label}");
        assert!(
            settings["Labels"][&label].as_str().is_some_and(|text| !text.is_empty()),
            "{label}: {settings}"
        );
    }
    assert_eq!(settings["Labels"]["org.opencontainers.image.version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(image.index["manifests"][0]["platform"], json!({ "architecture": "amd64", "os": "linux" }));

    let mut entries: Vec<_> =
        fs::read_dir(image.root())?.map(|entry| Ok(entry?.file_name())).collect::<Result<_>>()?;
    entries.sort();
    assert_eq!(entries, ["licenses", "sidewinder"]);
    let bytes = fs::read(image.root().join("sidewinder"))?;
    let elf = object::File::parse(&*bytes)?;
    let sections: Vec<_> = elf.sections().filter_map(|section| section.name().ok()).collect();
    assert!(!sections.contains(&".interp") && !sections.contains(&".symtab"), "{sections:?}");
    assert!(sections.contains(&".dep-v0"), "the binary does not say what it depends on: {sections:?}");

    let (debug_file, _) = elf.gnu_debuglink()?.context("no name of a debug file")?;
    let id = elf.build_id()?.context("no build ID")?;
    let id: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    let (folder, name) = id.split_at(2);
    assert_eq!(debug_file, format!("{name}.debug").as_bytes());
    let debug_file = image.built.join("amd64/debug/.build-id").join(folder).join(format!("{name}.debug"));
    let bytes = fs::read(&debug_file).with_context(|| format!("cannot read {}", debug_file.display()))?;
    let debug = object::File::parse(&*bytes)?;
    assert_eq!(debug.build_id()?, elf.build_id()?);
    assert!(debug.section_by_name(".debug_line").is_some() && debug.symbols().count() > 0);
    Ok(())
}

#[test]
fn two_capabilities_are_enough_for_another_user_than_root() -> Result<()> {
    let Some(image) = Image::open("profiling from the image")? else { return Ok(()) };
    let (pod, image) = (Pod::start(PodSpec::default())?, image.of_pods()?);
    let spec = SidecarSpec {
        configuration: CONFIGURATION.to_owned(),
        security: granted(&GRANTED),
        memory_limit_bytes: None,
        collector: None,
    };
    let mut sidecar = Sidecar::start(&pod, &image, &spec)?;
    sidecar.wait_until_profiling()?;
    let threads: Vec<PathBuf> = fs::read_dir(format!("/proc/{}/task", sidecar.container().pid()))?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    for thread in threads {
        let sets = fs::read_to_string(thread.join("status"))?;
        let is_opener = fs::read_to_string(thread.join("comm"))?.trim_end() == "opener";
        for (set, expected) in [
            ("CapPrm", if is_opener { TWO_CAPABILITIES } else { NO_CAPABILITY }),
            ("CapBnd", TWO_CAPABILITIES),
            ("CapInh", NO_CAPABILITY),
            ("CapAmb", NO_CAPABILITY),
        ] {
            assert!(sets.contains(&format!("{set}:\t{expected}\n")), "{set} is not {expected}:\n{sets}");
        }
        assert!(sets.contains(&format!("Uid:\t{USER}\t{USER}\t")), "{sets}");
    }
    for (arguments, says) in [(["status"], "profiling"), (["health"], ": up"), (["--version"], "sidewinder ")]
    {
        let output = sidecar.execute(&arguments)?;
        let said = String::from_utf8_lossy(&output.stdout);
        // What it can't do with these capabilities is a problem, which its status says and ends with.
        let is_well = output.status.success() || arguments == ["status"] && output.status.code() == Some(1);
        assert!(is_well && said.contains(says), "{arguments:?}: {output:?}");
    }
    let (code, log) = run(&image, &GRANTED, &["check"])?;
    assert!(code == Some(0) && log.contains("Ready to profile"), "{code:?}: {log}");
    Ok(())
}

#[test]
fn without_capabilities_the_image_starts_and_says_what_is_missing() -> Result<()> {
    let Some(image) = Image::open("the image without capabilities")? else { return Ok(()) };
    let image = image.of_pods()?;
    let (code, log) = run(&image, &[], &["check"])?;
    assert!(code == Some(NOT_POSSIBLE_HERE) && log.contains("CAP_BPF"), "{code:?}: {log}");
    let (code, log) = run(&image, &[], &["health"])?;
    assert_eq!(code, Some(1), "nobody runs, and health is good: {log}");
    Ok(())
}

#[test]
fn an_exporter_with_tls_asks_for_certificates_that_the_image_does_not_have() -> Result<()> {
    let Some(image) = Image::open("certificates in the image")? else { return Ok(()) };
    let configuration = format!("--config=yaml:{CONFIGURATION}");
    let arguments = [&*configuration, "--set=exporters.otlp_grpc.tls.insecure=false"];
    let (code, log) = run(&image.of_pods()?, &GRANTED, &arguments)?;
    assert_eq!(code, Some(USAGE), "{log}");
    assert!(log.contains("ca_file") && log.contains("/etc/ssl/certs"), "{log}");
    Ok(())
}

#[test]
fn podman_runs_the_archive() -> Result<()> {
    let Some(image) = Image::open("the archive in podman")? else { return Ok(()) };
    let store = tempfile::tempdir()?;
    let podman = |arguments: &str| {
        let archive = image.built.join("sidewinder.oci.tar");
        let script = format!(
            "store=$1; podman() {{ command podman --root $store --runroot $store/run --storage-driver vfs \
             --cgroup-manager cgroupfs \"$@\"; }}; {arguments}"
        );
        let mut command = command::in_second_hierarchy(&script);
        command.arg(store.path()).arg(archive).stdin(Stdio::null());
        Running::start(command)?.wait(Duration::from_secs(120))
    };
    // Limits that even who may not raise them can set.
    let ended = podman(
        "name=$(podman load --quiet --input $2 | sed 's/.*: //') && \
         podman run --rm --network=none --cgroups=disabled --ulimit nofile=1024:1024 --ulimit nproc=1000:1000 $name --version",
    )?;
    assert!(ended.status.success() && ended.log.contains(env!("CARGO_PKG_VERSION")), "{}", ended.log);
    Ok(())
}

/// The image that `make image` built, unpacked as a container's runtime does.
#[derive(Debug)]
struct Image {
    /// What `make image` wrote.
    built: PathBuf,
    unpacked: TempDir,
    index: Value,
    manifest: Value,
    config: Value,
}

impl Image {
    /// `None` where none is built, or nothing can run it: `test` is skipped then.
    fn open(test: &str) -> Result<Option<Self>> {
        let Some(built) = env::var_os("SIDEWINDER_IMAGE").map(PathBuf::from) else {
            requirement::elsewhere(test, "make image-test")?;
            return Ok(None);
        };
        if !sidewinder_e2e_pod::are_possible(test)? || !requirement::program(test, "podman")? {
            return Ok(None);
        }
        let unpacked = tempfile::tempdir()?;
        let layout = unpacked.path().join("layout");
        let root = unpacked.path().join("rootfs");
        fs::create_dir(&layout)?;
        fs::create_dir(&root)?;
        // Other users than root have to get there.
        fs::set_permissions(unpacked.path(), Permissions::from_mode(0o755))?;
        let archive = built.join("sidewinder.oci.tar");
        command::run(Command::new("tar").arg("-xf").arg(archive).arg("-C").arg(&layout))?;
        let blob = |descriptor: &Value| -> Result<PathBuf> {
            let digest = descriptor["digest"].as_str().context("no digest")?;
            Ok(layout.join("blobs").join(digest.replace(':', "/")))
        };
        let document = |descriptor: &Value| -> Result<Value> {
            Ok(serde_json::from_slice(&fs::read(blob(descriptor)?)?)?)
        };
        let top: Value = serde_json::from_slice(&fs::read(layout.join("index.json"))?)?;
        let index = document(&top["manifests"][0])?;
        let manifest = document(&index["manifests"][0])?;
        let config = document(&manifest["config"])?;
        for layer in manifest["layers"].as_array().context("no layers")? {
            let mut tar = Command::new("tar");
            tar.args(["--xattrs", "--xattrs-include=security.capability", "-xzpf"]).arg(blob(layer)?);
            command::run(tar.arg("-C").arg(&root))?;
        }
        Ok(Some(Self { built, unpacked, index, manifest, config }))
    }

    fn root(&self) -> PathBuf {
        self.unpacked.path().join("rootfs")
    }

    fn layers(&self) -> Result<&Vec<Value>> {
        self.manifest["layers"].as_array().context("no layers")
    }

    /// For containers of a pod, which have its entry point and no other file.
    fn of_pods(&self) -> Result<pod::Image> {
        pod::Image::of(self.root().join("sidewinder"))
    }
}

fn granted(capabilities: &[&'static str]) -> SecurityContext {
    SecurityContext { capabilities: capabilities.to_vec(), ..SecurityContext::user(USER) }
}

/// Runs a container to its end: its exit code, and what it said.
fn run(
    image: &pod::Image,
    capabilities: &[&'static str],
    arguments: &[&str],
) -> Result<(Option<i32>, String)> {
    let pod = Pod::start(PodSpec::default())?;
    let mut container = pod.run(&image.container(arguments, &granted(capabilities)))?;
    let status = container.wait(Duration::from_secs(60))?;
    Ok((status.code(), container.log()))
}
