//! Files that a configuration was read from, and whether they have changed.
//!
//! They are looked at, not listened to: what a path names is compared with what it named before, through every
//! symbolic link. So the way in which a file changes does not matter (written in place, renamed over, a link swapped
//! in a folder above it as Kubernetes does for ConfigMaps), nor the kind of its filesystem.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::time::Duration;

use crate::interval_timer::IntervalTimer;

/// How often files are looked at, at the most.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// What a path names; two that are equal have the same content, as far as a filesystem tells.
#[derive(Clone, PartialEq, Eq, Debug)]
struct FileIdentity {
    device: u64,
    inode: u64,
    size: u64,
    /// Seconds and nanoseconds.
    modified: (i64, i64),
    changed: (i64, i64),
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct FileWatcher {
    files: Vec<(PathBuf, Option<FileIdentity>)>,
    /// What was seen of the files last, where that differs from `files`: they may still be written.
    unsettled: Option<Vec<Option<FileIdentity>>>,
    check_timer: IntervalTimer,
}

impl FileWatcher {
    /// Watches `files`, of which what they are now is known.
    pub(super) fn new(files: Vec<PathBuf>) -> Self {
        let files = files.into_iter().map(|path| (identity(&path), path)).map(|(seen, path)| (path, seen));
        Self { files: files.collect(), unsettled: None, check_timer: IntervalTimer::new(CHECK_INTERVAL) }
    }

    /// Whether a file has changed since the last time this was true, and has not been changing for a moment.
    pub(super) fn has_changed(&mut self) -> bool {
        self.check_timer.is_due() && self.check()
    }

    fn check(&mut self) -> bool {
        let seen: Vec<Option<FileIdentity>> = self.files.iter().map(|(path, _)| identity(path)).collect();
        if self.files.iter().map(|(_, known)| known).eq(&seen) {
            self.unsettled = None;
            return false;
        }
        if self.unsettled.as_ref() != Some(&seen) {
            self.unsettled = Some(seen);
            return false;
        }
        self.unsettled = None;
        for ((_, known), seen) in self.files.iter_mut().zip(seen) {
            *known = seen;
        }
        true
    }
}

/// What a path names; `None` where it names nothing.
fn identity(path: &std::path::Path) -> Option<FileIdentity> {
    let found = fs::metadata(path).ok()?;
    Some(FileIdentity {
        device: found.dev(),
        inode: found.ino(),
        size: found.size(),
        modified: (found.mtime(), found.mtime_nsec()),
        changed: (found.ctime(), found.ctime_nsec()),
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// Whether two looks, as far apart as files settle, find a change.
    fn changes(watch: &mut FileWatcher) -> bool {
        watch.check();
        watch.check()
    }

    #[test]
    fn a_file_that_is_written_renamed_over_or_removed_has_changed_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.yaml");
        fs::write(&path, "one").unwrap();
        let mut watch = FileWatcher::new(vec![path.clone()]);
        assert!(!changes(&mut watch));
        for change in [
            &(|| fs::write(&path, "other").unwrap()) as &dyn Fn(),
            &|| {
                fs::write(folder.path().join("b"), "three").unwrap();
                fs::rename(folder.path().join("b"), &path).unwrap();
            },
            &|| fs::remove_file(&path).unwrap(),
        ] {
            change();
            assert!(changes(&mut watch));
            assert!(!changes(&mut watch));
        }
    }

    /// As kubelet does: `a.yaml -> ..data/a.yaml`, `..data -> ..1`, and `..data` is renamed over.
    #[test]
    fn a_link_that_is_swapped_in_the_folder_is_a_change() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for version in ["..1", "..2"] {
            fs::create_dir(at(version)).unwrap();
            fs::write(at(version).join("a.yaml"), "text").unwrap();
        }
        symlink("..1", at("..data")).unwrap();
        symlink("..data/a.yaml", at("a.yaml")).unwrap();
        let mut watch = FileWatcher::new(vec![at("a.yaml")]);
        assert!(!changes(&mut watch));
        symlink("..2", at("..data_tmp")).unwrap();
        fs::rename(at("..data_tmp"), at("..data")).unwrap();
        assert!(changes(&mut watch));
    }

    #[test]
    fn a_file_that_is_still_being_written_has_not_changed_yet() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.yaml");
        fs::write(&path, "").unwrap();
        let mut watch = FileWatcher::new(vec![path.clone()]);
        for text in ["r", "re", "rec"] {
            fs::write(&path, text).unwrap();
            assert!(!watch.check());
        }
        assert!(watch.check());
    }
}
