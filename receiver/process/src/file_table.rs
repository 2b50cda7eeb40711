//! Every mapped file, identified by a small ID.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::build_id::{BuildIds, FileHash, read_build_ids, read_htlhash};
use crate::clock::monotonic_ns;
use crate::file_status::FileStatus;
use crate::id::MappedIdentity;
use crate::mapping::{Backing, ExecutableMapping, MappedFile};
use crate::open::{OpenError, open_after_exit, open_mapped};
use crate::opened_file::{Confirmation, OpenedFile};
use crate::process::Process;
use crate::procfs::{ProcRoot, ProcessDir};
use crate::vdso::vdso_image;

/// The ID of a mapped file: counted from 1, and never reused in the same run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FileId(pub u32);

/// The limits of a [`FileTable`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileTableLimits {
    /// Known files; beyond that, the least recently used one is forgotten.
    pub files: usize,
    /// Open descriptors; beyond that, the least recently used one is closed.
    pub open_files: usize,
    /// Whether files are opened on file systems that a process or another host serves (FUSE, NFS). Their servers can block
    /// us indefinitely.
    pub allow_remote: bool,
}

impl Default for FileTableLimits {
    fn default() -> Self {
        Self { files: 16_384, open_files: 4_096, allow_remote: false }
    }
}

/// The data on one file.
#[derive(Debug)]
pub struct FileEntry {
    path: Box<[u8]>,
    build_ids: BuildIds,
    hash: Option<FileHash>,
    /// The version of its content when it was opened.
    status: Option<FileStatus>,
    /// The identity under which it is found while its descriptor is open.
    reported: Option<MappedIdentity>,
    /// The reported identity and path, for a file that could not be opened.
    unopened_as: Option<Arc<MappedFile>>,
    opened: Option<OpenedFile>,
}

impl FileEntry {
    /// The path that it had when it was first seen; may be empty.
    #[must_use]
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    /// The last component of the path; may be empty.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        self.path.rsplit(|&byte| byte == b'/').next().unwrap_or_default()
    }

    /// The build IDs in its notes; none if it was never opened.
    #[must_use]
    pub fn build_ids(&self) -> &BuildIds {
        &self.build_ids
    }

    /// The hash of its ends; `None` if it was never opened.
    #[must_use]
    pub fn hash(&self) -> Option<FileHash> {
        self.hash
    }

    /// Its content, while a descriptor is open. Clones keep the descriptor open for as long as they live.
    #[must_use]
    pub fn opened(&self) -> Option<&OpenedFile> {
        self.opened.as_ref()
    }
}

/// Which file a mapping refers to.
#[derive(Debug)]
pub struct IdentifiedFile {
    /// The file.
    pub id: FileId,
    /// Whether the file was not known before.
    pub is_new: bool,
    /// Why its content can't be read through this mapping; its path is known nevertheless.
    pub unreadable: Option<OpenError>,
}

/// The files that processes map. Two processes that map the same file get the same ID.
///
/// An opened file is identified by device, inode, change time and size. While its descriptor is open, its inode can't be
/// reused for another file, so a further mapping with the same device and inode is the same file without opening it again.
#[derive(Debug)]
pub struct FileTable {
    proc_root: ProcRoot,
    limits: FileTableLimits,
    entries: HashMap<FileId, FileEntry>,
    last_id: u32,
    by_status: HashMap<FileStatus, FileId>,
    by_reported: HashMap<MappedIdentity, FileId>,
    unopened: HashMap<Arc<MappedFile>, FileId>,
    vdso: Option<FileId>,
    recency: LruOrder,
    open_recency: LruOrder,
    /// Files whose descriptors have been confirmed to have the same content since [`Self::invalidate_confirmed`].
    confirmed: HashSet<FileId>,
}

impl FileTable {
    /// An empty table that opens files through the processes below `proc_root`.
    #[must_use]
    pub fn new(proc_root: ProcRoot, limits: FileTableLimits) -> Self {
        Self {
            proc_root,
            limits,
            entries: HashMap::new(),
            last_id: 0,
            by_status: HashMap::new(),
            by_reported: HashMap::new(),
            unopened: HashMap::new(),
            vdso: None,
            recency: LruOrder::default(),
            open_recency: LruOrder::default(),
            confirmed: HashSet::new(),
        }
    }

    /// Makes the table check again whether files have been written to. Until then, an earlier check of a file is reused for
    /// all of its mappings.
    pub fn invalidate_confirmed(&mut self) {
        self.confirmed.clear();
    }

