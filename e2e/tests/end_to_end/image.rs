//! The container image, run with what Kubernetes grants a sidecar.
//!
//! The image takes minutes to build: `make image-test` does, and names it by `SIDEWINDER_IMAGE`.

use std::env;
use std::fs::{self, Permissions};
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use flate2::read::ZlibDecoder;
use object::{Architecture, Object as _, ObjectSection as _};
use serde_json::{Value, json};
use sidewinder_e2e_pod::{self as pod, Pod, PodSpec, SecurityContext, Sidecar, SidecarSpec};
use sidewinder_e2e_support::oci::{self, Layout};
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::sidewinder::{Ended, Running};
use sidewinder_e2e_support::{ARCHITECTURE, command, paths, requirement};
use tempfile::TempDir;

/// Whoever nobody else is: what distributions without a shell use.
const USER: u32 = 65532;
/// `CAP_PERFMON` and `CAP_BPF`, as /proc/PID/status writes sets.
const TWO_CAPABILITIES: &str = "000000c000000000";
const NO_CAPABILITY: &str = "0000000000000000";
/// What the binary's extended attribute `security.capability` holds: revision 2 of `vfs_cap_data` without the bit that makes
/// capabilities effective, which permits `CAP_SYS_PTRACE`, `CAP_SYSLOG`, `CAP_PERFMON` and `CAP_BPF`, and inherits none.
const FILE_CAPABILITIES: [u32; 5] =
    [0x0200_0000, 1 << 19, 0, 1 << (34 - 32) | 1 << (38 - 32) | 1 << (39 - 32), 0];
const GRANTED: [&str; 2] = ["CAP_BPF", "CAP_PERFMON"];
const IMAGE_BYTES_MAX: u64 = 15 << 20;
const NOT_POSSIBLE_HERE: i32 = 3;
const USAGE: i32 = 2;

const CONFIGURATION: &str = "{receivers: {profiling: {error_mode: propagate}}, \
     exporters: {otlp_grpc: {endpoint: '127.0.0.1:4317', tls: {insecure: true}}}, \
     service: {pipelines: {profiles: {receivers: [profiling], exporters: [otlp_grpc]}}}}";

#[promise(Privileges)]
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

#[promise(Image, test_all)]
fn each_image_of_the_index_holds_one_small_static_binary_that_says_where_it_is_from() -> Result<()> {
    let Some(built) = built("the files of the images")? else { return Ok(()) };
    let layout = Layout::open(&built)?;
    assert_eq!(fs::read_to_string(built.join("digest"))?.trim_end(), layout.digest);
    assert_eq!(layout.index["mediaType"], "application/vnd.oci.image.index.v1+json");
    let images = layout.images()?;
    let mut architectures: Vec<_> = images.iter().map(|image| &image.architecture).collect();
    architectures.dedup();
    assert!(!images.is_empty() && architectures.len() == images.len(), "{architectures:?}");
    let descriptors = layout.index["manifests"].as_array().into_iter().flatten();
    for (image, descriptor) in images.iter().zip(descriptors) {
        let digest = fs::read_to_string(built.join(&image.architecture).join("digest"))?;
        assert_eq!(descriptor["digest"], digest.trim_end());
        check(&built, image).with_context(|| format!("the image for {}", image.architecture))?;
    }
    Ok(())
}

