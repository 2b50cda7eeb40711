//! The lists of containers that podman and CRI-O keep in their storages. A list has all containers of a storage: it is read once for
//! each change.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde_json::Value;
use sidewinder_process::ContainerNames;

use super::files::{CONTAINER_BYTES_MAX, ENTRIES_MAX, entries, json, read, text};

/// The largest list that is read.
const LIST_BYTES_MAX: u64 = 16 << 20;
/// The most lists that are remembered. Beyond, all are forgotten.
const LISTS_MAX: usize = 8;
/// The names of lists: the second one is of containers that don't outlive the machine.
const LIST_NAMES: [&str; 2] = ["containers.json", "volatile-containers.json"];

/// The lists that have been read, by path.
#[derive(Default, Debug)]
pub(super) struct StorageLists {
    read: HashMap<PathBuf, StorageList>,
}

/// A list as it was read.
#[derive(Debug)]
struct StorageList {
    version: ListVersion,
    /// The name and the image of each container, by its ID.
    containers: HashMap<Box<str>, ContainerNames>,
}

/// What is different after a list was written or replaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct ListVersion {
    inode: u64,
    bytes: u64,
    modified_s: i64,
    modified_ns: i64,
}

impl StorageLists {
    /// The names of a container in the storage of the machine, or of a user.
    pub(super) fn find(&mut self, root: &Path, id: &str, user: Option<u32>) -> Option<ContainerNames> {
        let of_user = user.filter(|uid| *uid > 0).and_then(|uid| home(root, uid));
        let of_user = of_user.map(|home| home.join(".local/share/containers/storage"));
        let storages = [Some(root.join("var/lib/containers/storage")), of_user];
        let drivers = storages.into_iter().flatten().flat_map(|storage| drivers(&storage));
        let mut lists = drivers.flat_map(|driver| LIST_NAMES.map(|list| driver.join(list)));
        let listed = lists.find_map(|list| self.containers(list)?.get(id).cloned())?;
        let mut names = of_crio(root, id).unwrap_or_default();
        names.add(Some(listed));
        Some(names)
    }

    /// The containers of a list, which is read unless it is as it was; `None` if there is none.
    fn containers(&mut self, path: PathBuf) -> Option<&HashMap<Box<str>, ContainerNames>> {
        let version = ListVersion::new(&path)?;
        if self.read.get(&path).is_none_or(|list| list.version != version) {
            if self.read.len() >= LISTS_MAX {
                self.read.clear();
            }
            let containers = json(&path, LIST_BYTES_MAX).map(|list| names_by_id(&list)).unwrap_or_default();
            self.read.insert(path.clone(), StorageList { version, containers });
        }
        self.read.get(&path).map(|list| &list.containers)
    }
}

impl ListVersion {
    fn new(path: &Path) -> Option<Self> {
        let status = fs::symlink_metadata(path).ok()?;
        Some(Self {
            inode: status.ino(),
            bytes: status.len(),
            modified_s: status.mtime(),
            modified_ns: status.mtime_nsec(),
        })
    }
}

fn names_by_id(list: &Value) -> HashMap<Box<str>, ContainerNames> {
    let entries = list.as_array().map_or(&[][..], Vec::as_slice).iter().take(ENTRIES_MAX);
    let named = entries.filter_map(|entry| Some((text(entry.get("id")?.as_str()?)?, listed_names(entry))));
    named.collect()
}

fn listed_names(entry: &Value) -> ContainerNames {
    let metadata = entry.get("metadata").and_then(Value::as_str);
    let metadata: Option<Value> = metadata.and_then(|text| serde_json::from_str(text).ok());
    let of_metadata = |key: &str| metadata.as_ref()?.get(key)?.as_str().and_then(text);
    let listed = entry.get("names").and_then(|names| names.get(0)).and_then(Value::as_str);
    ContainerNames {
        container: of_metadata("name").or_else(|| listed.and_then(text)),
        image: of_metadata("image-name"),
        ..ContainerNames::default()
    }
}

/// The folders of a storage that describe containers, one for each driver of their file systems: `overlay-containers`.
fn drivers(storage: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let names = entries(storage).into_iter().filter(|name| name.ends_with("-containers"));
    let storage = storage.to_owned();
    names.map(move |name| storage.join(name))
}

/// The annotations of CRI-O's bundle.
fn of_crio(root: &Path, id: &str) -> Option<ContainerNames> {
    let spec = drivers(&root.join("run/containers/storage"))
        .find_map(|driver| json(&driver.join(id).join("userdata/config.json"), CONTAINER_BYTES_MAX))?;
    let annotation = |key: &str| spec.get("annotations")?.get(key)?.as_str().and_then(text);
    Some(ContainerNames {
        container: annotation("io.kubernetes.container.name"),
        image: annotation("io.kubernetes.cri-o.ImageName"),
        pod: annotation("io.kubernetes.pod.name"),
        namespace: annotation("io.kubernetes.pod.namespace"),
    })
}

/// The home directory of a user by `/etc/passwd` (passwd(5)), below a root.
fn home(root: &Path, uid: u32) -> Option<PathBuf> {
    let users = String::from_utf8(read(&root.join("etc/passwd"), CONTAINER_BYTES_MAX)?).ok()?;
    users.lines().find_map(|line| {
        let mut fields = line.split(':').skip(2);
        let is_user = fields.next()?.parse() == Ok(uid);
        let home = fields.nth(2)?;
        is_user.then(|| root.join(home.trim_start_matches('/')))
    })
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::time::{Duration, SystemTime};

    use super::*;

    #[test]
    fn a_list_is_read_again_when_it_was_changed() {
        let root = tempfile::tempdir().unwrap();
        let list = root.path().join("var/lib/containers/storage/overlay-containers/containers.json");
        fs::create_dir_all(list.parent().unwrap()).unwrap();
        let written = SystemTime::UNIX_EPOCH + Duration::from_secs(1_790_000_000);
        let write = |name: &str, modified: SystemTime| {
            fs::write(&list, format!(r#"[{{"id": "0a1b", "names": ["{name}"]}}]"#)).unwrap();
            File::options().write(true).open(&list).unwrap().set_modified(modified).unwrap();
        };
        let mut lists = StorageLists::default();
        let mut found = || lists.find(root.path(), "0a1b", None).and_then(|names| names.container);
        assert_eq!(found(), None);
        write("web", written);
        assert_eq!(found().as_deref(), Some("web"));
        // The file looks as it was, so nothing is read.
        write("api", written);
        assert_eq!(found().as_deref(), Some("web"));
        write("api", written + Duration::from_nanos(1));
        assert_eq!(found().as_deref(), Some("api"));
        fs::remove_file(&list).unwrap();
        assert_eq!(found(), None);
    }
}
