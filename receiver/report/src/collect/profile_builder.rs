//! A profile under construction, with the names of its stacks.

use std::sync::Arc;

use sidewinder_message::LockId;
use sidewinder_process::{ContainerNames, ProcessDescription, ProcessKey};
use sidewinder_profile::{Marker, StackIndex};
use sidewinder_render::{Profile, ProfileContainer, ProfileThread};

use sidewinder_naming::{Namer, StackNames, WalkedStack};

/// Identifies a thread by its name too: a thread that changes its name is a new entry.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct ThreadKey {
    pub(super) process: ProcessKey,
    pub(super) tid: u32,
    pub(super) comm: [u8; 16],
}

impl ThreadKey {
    /// The thread as a profile shows it.
    pub(super) fn to_profile_thread(self, process: Option<&ProcessDescription>) -> ProfileThread {
        let name = self.comm.split(|byte| *byte == 0).next().unwrap_or_default();
        let name: Arc<str> = String::from_utf8_lossy(name).into();
        ProfileThread {
            process: process
                .and_then(ProcessDescription::executable_name)
                .map_or_else(|| Arc::clone(&name), |name| String::from_utf8_lossy(name).into()),
            pid: self.process.pid,
            name,
            tid: self.tid,
            container: process.map_or_else(ProfileContainer::default, container),
        }
    }
}

/// The container of a process, or its unit.
fn container(process: &ProcessDescription) -> ProfileContainer {
    let names = process.container_names.as_deref();
    let name = |name: fn(&ContainerNames) -> &Option<Box<str>>| -> Arc<str> {
        names.and_then(|names| name(names).as_deref()).unwrap_or_default().into()
    };
    let id = process.container_id.as_ref().map_or("", |id| id.as_str());
    ProfileContainer {
        id: id.into(),
        name: name(|names| &names.container),
        image: name(|names| &names.image),
        pod: name(|names| &names.pod),
        namespace: name(|names| &names.namespace),
        unit: process.systemd_unit.as_deref().filter(|_| id.is_empty()).unwrap_or_default().into(),
    }
}

/// A profile under construction, and the names of the stacks that it contains.
#[derive(Debug)]
pub(super) struct ProfileBuilder {
    pub(super) profile: Profile,
    names: StackNames,
}

impl ProfileBuilder {
    pub(super) fn new(profile: Profile) -> Self {
        Self { profile, names: StackNames::default() }
    }

    /// Names a stack. A lock that the thread waited for becomes its innermost location.
    pub(super) fn stack(
        &mut self,
        namer: &mut Namer,
        walked: WalkedStack<'_>,
        lock: Option<LockId>,
    ) -> StackIndex {
        let dictionary = &mut self.profile.dictionary;
        let stack = self.names.stack(dictionary, namer, walked);
        let Some(lock) = lock else { return stack };
        let lock = dictionary.add_marker(&Marker::Lock(lock.to_string().into()));
        let locations = [&[lock], dictionary.stack(stack)].concat();
        dictionary.add_stack(&locations)
    }

    /// Looks up all names again from now on: there may be better ones.
    pub(super) fn invalidate_names(&mut self) {
        self.names.clear();
    }

    /// The same for code that processes generate: other code may be at its address now.
    pub(super) fn invalidate_jit_names(&mut self) {
        self.names.clear_process_specific();
    }

    /// The approximate size in bytes.
    pub(super) fn bytes(&self) -> usize {
        let texts =
            |thread: &ProfileThread| thread.process.len() + thread.name.len() + thread.container.text_bytes();
        let threads = self.profile.threads.iter().map(|thread| size_of_val(thread) + texts(thread));
        self.names.bytes() + self.profile.dictionary.bytes() + threads.sum::<usize>()
    }
}
