//! Detects changes of the files that a configuration was read from.
//!
//! The files are polled: the file that a path leads to, through every symbolic link, is compared with the one before. So
//! it does not matter how a file changes (written in place, renamed over, a link swapped in a folder above it as
//! Kubernetes does for ConfigMaps), nor on what kind of filesystem it is.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sidewinder_base::file_version::FileVersion;
use sidewinder_base::interval_timer::IntervalTimer;

/// The shortest time between two checks of the files.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// A set of files, with the versions of them that are in use.
#[derive(Debug)]
pub(super) struct FileWatcher {
    files: Vec<(PathBuf, Option<FileVersion>)>,
    /// The versions that the last check found, if they differ from `files`: the files may still be being written.
    unsettled: Option<Vec<Option<FileVersion>>>,
    check_timer: IntervalTimer,
}

impl FileWatcher {
    /// Watches `files` for changes from now on.
    pub(super) fn new(files: Vec<PathBuf>) -> Self {
        let files = files
            .into_iter()
            .map(|path| (current_version(&path), path))
            .map(|(current, path)| (path, current));
        Self { files: files.collect(), unsettled: None, check_timer: IntervalTimer::new(CHECK_INTERVAL) }
    }

    /// Whether a file has changed since this last returned true, and all files were the same in two checks in a row.
    pub(super) fn has_changed(&mut self) -> bool {
        self.check_timer.is_due() && self.check()
    }

    fn check(&mut self) -> bool {
        let current: Vec<Option<FileVersion>> =
            self.files.iter().map(|(path, _)| current_version(path)).collect();
        if self.files.iter().map(|(_, known)| known).eq(&current) {
            self.unsettled = None;
            return false;
        }
        if self.unsettled.as_ref() != Some(&current) {
            self.unsettled = Some(current);
            return false;
        }
        self.unsettled = None;
        for ((_, known), current) in self.files.iter_mut().zip(current) {
            *known = current;
        }
        true
    }
}

/// The version of the file at a path; `None` if there is none.
fn current_version(path: &Path) -> Option<FileVersion> {
    fs::metadata(path).ok().map(|metadata| FileVersion::from(&metadata))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// Whether two checks in a row find a change.
    fn changes(watcher: &mut FileWatcher) -> bool {
        watcher.check();
        watcher.check()
    }

    #[test]
    fn a_file_that_is_written_renamed_over_or_removed_has_changed_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.yaml");
        fs::write(&path, "one").unwrap();
        let mut watcher = FileWatcher::new(vec![path.clone()]);
        assert!(!changes(&mut watcher));
        for change in [
            &(|| fs::write(&path, "other").unwrap()) as &dyn Fn(),
            &|| {
                fs::write(folder.path().join("b"), "three").unwrap();
                fs::rename(folder.path().join("b"), &path).unwrap();
            },
            &|| fs::remove_file(&path).unwrap(),
        ] {
            change();
            assert!(changes(&mut watcher));
            assert!(!changes(&mut watcher));
        }
    }

    /// As kubelet does: `a.yaml -> ..data/a.yaml`, `..data -> ..1`, and `..data` is renamed over.
    #[test]
    fn a_swapped_link_in_the_folder_is_a_change() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for version in ["..1", "..2"] {
            fs::create_dir(at(version)).unwrap();
            fs::write(at(version).join("a.yaml"), "text").unwrap();
        }
        symlink("..1", at("..data")).unwrap();
        symlink("..data/a.yaml", at("a.yaml")).unwrap();
        let mut watcher = FileWatcher::new(vec![at("a.yaml")]);
        assert!(!changes(&mut watcher));
        symlink("..2", at("..data_tmp")).unwrap();
        fs::rename(at("..data_tmp"), at("..data")).unwrap();
        assert!(changes(&mut watcher));
    }

    #[test]
    fn a_file_that_is_still_being_written_has_not_changed_yet() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.yaml");
        fs::write(&path, "").unwrap();
        let mut watcher = FileWatcher::new(vec![path.clone()]);
        for text in ["r", "re", "rec"] {
            fs::write(&path, text).unwrap();
            assert!(!watcher.check());
        }
        assert!(watcher.check());
    }
}
