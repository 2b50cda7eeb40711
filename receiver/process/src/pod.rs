//! Which processes belong to our own pod, from `/proc/PID/cgroup`.
//!
//! The containers of a pod have sibling cgroups (version 2), below the pod's cgroup. A cgroup namespace shows the cgroups of
//! other containers as relative paths: `/../cri-containerd-ID.scope`. The first process of a shared PID namespace is the
//! pod's own, so the common ancestor of its cgroup and ours is the pod's cgroup.

use thiserror::Error;

/// Why our pod can't be determined.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum PodBoundsError {
    /// Our container does not share its PID namespace.
    #[error(
        "the containers of this pod don't share a PID namespace, so this one can't see the others: set \
         shareProcessNamespace: true in the pod's spec"
    )]
    NotShared,
    /// We are in the PID namespace of a node.
    #[error(
        "this PID namespace is the node's, not a pod's: remove hostPID from the pod's spec, or use scope::mode: node"
    )]
    Node,
}

/// The maximum distance of a pod's cgroup above our container: one level, or two if a runtime puts a container's processes
/// one level deeper.
const STEPS_UP_MAX: usize = 2;

/// The cgroup of our pod, relative to the root of our cgroup namespace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PodBounds {
    /// Levels above the root of our cgroup namespace.
    steps_up: usize,
    /// The path down from there.
    path: Box<[Box<[u8]>]>,
    /// Levels below the root of all cgroups.
    level: usize,
}

impl PodBounds {
    /// Determines our pod from the content of our own `/proc/PID/cgroup` and that of process 1, and the depth of our own
    /// cgroup below the root of all cgroups, which our namespace doesn't show. `None` if there are no version 2 cgroups.
    ///
    /// # Errors
    /// If the two are not in the same pod.
    pub fn find(own: &[u8], first: &[u8], own_level: usize) -> Result<Option<Self>, PodBoundsError> {
        let (Some(own), Some(first)) = (CgroupPath::parse(own), CgroupPath::parse(first)) else {
            return Ok(None);
        };
        // Our own path never leads up.
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

    /// The depth of the pod's cgroup below the root of all cgroups; at least one.
    #[must_use]
    pub fn level(&self) -> usize {
        self.level
    }

    /// Whether the process with this content of `/proc/PID/cgroup` belongs to the pod.
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

/// A cgroup path, relative to the root of our cgroup namespace.
struct CgroupPath<'a> {
    up: usize,
    down: Vec<&'a [u8]>,
}

impl<'a> CgroupPath<'a> {
    /// The line `0::/path` of version 2.
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
