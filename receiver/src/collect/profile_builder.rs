//! Builds the tables of a profile: binaries, frames and stacks, each of them once, with their names.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;

use sidewinder_bpf::Outcome;
use sidewinder_process::{ContainerNames, ProcessDescription, ProcessKey};
use sidewinder_render::{
    BinaryIndex, FrameIndex, FrameType, Marker, Profile, ProfileBinary, ProfileContainer, ProfileFrame,
    ProfileSpan, ProfileThread, StackIndex, Truncation,
};

use crate::naming::{CodeOrigin, FrameLocation, NamedFrame, Namer, missing_stack, truncation};
use crate::sampling::message::{LockId, Stack, is_process_specific};

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

/// A stack's ID, the outcome of its walk and the lock that the thread waited for; with the process if the stack has frames that
/// are valid in one process only.
type WalkedStackKey = (Option<u64>, Outcome, Option<LockId>, Option<ProcessKey>);

/// A profile under construction, and the indices of what it contains.
#[derive(Debug)]
pub(super) struct ProfileBuilder {
    /// The tables.
    pub(super) profile: Profile,
    /// By file ID.
    pub(super) binary_indices: HashMap<u32, BinaryIndex>,
    pub(super) kernel: Option<BinaryIndex>,
    pub(super) stack_indices: HashMap<WalkedStackKey, StackIndex>,
    /// By frames: different walks may have the same named frames.
    named_stacks: HashMap<Arc<[FrameIndex]>, StackIndex>,
    /// The named frames of a walked frame, none if it is omitted; with the process if the frame is valid in one process only.
    frames_by_location: HashMap<(sidewinder_bpf::RawFrame, Option<ProcessKey>), Vec<FrameIndex>>,
    frame_indices: HashMap<FrameKey, FrameIndex>,
    /// Each name and path of frames, once.
    texts: HashSet<Arc<str>>,
    /// Their size in bytes.
    text_bytes: usize,
    /// The total length of all stacks.
    stack_frames: usize,
}

/// What tells frames apart.
#[derive(PartialEq, Eq, Hash, Debug)]
struct FrameKey {
    binary: Option<BinaryIndex>,
    /// The address, or, without one, a hash of the path.
    position: u64,
    name: Arc<str>,
    line: u32,
    frame_type: FrameType,
    marker: Option<Marker>,
    is_guessed: bool,
    is_inlined: bool,
}

impl ProfileBuilder {
    pub(super) fn new(profile: Profile) -> Self {
        Self {
            profile,
            binary_indices: HashMap::new(),
            kernel: None,
            stack_indices: HashMap::new(),
            named_stacks: HashMap::new(),
            frames_by_location: HashMap::new(),
            frame_indices: HashMap::new(),
            texts: HashSet::new(),
            text_bytes: 0,
            stack_frames: 0,
        }
    }

    /// Names a stack that was sampled at a time of `CLOCK_MONOTONIC`. `walked` is `None` if its frames never arrived. A lock that
    /// the thread waited for becomes the innermost frame.
    pub(super) fn stack(
        &mut self,
        namer: &mut Namer,
        process: ProcessKey,
        walked: Option<&Stack>,
        (outcome, lock): (Outcome, Option<LockId>),
        at_ns: u64,
    ) -> StackIndex {
        let process_scope = walked.filter(|stack| stack.is_process_specific()).map(|_| process);
        let key = (walked.map(|stack| stack.id), outcome, lock, process_scope);
        if let Some(index) = self.stack_indices.get(&key) {
            return *index;
        }
        let lock = lock.map(|lock| Marker::Lock(lock.to_string().into()));
        let mut frames: Vec<_> = lock.map(|lock| self.marker_frame(lock)).into_iter().collect();
        let mut has_provisional = false;
        match walked {
            Some(stack) => {
                namer.read_functions(process, stack);
                for frame in &stack.frames {
                    has_provisional |= self.add_named_frame(namer, process, *frame, at_ns, &mut frames);
                }
                frames.extend(truncation(outcome).map(|truncation| self.truncation_frame(truncation)));
            }
            None => frames.push(self.truncation_frame(missing_stack())),
        }
        let index = self.intern_stack(frames);
        if !has_provisional {
            self.stack_indices.insert(key, index);
        }
        index
    }

    pub(super) fn intern_stack(&mut self, frames: Vec<FrameIndex>) -> StackIndex {
        let (stacks, stack_frames) = (&mut self.profile.stacks, &mut self.stack_frames);
        *self.named_stacks.entry(frames.into()).or_insert_with_key(|frames| {
            stacks.push(frames.to_vec());
            *stack_frames += frames.len();
            StackIndex(stacks.len() as u32 - 1)
        })
    }

