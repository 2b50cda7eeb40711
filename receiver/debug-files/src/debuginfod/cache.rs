//! Downloaded files on disk, in the directory and the layout of elfutils' client: `BUILD-ID/debuginfo`. What gdb or perf have
//! downloaded is used, and the other way round.
//!
//! An empty file says that no server has it: for ten minutes. Files are written under another name, checked, and then renamed.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use rustix::fs::OFlags;
use sha2::{Digest as _, Sha256};
use sidewinder_base::disk_cache::{
    CachedFile, SCANNED_MAX, UNFINISHED_MAX, UNFINISHED_PREFIX, UnfinishedFile, remove_oldest,
};

use super::artifact::{Artifact, BuildIdText};

/// How long it is remembered that no server has a file, as by elfutils' client.
const ABSENT_FOR: Duration = Duration::from_secs(10 * 60);
/// How long a file is kept that nobody opens, as by elfutils' client.
const UNUSED_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
/// The most bytes that all files take.
pub(super) const CACHE_BYTES_MAX: u64 = 8 << 30;

/// What the cache knows of a file.
#[derive(Debug)]
pub(super) enum Cached {
    /// It is here.
    File(File),
    /// A server said a short while ago that it does not have it.
    Absent,
    /// Nothing.
    Unknown,
}

/// The directory.
#[derive(Clone, Debug)]
pub(super) struct Cache {
    directory: PathBuf,
}

impl Cache {
    /// The directory that elfutils' client would use: `DEBUGINFOD_CACHE_PATH`, or `debuginfod_client` in the user's cache. `None`
    /// if there is no home directory.
    pub(super) fn default_directory() -> Option<PathBuf> {
        let absolute =
            |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        absolute("DEBUGINFOD_CACHE_PATH").or_else(|| {
            let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
            Some(cache?.join("debuginfod_client"))
        })
    }

