//! What a process says about itself.

use std::sync::Arc;
use std::time::SystemTime;

use crate::cgroup::{ContainerId, container_id, pod_uid};
use crate::clock::time_of_ticks;
use crate::context::ProcessContext;
use crate::environment::ResourceVariables;
use crate::procfs::ProcessDir;

/// Names, owner, container and resource attributes of a process; whatever could not be read is absent.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ProcessDescription {
    /// The name of its leader, at most 15 bytes of anything.
    pub comm: Option<Box<[u8]>>,
    /// The path of its program, in its own root, without the mark of a deleted file.
    pub executable_path: Option<Box<[u8]>>,
    /// When it started (`process.creation.time`), to the kernel's clock tick of 10 ms.
    pub started_at: Option<SystemTime>,
    /// The user that it acts as (the effective user ID), as our user namespace numbers it.
    pub owner_uid: Option<u32>,
    /// Its number in each PID namespace from ours inwards; the last is what it calls itself.
    pub namespaced_pids: Vec<u32>,
    /// The container that it runs in.
    pub container_id: Option<ContainerId>,
    /// The Kubernetes pod that it runs in, where our cgroup namespace shows it.
    pub pod_uid: Option<Box<str>>,
    /// What its environment said when it started.
    pub resource: ResourceVariables,
    /// What its SDK publishes; of this the owner of the description knows, who follows it.
    pub context: Option<Arc<ProcessContext>>,
}

impl ProcessDescription {
    /// Reads what the kernel knows of a living process. Waits for nobody: its environment is left out.
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

/// The numbers of one line of `/proc/PID/status`.
fn status_numbers<'status>(status: &'status [u8], key: &[u8]) -> impl Iterator<Item = u32> + use<'status> {
    let line = status.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(key));
    line.unwrap_or_default()
        .split(u8::is_ascii_whitespace)
        .filter_map(|number| std::str::from_utf8(number).ok()?.parse().ok())
}
