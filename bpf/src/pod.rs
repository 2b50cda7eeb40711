//! Finds our pod's cgroup.

use std::io;
use std::mem::MaybeUninit;

use libbpf_rs::ProgramInput;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};

use crate::load::LoadError;
use crate::skeleton::cgroup::CgroupSkelBuilder;

/// The ids of the cgroups (version 2) that this thread is in, from the root down to its own. On a node with only version
/// 1, that is just the root.
///
/// # Errors
/// If the kernel refuses a program, or to run it for us (before Linux 5.10).
pub fn own_cgroups() -> Result<Vec<u64>, LoadError> {
    let refused = |doing| move |source| LoadError::Refused { doing, source };
    let mut storage = MaybeUninit::uninit();
    let open = CgroupSkelBuilder::default().open(&mut storage).map_err(refused("opening the object"))?;
    let skeleton = open.load().map_err(refused("loading"))?;
    skeleton
        .progs
        .read_own_cgroups
        .test_run(ProgramInput::default())
        .map_err(refused("finding our cgroup"))?;
    let unknown =
        || LoadError::Map { map: "our own cgroups", source: io::Error::other("the program has no memory") };
    let ids = skeleton.maps.bss_data.as_deref().ok_or_else(unknown)?.own_cgroups;
    Ok(ids.into_iter().take_while(|id| *id != 0).collect())
}