    /// Creates the directory if there is none.
    ///
    /// # Errors
    /// If it can't be created.
    pub(super) fn open(directory: PathBuf) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
        Ok(Self { directory })
    }

    fn path(&self, id: &BuildIdText, artifact: &Artifact) -> PathBuf {
        let name = match artifact {
            Artifact::DebugInfo => "debuginfo".to_owned(),
            // Versions of elfutils differ in how they name these.
            Artifact::Source(path) => {
                format!("source-sidewinder-{}", hex::encode(Sha256::digest(path.as_bytes())))
            }
        };
        self.directory.join(id.as_str()).join(name)
    }

    /// What is known of a file. Only a regular file of ours or of root is opened.
    pub(super) fn find(&self, id: &BuildIdText, artifact: &Artifact) -> Cached {
        let path = self.path(id, artifact);
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(flags.bits().cast_signed());
        // An empty file may not even be readable, as those of elfutils' client.
        let Ok(status) = fs::symlink_metadata(&path).and_then(|status| {
            if status.is_file() { Ok(status) } else { Err(io::ErrorKind::InvalidInput.into()) }
        }) else {
            return Cached::Unknown;
        };
        if ![0, rustix::process::geteuid().as_raw()].contains(&status.uid()) {
            return Cached::Unknown;
        }
        if status.len() == 0 {
            let age = status.modified().ok().and_then(|written| written.elapsed().ok());
            return if age.is_some_and(|age| age < ABSENT_FOR) { Cached::Absent } else { Cached::Unknown };
        }
        match options.open(&path) {
            Ok(file) if file.metadata().is_ok_and(|opened| opened.ino() == status.ino()) => {
                Cached::File(file)
            }
            _ => Cached::Unknown,
        }
    }

    /// Remembers that no server has a file.
    pub(super) fn note_absent(&self, id: &BuildIdText, artifact: &Artifact) -> io::Result<()> {
        self.begin(id)?.keep(&self.path(id, artifact))
    }

    /// A new file, which is removed unless it is [kept](UnfinishedFile::keep).
    pub(super) fn begin(&self, id: &BuildIdText) -> io::Result<UnfinishedFile> {
        let directory = self.directory.join(id.as_str());
        DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
        UnfinishedFile::create(&directory)
    }

    /// Puts a file where it belongs, whatever was there.
    pub(super) fn keep(
        &self,
        unfinished: UnfinishedFile,
        id: &BuildIdText,
        artifact: &Artifact,
    ) -> io::Result<()> {
        unfinished.keep(&self.path(id, artifact))
    }

    /// Removes what nobody has used for a week, and then what was used longest ago until the rest takes at most `bytes_max`.
    /// Only files that a client has written are touched.
    pub(super) fn clean(&self, now: SystemTime, bytes_max: u64) -> io::Result<()> {
        let mut kept: Vec<CachedFile> = Vec::new();
        for directory in fs::read_dir(&self.directory)?.flatten().take(SCANNED_MAX) {
            let is_of_id =
                directory.file_name().to_str().is_some_and(|name| BuildIdText::new(name).is_some());
            if !is_of_id || !directory.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            for file in fs::read_dir(directory.path())?.flatten() {
                let name = file.file_name();
                let name = name.to_string_lossy();
                let is_unfinished = name.starts_with(UNFINISHED_PREFIX);
                let is_artifact = ["debuginfo", "executable", "source", "section"]
                    .iter()
                    .any(|prefix| name.starts_with(prefix));
                let Ok(status) = file.metadata() else { continue };
                if !status.is_file() || !(is_unfinished || is_artifact) {
                    continue;
                }
                let used = [status.accessed(), status.modified()].into_iter().flatten().max().unwrap_or(now);
                let age = now.duration_since(used).unwrap_or_default();
                if age > if is_unfinished { UNFINISHED_MAX } else { UNUSED_MAX } {
                    fs::remove_file(file.path())?;
                } else {
                    kept.push((used, status.len(), file.path()));
                }
            }
        }
        remove_oldest(kept, bytes_max).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    const ID: &str = "00aabbccddeeff00112233445566778899aabbcc";

    fn cache() -> (tempfile::TempDir, Cache, BuildIdText) {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::open(folder.path().join("client")).unwrap();
        (folder, cache, BuildIdText::new(ID).unwrap())
    }

    fn store(cache: &Cache, id: &BuildIdText, text: &str) {
        let mut unfinished = cache.begin(id).unwrap();
        unfinished.file.write_all(text.as_bytes()).unwrap();
        cache.keep(unfinished, id, &Artifact::DebugInfo).unwrap();
    }

    #[test]
    fn files_are_where_elfutils_has_them_and_only_once_they_are_whole() {
        let (folder, cache, id) = cache();
        let directory = folder.path().join("client").join(ID);
        let unfinished = cache.begin(&id).unwrap();
        assert!(matches!(cache.find(&id, &Artifact::DebugInfo), Cached::Unknown));
        drop(unfinished);
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 0, "nothing is left of it");
        store(&cache, &id, "text");
        assert_eq!(fs::read(directory.join("debuginfo")).unwrap(), b"text");
        assert!(matches!(cache.find(&id, &Artifact::DebugInfo), Cached::File(_)));
        assert!(matches!(cache.find(&id, &Artifact::Source("/a.c".into())), Cached::Unknown));
    }

    #[test]
    fn absence_is_remembered_for_ten_minutes() {
        let (_folder, cache, id) = cache();
        cache.note_absent(&id, &Artifact::DebugInfo).unwrap();
        assert!(matches!(cache.find(&id, &Artifact::DebugInfo), Cached::Absent));
        let path = cache.path(&id, &Artifact::DebugInfo);
        let old = SystemTime::now() - ABSENT_FOR - Duration::from_secs(1);
        File::options().write(true).open(path).unwrap().set_modified(old).unwrap();
        assert!(matches!(cache.find(&id, &Artifact::DebugInfo), Cached::Unknown));
    }

    #[test]
    fn a_link_is_not_followed() {
        let (folder, cache, id) = cache();
        store(&cache, &id, "text");
        let path = cache.path(&id, &Artifact::DebugInfo);
        let elsewhere = folder.path().join("elsewhere");
        fs::rename(&path, &elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
        assert!(matches!(cache.find(&id, &Artifact::DebugInfo), Cached::Unknown));
    }

    #[test]
    fn what_is_unused_is_removed_and_what_is_too_much_and_nothing_else() {
        let (folder, cache, id) = cache();
        let other = BuildIdText::new(&ID.replace('0', "1")).unwrap();
        store(&cache, &id, "old");
        store(&cache, &other, "new");
        let mine = folder.path().join("client/mine");
        fs::write(&mine, "text").unwrap();
        let times = fs::FileTimes::new();
        let before = SystemTime::now() - Duration::from_secs(3600);
        let old = File::options().write(true).open(cache.path(&id, &Artifact::DebugInfo)).unwrap();
        old.set_times(times.set_accessed(before).set_modified(before)).unwrap();
        let is_here = |id| matches!(cache.find(id, &Artifact::DebugInfo), Cached::File(_));
        cache.clean(SystemTime::now(), 6).unwrap();
        assert!(is_here(&id) && is_here(&other));
        cache.clean(SystemTime::now(), 5).unwrap();
        assert!(!is_here(&id) && is_here(&other), "what was used longest ago");
        let in_a_week = SystemTime::now() + UNUSED_MAX;
        cache.clean(in_a_week - Duration::from_secs(60), 5).unwrap();
        assert!(is_here(&other));
        cache.clean(in_a_week + Duration::from_secs(60), 5).unwrap();
        assert!(!is_here(&other));
        assert!(mine.exists());
    }
}