fn check(built: &Path, image: &oci::Image<'_>) -> Result<()> {
    let (architecture, config) = (&*image.architecture, &image.config);
    ensure!(image.size() <= IMAGE_BYTES_MAX, "the layers have {} bytes", image.size());
    ensure!(config["architecture"] == architecture && config["os"] == "linux", "{config}");
    let settings = &config["config"];
    ensure!(settings["User"] == format!("{USER}:{USER}"), "{settings}");
    ensure!(settings["Entrypoint"] == json!(["/sidewinder"]), "{settings}");
    for label in ["title", "description", "licenses", "version", "revision"] {
        let text = settings["Labels"][format!("org.opencontainers.image.{label}")].as_str();
        ensure!(text.is_some_and(|text| !text.is_empty()), "{label}: {settings}");
    }
    let version = &settings["Labels"]["org.opencontainers.image.version"];
    ensure!(version == env!("CARGO_PKG_VERSION"), "{version}");

    let root = tempfile::tempdir()?;
    image.unpack(root.path())?;
    let mut entries: Vec<_> =
        fs::read_dir(root.path())?.map(|entry| Ok(entry?.file_name())).collect::<Result<_>>()?;
    entries.sort();
    ensure!(entries == ["licenses", "sidewinder"], "{entries:?}");
    let binary = root.path().join("sidewinder");
    let capabilities = oci::file_capabilities(&binary)?;
    ensure!(capabilities == FILE_CAPABILITIES.map(u32::to_le_bytes).concat(), "{capabilities:x?}");

    let bytes = fs::read(binary)?;
    let elf = object::File::parse(&*bytes)?;
    let expected = match architecture {
        "amd64" => Architecture::X86_64,
        _ => Architecture::Aarch64,
    };
    ensure!(elf.architecture() == expected, "the binary is for {:?}", elf.architecture());
    let sections: Vec<_> = elf.sections().filter_map(|section| section.name().ok()).collect();
    ensure!(!sections.contains(&".interp") && !sections.contains(&".symtab"), "{sections:?}");
    let dependencies =
        elf.section_by_name(".dep-v0").context("the binary does not say what it is made of")?;
    check_parts(&built.join(architecture).join("sidewinder.cdx.json"), dependencies.data()?)?;

    let (debug_file, _) = elf.gnu_debuglink()?.context("no name of a debug file")?;
    let id = elf.build_id()?.context("no build ID")?;
    let id = hex::encode(id);
    let (folder, name) = id.split_at(2);
    ensure!(debug_file == format!("{name}.debug").as_bytes(), "{debug_file:?}");
    let debug_files = built.join(architecture).join("debug/.build-id");
    let debug_file = debug_files.join(folder).join(format!("{name}.debug"));
    let bytes = fs::read(&debug_file).with_context(|| format!("cannot read {}", debug_file.display()))?;
    let debug = object::File::parse(&*bytes)?;
    ensure!(debug.build_id()? == elf.build_id()? && debug.architecture() == expected, "another build's");
    ensure!(debug.section_by_name(".debug_line").is_some() && debug.symbols().count() > 0, "nothing in it");
    Ok(())
}

/// Checks that the bill of materials has the libraries in C, and all crates that the binary says it is made of: `cargo auditable`
/// compresses their list.
fn check_parts(bill: &Path, compressed: &[u8]) -> Result<()> {
    let bill: Value = serde_json::from_slice(&fs::read(bill)?)?;
    ensure!(bill["bomFormat"] == "CycloneDX", "no bill of materials: {}", bill["bomFormat"]);
    let components = bill["components"].as_array().context("no components")?;
    let has = |name: &str, is_expected: &dyn Fn(&str) -> bool| {
        let of_name = components.iter().filter(|component| component["name"] == name);
        of_name.filter_map(|component| component["version"].as_str()).any(is_expected)
    };
    for library in ["libbpf", "elfutils", "zlib", "zstd", "glibc", "gcc-runtime", "rust-std"] {
        let is_number = |version: &str| version.starts_with(|first: char| first.is_ascii_digit());
        ensure!(has(library, &is_number), "the bill of materials lacks {library}");
    }
    let mut list = String::new();
    ZlibDecoder::new(compressed).read_to_string(&mut list)?;
    let list: Value = serde_json::from_str(&list)?;
    let packages = list["packages"].as_array().context("no packages")?;
    let linked = packages.iter().filter(|package| package["kind"] != "build" && package["root"] != true);
    let mut count = 0;
    for package in linked {
        let text = |field: &str| package[field].as_str().unwrap_or_default();
        let (name, version) = (text("name"), text("version"));
        ensure!(has(name, &|listed| listed == version), "the bill of materials lacks {name} {version}");
        count += 1;
    }
    ensure!(count > 100, "the binary names {count} crates");
    Ok(())
}