    /// Identifies the file of a mapping; `None` if it has none. Opens the file if necessary.
    pub fn identify(&mut self, process: &Process, mapping: &ExecutableMapping) -> Option<IdentifiedFile> {
        match &mapping.backing {
            Backing::File(reported) => Some(self.identify_file(process, mapping, reported)),
            Backing::Vdso => Some(self.identify_vdso()),
            Backing::Vsyscall | Backing::Uprobes | Backing::Anonymous => None,
        }
    }

    /// The data on a file; `None` once it is forgotten.
    #[must_use]
    pub fn get(&self, id: FileId) -> Option<&FileEntry> {
        self.entries.get(&id)
    }

    /// Closes the descriptor of a file, so that its file system can be unmounted and its blocks freed. All other data on it
    /// is kept.
    pub fn close(&mut self, id: FileId) {
        self.open_recency.remove(id);
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.opened = None;
            if let Some(reported) = entry.reported.take() {
                remove_if(&mut self.by_reported, &reported, id);
            }
        }
    }

    /// Forgets a file; it gets another ID if it is mapped again.
    pub fn forget(&mut self, id: FileId) {
        self.close(id);
        self.recency.remove(id);
        let Some(entry) = self.entries.remove(&id) else { return };
        if let Some(status) = entry.status {
            remove_if(&mut self.by_status, &status, id);
        }
        if let Some(reported) = entry.unopened_as {
            remove_if(&mut self.unopened, &reported, id);
        }
        if self.vdso == Some(id) {
            self.vdso = None;
        }
    }

    /// The number of known files.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether no file is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The number of open descriptors.
    #[must_use]
    pub fn open_files(&self) -> usize {
        self.open_recency.len()
    }

    fn identify_file(
        &mut self,
        process: &Process,
        mapping: &ExecutableMapping,
        reported: &Arc<MappedFile>,
    ) -> IdentifiedFile {
        if let Some(id) = self.pinned(&reported.identity) {
            return IdentifiedFile { id, is_new: false, unreadable: None };
        }
        match self.open(process, mapping, reported) {
            Ok(opened) => self.insert_opened(reported, opened),
            Err(error) => self.insert_unopened(reported, error),
        }
    }

    /// The file with this identity whose inode is held, if it has not been written to since.
    fn pinned(&mut self, reported: &MappedIdentity) -> Option<FileId> {
        let &id = self.by_reported.get(reported)?;
        let opened = self.entries.get(&id)?.opened.as_ref()?;
        if !self.confirmed.contains(&id) {
            if !opened.is_unchanged() {
                return None;
            }
            self.confirmed.insert(id);
            self.touch(id);
        }
        Some(id)
    }

    fn open(
        &self,
        process: &Process,
        mapping: &ExecutableMapping,
        reported: &MappedFile,
    ) -> Result<OpenedFile, OpenError> {
        let living =
            ProcessDir::open(&self.proc_root, process.pid()).map_err(OpenError::from).and_then(|directory| {
                let state = directory.state()?;
                let is_same =
                    process.start_ticks().is_none_or(|start_ticks| state.start_ticks == start_ticks);
                if is_same { Ok(directory.with_memory(&state)) } else { Err(OpenError::Gone) }
            });
        let opened =
            living.and_then(|directory| open_mapped(&directory, mapping, reported, self.limits.allow_remote));
        match opened {
            Err(OpenError::Gone | OpenError::NotFound) => self.open_after_exit(process, reported, opened),
            opened => opened,
        }
    }

    /// Looks for the file in the root of an ended process's parent, and in ours.
    fn open_after_exit(
        &self,
        process: &Process,
        reported: &MappedFile,
        failed: Result<OpenedFile, OpenError>,
    ) -> Result<OpenedFile, OpenError> {
        let parent = process.parent().and_then(|parent| ProcessDir::open(&self.proc_root, parent).ok());
        let roots = [parent, ProcessDir::own().ok()];
        let known_for = Duration::from_nanos(monotonic_ns().saturating_sub(process.known_since_ns));
        match SystemTime::now().checked_sub(known_for) {
            Some(known_since) => {
                open_after_exit(roots.iter().flatten(), reported, known_since, self.limits.allow_remote)
                    .or(failed)
            }
            None => failed,
        }
    }

    fn insert_opened(&mut self, reported: &MappedFile, opened: OpenedFile) -> IdentifiedFile {
        let status = opened.status();
        let known = status.and_then(|status| self.by_status.get(&status).copied());
        let id = known.unwrap_or_else(|| {
            self.add(FileEntry {
                path: reported.path().into(),
                build_ids: read_build_ids(&opened).unwrap_or_default(),
                hash: read_htlhash(&opened, opened.size_bytes()).ok(),
                status,
                reported: None,
                unopened_as: None,
                opened: None,
            })
        });
        self.keep_open(id, &reported.identity, opened);
        self.touch(id);
        IdentifiedFile { id, is_new: known.is_none(), unreadable: None }
    }

    /// Keeps the descriptor, and closes others if there are too many. Only an identity confirmed by the kernel may be used
    /// to identify the file in other processes.
    fn keep_open(&mut self, id: FileId, reported: &MappedIdentity, opened: OpenedFile) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        if let Some(status) = entry.status {
            self.by_status.insert(status, id);
        }
        if opened.confirmation() == Confirmation::Exact && matches!(reported, MappedIdentity::Inode { .. }) {
            if let Some(before) = entry.reported.replace(reported.clone()) {
                remove_if(&mut self.by_reported, &before, id);
            }
            self.by_reported.insert(reported.clone(), id);
        }
        entry.opened = Some(opened);
        self.confirmed.insert(id);
        self.open_recency.touch(id);
        while self.open_recency.len() > self.limits.open_files.max(1) {
            let Some(oldest) = self.open_recency.oldest() else { break };
            self.close(oldest);
        }
    }

    fn insert_unopened(&mut self, reported: &Arc<MappedFile>, error: OpenError) -> IdentifiedFile {
        let known = self.unopened.get(reported).copied();
        let id = known.unwrap_or_else(|| {
            let id = self.add(FileEntry {
                path: reported.path().into(),
                build_ids: BuildIds::default(),
                hash: None,
                status: None,
                reported: None,
                unopened_as: Some(Arc::clone(reported)),
                opened: None,
            });
            self.unopened.insert(Arc::clone(reported), id);
            id
        });
        self.touch(id);
        IdentifiedFile { id, is_new: known.is_none(), unreadable: Some(error) }
    }

    fn identify_vdso(&mut self) -> IdentifiedFile {
        if let Some(id) = self.vdso {
            self.touch(id);
            return IdentifiedFile { id, is_new: false, unreadable: None };
        }
        let (opened, unreadable) = match vdso_image() {
            Ok(image) => (Some(OpenedFile::from_memory(image.into())), None),
            Err(error) => (None, Some(OpenError::Io(error))),
        };
        let id = self.add(FileEntry {
            path: b"[vdso]".as_slice().into(),
            build_ids: opened.as_ref().and_then(|image| read_build_ids(image).ok()).unwrap_or_default(),
            hash: opened.as_ref().and_then(|image| read_htlhash(image, image.size_bytes()).ok()),
            status: None,
            reported: None,
            unopened_as: None,
            opened,
        });
        self.vdso = Some(id);
        IdentifiedFile { id, is_new: true, unreadable }
    }

    fn add(&mut self, entry: FileEntry) -> FileId {
        while self.entries.len() >= self.limits.files.max(1) {
            let Some(oldest) = self.recency.oldest() else { break };
            self.forget(oldest);
        }
        self.last_id += 1;
        let id = FileId(self.last_id);
        self.entries.insert(id, entry);
        self.recency.touch(id);
        id
    }

    fn touch(&mut self, id: FileId) {
        self.recency.touch(id);
        if self.open_recency.contains(id) {
            self.open_recency.touch(id);
        }
    }
}

/// Removes the entry of a key, unless it refers to another file by now.
fn remove_if<Key: Hash + Eq>(map: &mut HashMap<Key, FileId>, key: &Key, id: FileId) {
    if map.get(key) == Some(&id) {
        map.remove(key);
    }
}

/// The order of last use of files.
#[derive(Debug, Default)]
struct LruOrder {
    by_use: BTreeMap<u64, FileId>,
    last_use: HashMap<FileId, u64>,
    uses: u64,
}

impl LruOrder {
    fn touch(&mut self, id: FileId) {
        self.uses += 1;
        if let Some(before) = self.last_use.insert(id, self.uses) {
            self.by_use.remove(&before);
        }
        self.by_use.insert(self.uses, id);
    }

    fn remove(&mut self, id: FileId) {
        if let Some(last) = self.last_use.remove(&id) {
            self.by_use.remove(&last);
        }
    }

    fn contains(&self, id: FileId) -> bool {
        self.last_use.contains_key(&id)
    }

    fn oldest(&self) -> Option<FileId> {
        self.by_use.first_key_value().map(|(_, &id)| id)
    }

    fn len(&self) -> usize {
        self.by_use.len()
    }
}
