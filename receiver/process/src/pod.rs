//! Which processes are of our own pod, from `/proc/PID/cgroup`.
//!
//! The containers of a pod have cgroups (version 2) next to each other, below the pod's. A cgroup namespace shows those of
//! other containers by the way to them: `/../cri-containerd-ID.scope`. The first process of a shared PID namespace is the
//! pod's own, so the cgroup that its container and ours have in common is the pod's.

use thiserror::Error;

/// Why there is no pod to stay within.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum PodBoundsError {
    /// Alone in our PID namespace.
    #[error(
        "the containers of this pod don't share a PID namespace, so that this one sees no other: set \
         shareProcessNamespace: true in the pod's spec"
    )]
    NotShared,
    /// The PID namespace of a node.
    #[error(
        "this PID namespace is the node's, not a pod's: leave hostPID out of the pod's spec, or use scope::mode: node"
    )]
    Node,
}

/// How far above our container a pod's cgroup may be: directly, or one more where a runtime puts a container's processes
/// one level deeper.
const STEPS_UP_MAX: usize = 2;

/// The cgroup of our pod, as our cgroup namespace shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PodBounds {
    /// Levels above the root of our cgroup namespace.
    steps_up: usize,
    /// Or the way down from there.
    path: Box<[Box<[u8]>]>,
    /// Levels below the root of all cgroups.
    level: usize,
}

impl PodBounds {
    /// From the content of our own `/proc/PID/cgroup` and that of process 1, and the number of levels that our own cgroup is
    /// below the root of all, which our namespace doesn't show. `None`: there are no cgroups of version 2 to tell by.
    ///
    /// # Errors
    /// If the two are not of one pod.
    pub fn find(own: &[u8], first: &[u8], own_level: usize) -> Result<Option<Self>, PodBoundsError> {
        let (Some(own), Some(first)) = (CgroupPath::parse(own), CgroupPath::parse(first)) else {
            return Ok(None);
        };
        // Our own way never leads up.
        let Some(root_level) = own_level.checked_sub(own.down.len()) else { return Ok(None) };
        if own_level == 0 {
            return Ok(None);
        }
        let together = own.down.iter().zip(&first.down).take_while(|(own, first)| own == first).count();
        let path: Box<[Box<[u8]>]> = match first.up {
            0 => own.down[..together].iter().map(|name| (*name).into()).collect(),
            _ => Box::default(),
        };
        let level = (root_level + path.len()).checked_sub(first.up).filter(|level| *level > 0);
        match level {
            Some(_) if first.up == 0 && (root_level > 0 || path.len() == own.down.len()) => {
                Err(PodBoundsError::NotShared)
            }
            Some(level) if first.up <= STEPS_UP_MAX => Ok(Some(Self { steps_up: first.up, path, level })),
            _ => Err(PodBoundsError::Node),
        }
    }

    /// Levels that the pod's cgroup is below the root of all cgroups; one at the least.
    #[must_use]
    pub fn level(&self) -> usize {
        self.level
    }

    /// Whether the process is of the pod that has this content of `/proc/PID/cgroup`.
    #[must_use]
    pub fn contain(&self, cgroup: &[u8]) -> bool {
        CgroupPath::parse(cgroup).is_some_and(|way| {
            way.up < self.steps_up
                || way.up == self.steps_up
                    && way.down.iter().zip(&self.path).filter(|(step, own)| **step == &***own).count()
                        == self.path.len()
        })
    }
}

/// A path of cgroups, from the root of our cgroup namespace.
struct CgroupPath<'a> {
    up: usize,
    down: Vec<&'a [u8]>,
}

impl<'a> CgroupPath<'a> {
    /// The line `0::/path`, of version 2.
    fn parse(cgroup: &'a [u8]) -> Option<Self> {
        let path = cgroup.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"0::/"))?;
        let mut steps = path.split(|byte| *byte == b'/').filter(|step| !step.is_empty()).peekable();
        let mut up = 0;
        while steps.next_if_eq(&b"..".as_slice()).is_some() {
            up += 1;
        }
        Some(Self { up, down: steps.collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(own: &str, first: &str, own_level: usize) -> Result<Option<PodBounds>, PodBoundsError> {
        PodBounds::find(own.as_bytes(), first.as_bytes(), own_level)
    }

    #[test]
    fn a_cgroup_namespace_shows_the_pod_as_one_level_up() {
        let pod = find("0::/\n", "0::/../cri-containerd-pause.scope\n", 4).unwrap().unwrap();
        assert_eq!(pod.level(), 3);
        for (cgroup, is_held) in [
            ("0::/", true),
            ("0::/nested", true),
            ("0::/../cri-containerd-app.scope", true),
            ("0::/../cri-containerd-app.scope/deep", true),
            ("0::/../../kubepods-pod2.slice/cri-containerd-other.scope", false),
            ("0::/../../../../system.slice/sshd.service", false),
            ("3:cpu:/\n0::/../app\n", true),
            ("3:cpu:/\n", false),
            ("", false),
        ] {
            assert_eq!(pod.contain(cgroup.as_bytes()), is_held, "{cgroup}");
        }
    }

    #[test]
    fn a_runtime_may_put_processes_one_level_deeper() {
        let pod = find("0::/", "0::/../../libpod-pause.scope/container", 5).unwrap().unwrap();
        assert_eq!(pod.level(), 3);
        assert!(pod.contain(b"0::/../../libpod-app.scope/container"));
        assert!(!pod.contain(b"0::/../../../pod2/libpod-app.scope/container"));
    }

    #[test]
    fn the_nodes_own_cgroup_namespace_shows_whole_paths() {
        let pod = find("0::/kubepods/pod1/own", "0::/kubepods/pod1/pause", 3).unwrap().unwrap();
        assert_eq!(pod.level(), 2);
        assert!(pod.contain(b"0::/kubepods/pod1/app"));
        assert!(!pod.contain(b"0::/kubepods/pod2/app"));
        assert!(!pod.contain(b"0::/kubepods"));
    }

    #[test]
    fn without_a_shared_namespace_or_with_the_nodes_there_is_no_pod() {
        for (own, first, own_level, expected) in [
            ("0::/", "0::/", 4, PodBoundsError::NotShared),
            ("0::/", "0::/init", 4, PodBoundsError::NotShared),
            ("0::/kubepods/pod1/own", "0::/kubepods/pod1/own", 3, PodBoundsError::NotShared),
            ("0::/kubepods/pod1/own", "0::/init.scope", 3, PodBoundsError::Node),
            ("0::/", "0::/../../../../init.scope", 4, PodBoundsError::Node),
            ("0::/", "0::/../../../init.scope", 4, PodBoundsError::Node),
        ] {
            assert_eq!(find(own, first, own_level), Err(expected), "{own} {first}");
        }
    }

    #[test]
    fn version_1_has_nothing_to_tell_by() {
        assert_eq!(find("4:memory:/a", "4:memory:/b", 0), Ok(None));
        assert_eq!(find("0::/", "0::/", 0), Ok(None));
    }
}
