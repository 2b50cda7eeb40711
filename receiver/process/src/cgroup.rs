//! Which container a process belongs to, from `/proc/PID/cgroup`.
//!
//! There is no interface for this; every runtime writes the container's ID into the name of its cgroup:
//! `/docker/ID`, `/kubepods/burstable/podUID/ID`, `...-podUID.slice/cri-containerd-ID.scope`,
//! `...podUID.slice:cri-containerd:ID`, `libpod-ID.scope/container`; inside a cgroup namespace `/../cri-containerd-ID.scope`.

use std::fmt;

/// The ID of a container: 64 hexadecimal digits.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContainerId(Box<str>);

/// Digits of the ID that containerd, CRI-O, Docker and podman give.
const CONTAINER_ID_DIGITS: usize = 64;

impl ContainerId {
    /// The digits.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ContainerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ContainerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ContainerId({self})")
    }
}

/// The innermost container named in the content of `/proc/PID/cgroup`.
#[must_use]
pub fn container_id(cgroup: &[u8]) -> Option<ContainerId> {
    paths(cgroup).find_map(|path| path.rsplit(|&byte| byte == b'/').find_map(container_of_component))
}

/// The UID of the Kubernetes pod named in the content of `/proc/PID/cgroup`, with hyphens.
#[must_use]
pub fn pod_uid(cgroup: &[u8]) -> Option<Box<str>> {
    paths(cgroup).find_map(|path| path.rsplit(|&byte| byte == b'/').find_map(pod_of_component))
}

/// The path of each hierarchy: `number:controllers:path`.
fn paths(cgroup: &[u8]) -> impl Iterator<Item = &[u8]> {
    cgroup.split(|&byte| byte == b'\n').filter_map(|line| line.splitn(3, |&byte| byte == b':').nth(2))
}

/// `ID`, `runtime-ID.scope` or `slice:runtime:ID`. The monitor beside a container bears its ID too, but
/// isn't in it.
fn container_of_component(component: &[u8]) -> Option<ContainerId> {
    let name = component.strip_suffix(b".scope").unwrap_or(component);
    let (runtime, id) = name.split_at_checked(name.len().checked_sub(CONTAINER_ID_DIGITS)?)?;
    let is_separated = runtime.is_empty() || runtime.ends_with(b"-") || runtime.ends_with(b":");
    let is_monitor = runtime.ends_with(b"conmon-");
    let id = std::str::from_utf8(id).ok()?;
    let is_id = id.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    (is_separated && !is_monitor && is_id).then(|| ContainerId(id.into()))
}

/// `podUID`, or `kubepods-class-podU_I_D.slice` where hyphens would nest slices.
fn pod_of_component(component: &[u8]) -> Option<Box<str>> {
    const UID_BYTES: usize = 36;
    let component = component.split(|&byte| byte == b':').next()?;
    let name = component.strip_suffix(b".slice").unwrap_or(component);
    let (before, uid) = name.split_at_checked(name.len().checked_sub(UID_BYTES)?)?;
    let prefix = before.strip_suffix(b"pod")?;
    if !(prefix.is_empty() || prefix.ends_with(b"-")) {
        return None;
    }
    let is_uid = uid.iter().enumerate().all(|(at, &byte)| match at {
        8 | 13 | 18 | 23 => matches!(byte, b'-' | b'_'),
        _ => byte.is_ascii_hexdigit(),
    });
    is_uid.then(|| String::from_utf8_lossy(uid).replace('_', "-").into())
}
