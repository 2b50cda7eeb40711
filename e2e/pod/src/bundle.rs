//! What a container is to be, and the bundle that tells a runtime so (config.json of the OCI runtime specification).

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use sidewinder_e2e_support::command;

use super::seccomp::Seccomp;

/// Hidden from containers by the kubelet, as far as they exist.
const MASKED_PATHS: [&str; 11] = [
    "/proc/asound",
    "/proc/acpi",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
];
const READ_ONLY_PATHS: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// The first user id outside of a user namespace that stands for root inside, and how many follow.
const USER_NAMESPACE: (u32, u32) = (1_000_000, 65_536);

/// A container, as a pod's specification has it.
#[derive(Clone, Debug)]
pub struct ContainerSpec {
    /// The program and its arguments.
    pub arguments: Vec<String>,
    /// `NAME=value`.
    pub environment: Vec<String>,
    /// Files and folders of this machine in the container, read-only.
    pub mounts: Vec<Mount>,
    /// What the container may.
    pub security: SecurityContext,
    /// The CPU that it is bound to.
    pub cpu: Option<u32>,
    /// The limit of its memory in bytes.
    pub memory_limit_bytes: Option<u64>,
}

/// A file or folder of this machine in a container.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mount {
    /// Where it is here.
    pub source: PathBuf,
    /// Where it is there.
    pub destination: PathBuf,
}

impl Mount {
    /// Under the same path on both sides.
    #[must_use]
    pub fn in_place(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        Self { source: path.clone(), destination: path }
    }

    /// The shared libraries of a program; none for a static one.
    ///
    /// # Errors
    /// When `ldd` can't be run.
    pub fn libraries_of(program: &Path) -> Result<Vec<Self>> {
        Ok(command::libraries_of(program)?.into_iter().map(Self::in_place).collect())
    }
}

/// A container's `securityContext`: `allowPrivilegeEscalation: false`, `readOnlyRootFilesystem: true`, `drop: [ALL]`, and
/// these.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SecurityContext {
    /// User and group id.
    pub user: u32,
    /// Added, as the kernel names them. As in Kubernetes they are never ambient: a program that root does not run has them
    /// by file capabilities alone.
    pub capabilities: Vec<&'static str>,
    /// Which system calls there are.
    pub seccomp: Seccomp,
    /// Hidden besides what always is.
    pub masked_paths: Vec<&'static str>,
}

impl SecurityContext {
    /// An ordinary user without any capability.
    #[must_use]
    pub fn user(user: u32) -> Self {
        Self { user, capabilities: Vec::new(), seccomp: Seccomp::RuntimeDefault, masked_paths: Vec::new() }
    }
}

/// Writes a bundle into `folder`, which is empty.
///
/// # Errors
/// When it can't be written, or the seccomp profile can't be had.
pub(super) fn write(
    folder: &Path,
    spec: &ContainerSpec,
    namespaces: &[Value],
    is_in_user_namespace: bool,
) -> Result<()> {
    let root = folder.join("rootfs");
    fs::create_dir(&root)?;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?;
    fs::set_permissions(&root, fs::Permissions::from_mode(0o755))?;
    if is_in_user_namespace {
        // The runtime makes the mount points, by then as root of that namespace.
        let (first, _) = USER_NAMESPACE;
        std::os::unix::fs::chown(&root, Some(first), Some(first))?;
    }
    let text = serde_json::to_vec_pretty(&config(spec, namespaces, is_in_user_namespace)?)?;
    fs::write(folder.join("config.json"), text).context("cannot write a container's bundle")
}

fn config(spec: &ContainerSpec, namespaces: &[Value], is_in_user_namespace: bool) -> Result<Value> {
    let SecurityContext { user, capabilities, seccomp, masked_paths } = &spec.security;
    let masked_paths: Vec<&str> = MASKED_PATHS.into_iter().chain(masked_paths.iter().copied()).collect();
    let binds = spec.mounts.iter().map(|mount| {
        json!({ "destination": mount.destination, "source": mount.source, "type": "bind", "options": ["bind", "ro"] })
    });
    let mounts: Vec<Value> = file_systems().into_iter().chain(binds).collect();
    let (first, count) = USER_NAMESPACE;
    let mapping = is_in_user_namespace.then(|| json!([{ "containerID": 0, "hostID": first, "size": count }]));
    let mut linux = json!({
        "namespaces": namespaces,
        "maskedPaths": masked_paths,
        "readonlyPaths": READ_ONLY_PATHS,
        "seccomp": seccomp.to_oci(capabilities)?,
    });
    if let Some(mapping) = mapping {
        linux["uidMappings"] = mapping.clone();
        linux["gidMappings"] = mapping;
    }
    Ok(json!({
        "ociVersion": "1.0.2",
        "root": { "path": "rootfs", "readonly": true },
        "process": {
            "user": { "uid": user, "gid": user },
            "args": spec.arguments,
            "env": spec.environment,
            "cwd": "/",
            "noNewPrivileges": true,
            "capabilities": {
                "bounding": capabilities,
                "permitted": capabilities,
                "effective": capabilities,
                "inheritable": [],
                "ambient": [],
            },
        },
        "mounts": mounts,
        "linux": linux,
    }))
}

/// What every container has mounted.
fn file_systems() -> [Value; 6] {
    let mount = |destination: &str, kind: &str, options: &[&str]| json!({ "destination": destination, "type": kind, "source": kind, "options": options });
    [
        mount("/proc", "proc", &["nosuid", "noexec", "nodev"]),
        mount("/dev", "tmpfs", &["nosuid", "strictatime", "mode=755", "size=64k"]),
        mount("/dev/shm", "tmpfs", &["nosuid", "noexec", "nodev", "mode=1777", "size=64m"]),
        mount("/tmp", "tmpfs", &["nosuid", "nodev", "mode=1777", "size=64m"]),
        mount("/sys", "sysfs", &["nosuid", "noexec", "nodev", "ro"]),
        mount("/sys/fs/cgroup", "cgroup", &["nosuid", "noexec", "nodev", "relatime", "ro"]),
    ]
}