    /// Looks up all names again from now on: there may be better ones.
    pub(super) fn invalidate_names(&mut self) {
        self.frames_by_location.clear();
        self.stack_indices.clear();
    }

    /// The same for code that processes generate: other code may be at its address now.
    pub(super) fn invalidate_jit_names(&mut self) {
        self.frames_by_location.retain(|(_, process), _| process.is_none());
        self.stack_indices.retain(|(_, _, _, process), _| process.is_none());
    }

    /// The approximate size in bytes.
    pub(super) fn bytes(&self) -> usize {
        // A hash map is three quarters full on average.
        let entries = size_of::<(FrameKey, FrameIndex)>() * self.frame_indices.len()
            + size_of::<Arc<str>>() * self.texts.len()
            + size_of::<(WalkedStackKey, StackIndex)>() * self.stack_indices.len()
            + size_of::<(Arc<[FrameIndex]>, StackIndex)>() * self.named_stacks.len()
            + size_of::<(sidewinder_bpf::RawFrame, Option<ProcessKey>, Vec<FrameIndex>)>()
                * self.frames_by_location.len();
        let tables = size_of::<ProfileFrame>() * self.profile.frames.len()
            + size_of::<Vec<FrameIndex>>() * self.profile.stacks.len()
            + 2 * size_of::<FrameIndex>() * self.stack_frames
            + size_of::<ProfileThread>() * self.profile.threads.len()
            + size_of::<ProfileSpan>() * self.profile.spans.len();
        // Those of our own profiles are short, which others' need not be.
        let binaries =
            self.profile.binaries.iter().map(|binary| size_of::<ProfileBinary>() + text_bytes(binary));
        let texts =
            |thread: &ProfileThread| thread.process.len() + thread.name.len() + thread.container.text_bytes();
        let threads = self.profile.threads.iter().map(texts);
        entries / 3 * 4 + tables + self.text_bytes + binaries.sum::<usize>() + threads.sum::<usize>()
    }

    /// Appends the named frames of a walked frame, leaf first: several if calls were inlined, none if it is omitted. Returns
    /// whether they may have better names the next time.
    fn add_named_frame(
        &mut self,
        namer: &mut Namer,
        process: ProcessKey,
        frame: sidewinder_bpf::RawFrame,
        at_ns: u64,
        frames: &mut Vec<FrameIndex>,
    ) -> bool {
        let key = (frame, is_process_specific(&frame).then_some(process));
        if let Some(known) = self.frames_by_location.get(&key) {
            frames.extend(known);
            return false;
        }
        let named = namer.resolve(process, frame, at_ns);
        let named_frames = named.as_ref().map(|named| self.frames(named)).unwrap_or_default();
        frames.extend(&named_frames);
        let is_provisional = named.is_some_and(|named| named.is_provisional);
        if !is_provisional {
            self.frames_by_location.insert(key, named_frames);
        }
        is_provisional
    }

    /// One frame for each inlined call, leaf first.
    fn frames(&mut self, named: &NamedFrame) -> Vec<FrameIndex> {
        let (binary, address) = match &named.location {
            FrameLocation::File { id, facts, svma, .. } => {
                let binaries = &mut self.profile.binaries;
                let binary = *self.binary_indices.entry(id.0).or_insert_with(|| {
                    let build_id = facts.build_ids.gnu.as_ref().map(ToString::to_string);
                    let htlhash = facts.hash.map(|hash| hash.to_string());
                    binaries.push(ProfileBinary {
                        path: facts.path.clone(),
                        build_id,
                        htlhash,
                        ..ProfileBinary::default()
                    });
                    BinaryIndex(binaries.len() as u32 - 1)
                });
                (Some(binary), svma.0)
            }
            FrameLocation::Kernel { address } => {
                let binaries = &mut self.profile.binaries;
                let kernel = *self.kernel.get_or_insert_with(|| {
                    binaries.push(ProfileBinary { path: "[kernel]".to_owned(), ..ProfileBinary::default() });
                    BinaryIndex(binaries.len() as u32 - 1)
                });
                (Some(kernel), *address)
            }
            FrameLocation::Anonymous { address } => (None, *address),
            FrameLocation::Vm => (None, 0),
        };
        let location = BorrowedFrame {
            is_named: true,
            binary,
            frame_type: named.origin.frame_type(),
            is_generated: named.origin.is_generated(),
            marker: named.is_marker.then_some(Marker::Words),
            address,
            is_guessed: named.is_guessed,
            ..BorrowedFrame::default()
        };
        if named.functions.is_empty() {
            let is_named =
                matches!(named.origin, CodeOrigin::Kernel | CodeOrigin::Jit(_) | CodeOrigin::Interpreted(_));
            return vec![self.intern_frame(&BorrowedFrame { name: &named.name, is_named, ..location })];
        }
        let outermost = named.functions.len() - 1;
        let functions = named.functions.iter().enumerate().map(|(number, function)| BorrowedFrame {
            name: &function.name.demangled,
            system_name: &function.name.system_name,
            path: function.path.as_deref().unwrap_or_default(),
            line: function.line,
            column: function.column,
            is_inlined: number < outermost,
            ..location.clone()
        });
        functions.map(|function| self.intern_frame(&function)).collect()
    }

