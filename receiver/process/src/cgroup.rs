//! The container of a process, from `/proc/PID/cgroup`.
//!
//! There is no interface for this; every runtime writes the container's ID into the name of its cgroup:
//! `/docker/ID`, `/kubepods/burstable/podUID/ID`, `...-podUID.slice/cri-containerd-ID.scope`,
//! `...podUID.slice:cri-containerd:ID`, `libpod-ID.scope/container`; inside a cgroup namespace
//! `/../cri-containerd-ID.scope`.

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

/// The innermost unit of systemd named in the content of `/proc/PID/cgroup`: a service or a scope (systemd.unit(5)).
#[must_use]
pub fn systemd_unit(cgroup: &[u8]) -> Option<Box<str>> {
    const NAME_BYTES_MAX: usize = 255;
    let is_unit = |component: &&[u8]| {
        let name = component.strip_suffix(b".service").or_else(|| component.strip_suffix(b".scope"));
        name.is_some_and(|name| !name.is_empty()) && component.len() <= NAME_BYTES_MAX
    };
    let unit = paths(cgroup).find_map(|path| path.rsplit(|&byte| byte == b'/').find(is_unit))?;
    Some(String::from_utf8_lossy(unit).into())
}

/// The user whose session the content of `/proc/PID/cgroup` names: `user-UID.slice`.
#[must_use]
pub fn session_uid(cgroup: &[u8]) -> Option<u32> {
    paths(cgroup).find_map(|path| {
        path.split(|&byte| byte == b'/').find_map(|component| {
            let uid = component.strip_prefix(b"user-")?.strip_suffix(b".slice")?;
            std::str::from_utf8(uid).ok()?.parse().ok()
        })
    })
}

/// The path of each hierarchy: `id:controllers:path`.
fn paths(cgroup: &[u8]) -> impl Iterator<Item = &[u8]> {
    cgroup.split(|&byte| byte == b'\n').filter_map(|line| line.splitn(3, |&byte| byte == b':').nth(2))
}

/// `ID`, `runtime-ID.scope` or `slice:runtime:ID`. The monitor beside a container also has its ID in its name, but is not in
/// the container.
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

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae";
    const UID: &str = "0a1b2c3d-0123-4567-89ab-0123456789ab";

    #[test]
    fn each_runtimes_way_to_write_a_container_is_read() {
        let underscored = UID.replace('-', "_");
        for path in [
            format!("0::/docker/{ID}"),
            format!("0::/system.slice/docker-{ID}.scope"),
            format!("0::/system.slice/docker-{ID}.scope/init.scope"),
            format!("0::/kubepods/burstable/pod{UID}/{ID}"),
            format!("0::/kubepods.slice/kubepods-pod{underscored}.slice/cri-containerd-{ID}.scope"),
            format!(
                "0::/kubepods.slice/kubepods-besteffort-pod{underscored}.slice/crio-{ID}.scope/container"
            ),
            format!("0::/machine.slice/libpod-{ID}.scope/container"),
            format!(
                "0::/system.slice/containerd.service/kubepods-burstable-pod{underscored}.slice:cri-containerd:{ID}"
            ),
            format!("0::/../cri-containerd-{ID}.scope"),
            format!("0::/../../pod{UID}/{ID}"),
            format!("12:cpu,cpuacct:/\n4:memory:/docker/{ID}\n0::/"),
        ] {
            assert_eq!(container_id(path.as_bytes()).expect(&path).as_str(), ID);
            if path.contains("pod") && !path.contains("libpod") {
                assert_eq!(pod_uid(path.as_bytes()).as_deref(), Some(UID), "{path}");
            }
        }
    }

    #[test]
    fn units_and_users_of_systemd_are_read() {
        for (path, unit, uid) in [
            ("0::/system.slice/nginx.service", Some("nginx.service"), None),
            ("0::/system.slice/system-getty.slice/getty@tty1.service", Some("getty@tty1.service"), None),
            ("0::/user.slice/user-1000.slice/session-2.scope", Some("session-2.scope"), Some(1000)),
            (
                "0::/user.slice/user-1000.slice/user@1000.service/app.slice/app-shop.service/part",
                Some("app-shop.service"),
                Some(1000),
            ),
            ("1:name=systemd:/system.slice/cron.service\n0::/", Some("cron.service"), None),
            ("0::/", None, None),
            ("0::/user.slice/user-x.slice/.service", None, None),
        ] {
            assert_eq!(systemd_unit(path.as_bytes()).as_deref(), unit, "{path}");
            assert_eq!(session_uid(path.as_bytes()), uid, "{path}");
        }
    }

    #[test]
    fn the_innermost_container_counts() {
        let outer = ID.replace('2', "3");
        let path = format!("0::/docker/{outer}/docker/{ID}");
        assert_eq!(container_id(path.as_bytes()).unwrap().as_str(), ID);
    }

    #[test]
    fn what_is_no_container_is_none() {
        for path in [
            String::new(),
            "0::/".into(),
            "0::/user.slice/user-1000.slice/session-2.scope".into(),
            format!("0::/machine.slice/libpod-conmon-{ID}.scope"),
            format!("0::/{ID}0"),
            format!("0::/x{ID}"),
            format!("0::/{}", ID.to_uppercase()),
        ] {
            assert_eq!(container_id(path.as_bytes()), None, "{path}");
            assert_eq!(pod_uid(path.as_bytes()), None, "{path}");
        }
    }
}