#[promise(Image, test_all)]
fn images_of_other_architectures_start_emulated() -> Result<()> {
    const NAME: &str = "images of other architectures";
    let Some(built) = built(NAME)? else { return Ok(()) };
    let layout = Layout::open(&built)?;
    for image in layout.images()?.iter().filter(|image| image.architecture != ARCHITECTURE) {
        let emulator =
            format!("qemu-{}-static", if image.architecture == "arm64" { "aarch64" } else { "x86_64" });
        if !requirement::program(NAME, &emulator)? {
            continue;
        }
        let root = tempfile::tempdir()?;
        image.unpack(root.path())?;
        let binary = root.path().join("sidewinder");
        let run = |arguments: &[&str]| {
            command::run(Command::new(&emulator).arg(&binary).args(arguments).stdin(Stdio::null()))
        };
        let version = run(&["--version"])?;
        assert!(version.contains(env!("CARGO_PKG_VERSION")), "{version}");
        run(&["validate", &format!("--config=yaml:{CONFIGURATION}")])?;
        let invalid = CONFIGURATION.replace("error_mode: propagate", "error_mode: perhaps");
        assert!(run(&["validate", &format!("--config=yaml:{invalid}")]).is_err(), "{invalid} is valid");
        // It reads files of both architectures: that one, and the tests' own.
        for file in [binary.clone(), env::current_exe()?] {
            let inspected = run(&["inspect", file.to_str().context("no path in UTF-8")?])?;
            assert!(inspected.contains("rows"), "{}: {inspected}", file.display());
        }
    }
    Ok(())
}

#[promise(SidecarCapabilities, test_all)]
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

#[promise(SidecarCapabilities, test_all)]
fn without_capabilities_the_image_starts_and_says_what_is_missing() -> Result<()> {
    let Some(image) = Image::open("the image without capabilities")? else { return Ok(()) };
    let image = image.of_pods()?;
    let (code, log) = run(&image, &[], &["check"])?;
    assert!(code == Some(NOT_POSSIBLE_HERE) && log.contains("CAP_BPF"), "{code:?}: {log}");
    let (code, log) = run(&image, &[], &["health"])?;
    assert_eq!(code, Some(1), "nobody runs, and health is good: {log}");
    Ok(())
}

#[promise(Image, test_all)]
fn an_exporter_with_tls_asks_for_certificates_that_the_image_does_not_have() -> Result<()> {
    let Some(image) = Image::open("certificates in the image")? else { return Ok(()) };
    let configuration = format!("--config=yaml:{CONFIGURATION}");
    let arguments = [&*configuration, "--set=exporters.otlp_grpc.tls.insecure=false"];
    let (code, log) = run(&image.of_pods()?, &GRANTED, &arguments)?;
    assert_eq!(code, Some(USAGE), "{log}");
    assert!(log.contains("ca_file") && log.contains("/etc/ssl/certs"), "{log}");
    Ok(())
}

#[promise(Image, test_all)]
fn podman_runs_the_archive() -> Result<()> {
    let Some(image) = Image::open("the archive in podman")? else { return Ok(()) };
    let store = tempfile::tempdir()?;
    let podman = |arguments: &str| {
        let archive = image.built.join(oci::ARCHIVE);
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

/// The folder that `make image` wrote. `None` where there is none: `test` is skipped then.
fn built(test: &str) -> Result<Option<PathBuf>> {
    let built = env::var_os("SIDEWINDER_IMAGE").map(PathBuf::from);
    if built.is_none() {
        requirement::elsewhere(test, "make image-test")?;
    }
    Ok(built)
}

/// This machine's image, which `make image` built, unpacked as a container's runtime does.
#[derive(Debug)]
struct Image {
    /// What `make image` wrote.
    built: PathBuf,
    unpacked: TempDir,
}

impl Image {
    /// `None` where none is built, or nothing can run it: `test` is skipped then.
    fn open(test: &str) -> Result<Option<Self>> {
        let Some(built) = built(test)? else { return Ok(None) };
        if !sidewinder_e2e_pod::are_possible(test)? || !requirement::program(test, "podman")? {
            return Ok(None);
        }
        let layout = Layout::open(&built)?;
        let image = layout.images()?.into_iter().find(|image| image.architecture == ARCHITECTURE);
        let unpacked = tempfile::tempdir()?;
        // Other users than root have to get there.
        fs::set_permissions(unpacked.path(), Permissions::from_mode(0o755))?;
        let image = image.with_context(|| format!("the index has no image for {ARCHITECTURE}"))?;
        image.unpack(unpacked.path())?;
        Ok(Some(Self { built, unpacked }))
    }

    /// For containers of a pod, which have its entry point and no other file.
    fn of_pods(&self) -> Result<pod::Image> {
        pod::Image::of(self.unpacked.path().join("sidewinder"))
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