    fn truncation_frame(&mut self, truncation: Truncation) -> FrameIndex {
        self.marker_frame(Marker::Truncated(truncation.into()))
    }

    /// The frame of a marker that is not code.
    fn marker_frame(&mut self, marker: Marker) -> FrameIndex {
        self.intern_frame(&BorrowedFrame::from(&ProfileFrame::from_marker(marker)))
    }

    /// The index of a frame, which is added if it is new.
    pub(super) fn intern_frame(&mut self, frame: &BorrowedFrame<'_>) -> FrameIndex {
        let BorrowedFrame { binary, address, line, frame_type, is_guessed, is_inlined, .. } = *frame;
        let key = FrameKey {
            binary,
            position: if address == 0 { path_hasher().hash_one(frame.path) } else { address },
            name: self.text(frame.name),
            line,
            frame_type,
            marker: frame.marker.clone(),
            is_guessed,
            is_inlined,
        };
        if let Some(index) = self.frame_indices.get(&key) {
            return *index;
        }
        let is_symbol_same = *frame.system_name == *key.name;
        let system_name = if is_symbol_same { Arc::default() } else { self.text(frame.system_name) };
        let path = self.text(frame.path);
        let frames = &mut self.profile.frames;
        frames.push(ProfileFrame {
            name: Arc::clone(&key.name),
            is_named: frame.is_named,
            system_name,
            binary,
            frame_type,
            is_generated: frame.is_generated,
            marker: frame.marker.clone(),
            address,
            path,
            line,
            column: frame.column,
            is_inlined,
            is_guessed,
        });
        let index = FrameIndex(frames.len() as u32 - 1);
        self.frame_indices.insert(key, index);
        index
    }

    /// The only copy of a text.
    fn text(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.texts.get(text) {
            return Arc::clone(known);
        }
        let new: Arc<str> = text.into();
        self.text_bytes += text.len();
        self.texts.insert(Arc::clone(&new));
        new
    }
}

/// The size of a binary's texts in bytes.
fn text_bytes(binary: &ProfileBinary) -> usize {
    let optional = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    binary.path.len() + optional(&binary.build_id) + optional(&binary.htlhash)
}

/// Tells apart functions of the same name in different files, if they have no address.
fn path_hasher() -> BuildHasherDefault<DefaultHasher> {
    BuildHasherDefault::default()
}

/// A frame whose texts are borrowed. An empty text is unknown, and so is line 0.
#[derive(Clone, Default)]
pub(super) struct BorrowedFrame<'a> {
    pub(super) name: &'a str,
    pub(super) is_named: bool,
    pub(super) system_name: &'a str,
    pub(super) binary: Option<BinaryIndex>,
    pub(super) frame_type: FrameType,
    pub(super) is_generated: bool,
    pub(super) marker: Option<Marker>,
    pub(super) address: u64,
    pub(super) path: &'a str,
    pub(super) line: u32,
    pub(super) column: u32,
    pub(super) is_inlined: bool,
    pub(super) is_guessed: bool,
}

impl<'a> From<&'a ProfileFrame> for BorrowedFrame<'a> {
    fn from(frame: &'a ProfileFrame) -> Self {
        Self {
            name: &frame.name,
            is_named: frame.is_named,
            system_name: &frame.system_name,
            binary: frame.binary,
            frame_type: frame.frame_type,
            is_generated: frame.is_generated,
            marker: frame.marker.clone(),
            address: frame.address,
            path: &frame.path,
            line: frame.line,
            column: frame.column,
            is_inlined: frame.is_inlined,
            is_guessed: frame.is_guessed,
        }
    }
}
