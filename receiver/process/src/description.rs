//! Names, owner and resource attributes of a process.

use std::sync::Arc;
use std::time::SystemTime;

use crate::cgroup::{ContainerId, container_id, pod_uid, session_uid, systemd_unit};
use crate::clock::time_of_ticks;
use crate::context::ProcessContext;
use crate::environment::ResourceVariables;
use crate::procfs::ProcessDir;

/// Names, owner, container and resource attributes of a process. Data that could not be read is absent.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ProcessDescription {
    /// The name of its leader, at most 15 arbitrary bytes.
    pub comm: Option<Box<[u8]>>,
    /// The path of its program, in its own root, without the suffix of a deleted file.
    pub executable_path: Option<Box<[u8]>>,
    /// When it started (`process.creation.time`), with the precision of the kernel's clock tick of 10 ms.
    pub started_at: Option<SystemTime>,
    /// Its effective user ID, in our user namespace.
    pub owner_uid: Option<u32>,
    /// Its PID in each PID namespace, from ours inwards; the last is its PID in its own namespace.
    pub namespaced_pids: Vec<u32>,
    /// Its container.
    pub container_id: Option<ContainerId>,
    /// Its Kubernetes pod, if it is visible from our cgroup namespace.
    pub pod_uid: Option<Box<str>>,
    /// The names of its container and its pod. The owner of the description sets them, because they are in files.
    pub container_names: Option<Arc<ContainerNames>>,
    /// The unit of systemd that it runs in.
    pub systemd_unit: Option<Box<str>>,
    /// The user whose session it runs in.
    pub session_uid: Option<u32>,
    /// The attributes in its environment at its start.
    pub resource: ResourceVariables,
    /// The attributes that its SDK publishes. The owner of the description sets them, because it follows their changes.
    pub context: Option<Arc<ProcessContext>>,
}

/// What people call a container. Names that are not known are absent.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ContainerNames {
    /// Its own name.
    pub container: Option<Box<str>>,
    /// The name of its image.
    pub image: Option<Box<str>>,
    /// The name of its Kubernetes pod.
    pub pod: Option<Box<str>>,
    /// The namespace of the pod.
    pub namespace: Option<Box<str>>,
}

impl ContainerNames {
    /// Adds the names of others that are not known yet.
    pub fn add(&mut self, others: Option<Self>) {
        let Some(others) = others else { return };
        let names = [&mut self.container, &mut self.image, &mut self.pod, &mut self.namespace];
        let others = [others.container, others.image, others.pod, others.namespace];
        for (name, other) in names.into_iter().zip(others) {
            if name.is_none() {
                *name = other;
            }
        }
    }
}

impl ProcessDescription {
    /// Reads the kernel's data on a living process. Never blocks: the environment is not read.
    #[must_use]
    pub fn read(process: &ProcessDir) -> Self {
        let state = process.state().ok();
        let status = process.read("status").unwrap_or_default();
        let cgroup = process.read("cgroup").unwrap_or_default();
        Self {
            started_at: state.as_ref().and_then(|state| time_of_ticks(state.start_ticks)),
            comm: state.map(|state| state.comm),
            executable_path: process
                .link("exe")
                .ok()
                .map(|path| path.strip_suffix(b" (deleted)").unwrap_or(&path).into()),
            owner_uid: status_numbers(&status, b"Uid:").nth(1),
            namespaced_pids: status_numbers(&status, b"NSpid:").collect(),
            container_id: container_id(&cgroup),
            pod_uid: pod_uid(&cgroup),
            container_names: None,
            systemd_unit: systemd_unit(&cgroup),
            session_uid: session_uid(&cgroup),
            resource: ResourceVariables::default(),
            context: None,
        }
    }

    /// The last part of the program's path.
    #[must_use]
    pub fn executable_name(&self) -> Option<&[u8]> {
        self.executable_path.as_deref()?.rsplit(|&byte| byte == b'/').next()
    }
}

/// The numbers in one line of `/proc/PID/status`, which begins with `key`, as `NSpid:`.
pub fn status_numbers<'status>(
    status: &'status [u8],
    key: &[u8],
) -> impl Iterator<Item = u32> + use<'status> {
    let line = status.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(key));
    line.unwrap_or_default()
        .split(u8::is_ascii_whitespace)
        .filter_map(|number| std::str::from_utf8(number).ok()?.parse().ok())
}
