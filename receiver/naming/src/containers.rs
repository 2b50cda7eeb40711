//! The names of containers and pods, from what their runtimes keep in files. No socket is asked, and no privilege is needed beyond
//! reading these files.
//!
//! | Runtime | File | What it says |
//! |---|---|---|
//! | kubelet | the names in `/var/log/containers` and `/var/log/pods`, which everybody may list | container, pod, namespace |
//! | containerd | `/run/containerd/io.containerd.runtime.v2.task/*/ID/config.json` | these, and the image |
//! | podman, CRI-O | `containers.json` of the storage, also in users' homes; CRI-O's `config.json` | the same |
//! | Docker | `/var/lib/docker/containers/ID/config.v2.json` | container, image, Kubernetes' labels |
//!
//! Owner: the thread that names frames. The files are read once for each container, and lists of containers once for each change,
//! below our own root and, where all processes of the machine are seen, that of process 1.

mod files;
mod storage;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use sidewinder_process::{ContainerNames, ProcessDescription};

use self::files::{CONTAINER_BYTES_MAX, entries, json, text};
use self::storage::StorageLists;

/// The most containers that are remembered. Beyond, all are forgotten.
const REMEMBERED_MAX: usize = 4096;
/// How long it is remembered that nothing is known of a container.
const UNKNOWN_FOR: Duration = Duration::from_secs(30);

/// The names of containers that were asked for.
#[derive(Debug)]
pub(crate) struct ContainerDirectory {
    roots: Vec<PathBuf>,
    /// Whether the homes of users are looked into: what is mounted there may not respond.
    reads_homes: bool,
    lists: StorageLists,
    known: HashMap<Box<str>, (Arc<ContainerNames>, Instant)>,
}

impl ContainerDirectory {
    /// The containers of this machine, and if `reads_homes`, those that users run without privileges.
    pub(crate) fn new(reads_homes: bool) -> Self {
        // Process 1 of another namespace may be the profiled program, whose file system may never answer.
        let is_of_machine = sidewinder_bpf::is_in_initial_pid_namespace().unwrap_or(false);
        let roots = ["/"].into_iter().chain(is_of_machine.then_some("/proc/1/root"));
        let roots = roots.map(PathBuf::from).collect();
        Self { roots, reads_homes, lists: StorageLists::default(), known: HashMap::new() }
    }

    /// A description with the names of the process's container and pod, as far as they are known.
    pub(crate) fn describe(&mut self, description: Arc<ProcessDescription>) -> Arc<ProcessDescription> {
        let container = description.container_id.as_ref().map(|id| id.as_str().to_owned());
        let (container, pod) = (container.as_deref(), description.pod_uid.as_deref());
        let Some(key) = container.or(pod) else { return description };
        let is_valid = |(names, at): &&(Arc<ContainerNames>, Instant)| {
            **names != ContainerNames::default() || at.elapsed() < UNKNOWN_FOR
        };
        let names = match self.known.get(key).filter(is_valid) {
            Some((names, _)) => Arc::clone(names),
            None => {
                let user = description.session_uid.filter(|_| self.reads_homes);
                let names = Arc::new(self.find(container, pod, user));
                if self.known.len() >= REMEMBERED_MAX {
                    self.known.clear();
                }
                self.known.insert(key.into(), (Arc::clone(&names), Instant::now()));
                names
            }
        };
        if *names == ContainerNames::default() {
            return description;
        }
        let mut description = Arc::unwrap_or_clone(description);
        description.container_names = Some(names);
        Arc::new(description)
    }

    fn find(&mut self, container: Option<&str>, pod_uid: Option<&str>, user: Option<u32>) -> ContainerNames {
        let mut names = ContainerNames::default();
        for root in &self.roots {
            if let Some(id) = container {
                names.add(of_kubelet_log(root, id));
                names.add(of_containerd(root, id));
                names.add(self.lists.find(root, id, user));
                names.add(of_docker(root, id));
            }
            if let Some(uid) = pod_uid {
                names.add(of_kubelet_pod(root, uid));
            }
            if names != ContainerNames::default() {
                break;
            }
        }
        names
    }
}

/// `/var/log/containers/POD_NAMESPACE_CONTAINER-ID.log`.
fn of_kubelet_log(root: &Path, id: &str) -> Option<ContainerNames> {
    let names = entries(&root.join("var/log/containers"));
    let suffix = format!("-{id}.log");
    let name = names.into_iter().find_map(|name| Some(name.strip_suffix(&suffix)?.to_owned()))?;
    let mut parts = name.splitn(3, '_');
    let (pod, namespace, container) = (parts.next()?, parts.next()?, parts.next()?);
    Some(ContainerNames {
        pod: text(pod),
        namespace: text(namespace),
        container: text(container),
        ..ContainerNames::default()
    })
}

/// `/var/log/pods/NAMESPACE_POD_UID/`.
fn of_kubelet_pod(root: &Path, uid: &str) -> Option<ContainerNames> {
    let suffix = format!("_{uid}");
    let names = entries(&root.join("var/log/pods"));
    let name = names.into_iter().find_map(|name| Some(name.strip_suffix(&suffix)?.to_owned()))?;
    let (namespace, pod) = name.split_once('_')?;
    Some(ContainerNames { pod: text(pod), namespace: text(namespace), ..ContainerNames::default() })
}

/// The annotations of the OCI bundle: those of containerd's plug-in for Kubernetes, or nerdctl's.
fn of_containerd(root: &Path, id: &str) -> Option<ContainerNames> {
    let tasks = root.join("run/containerd/io.containerd.runtime.v2.task");
    let spec = entries(&tasks).into_iter().find_map(|namespace| {
        json(&tasks.join(namespace).join(id).join("config.json"), CONTAINER_BYTES_MAX)
    })?;
    let annotation = |key: &str| spec.get("annotations")?.get(key)?.as_str().and_then(text);
    let cri = |name: &str| annotation(&format!("io.kubernetes.cri.{name}"));
    Some(ContainerNames {
        container: cri("container-name").or_else(|| annotation("nerdctl/name")),
        image: cri("image-name"),
        pod: cri("sandbox-name"),
        namespace: cri("sandbox-namespace"),
    })
}

fn of_docker(root: &Path, id: &str) -> Option<ContainerNames> {
    let path = root.join("var/lib/docker/containers").join(id).join("config.v2.json");
    let config = json(&path, CONTAINER_BYTES_MAX)?;
    let text_at = |pointer: &str| config.pointer(pointer)?.as_str().and_then(text);
    let label = |key: &str| config.pointer("/Config/Labels")?.get(key)?.as_str().and_then(text);
    let name = config.get("Name").and_then(Value::as_str).map(|name| name.trim_start_matches('/'));
    Some(ContainerNames {
        container: label("io.kubernetes.container.name").or_else(|| name.and_then(text)),
        image: text_at("/Config/Image"),
        pod: label("io.kubernetes.pod.name"),
        namespace: label("io.kubernetes.pod.namespace"),
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const ID: &str = "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae";
    const UID: &str = "0a1b2c3d-0123-4567-89ab-0123456789ab";

    fn write(root: &Path, path: &str, content: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn names(container: &str, image: &str, pod: &str, namespace: &str) -> ContainerNames {
        let [container, image, pod, namespace] = [container, image, pod, namespace].map(text);
        ContainerNames { container, image, pod, namespace }
    }

    fn found(root: &Path, user: Option<u32>) -> ContainerNames {
        let roots = vec![root.join("nothing"), root.to_owned()];
        let mut directory = ContainerDirectory { roots, ..ContainerDirectory::new(true) };
        directory.find(Some(ID), Some(UID), user)
    }

    #[test]
    fn each_runtimes_files_are_read() {
        let spec = r#"{"annotations": {"io.kubernetes.cri.container-name": "api",
            "io.kubernetes.cri.image-name": "shop/api:1", "io.kubernetes.cri.sandbox-name": "api-7f9",
            "io.kubernetes.cri.sandbox-namespace": "shop"}}"#;
        let crio = r#"{"annotations": {"io.kubernetes.container.name": "api", "io.kubernetes.pod.name": "api-7f9",
            "io.kubernetes.cri-o.ImageName": "shop/api:1", "io.kubernetes.pod.namespace": "shop"}}"#;
        let docker = r#"{"Name": "/web", "Config": {"Image": "nginx:1.27", "Labels": {}}}"#;
        let storage = format!(
            r#"[{{"id": "0"}}, {{"id": "{ID}", "names": ["web"], "metadata": "{{\"name\":\"web\",\"image-name\":\"nginx:1.27\"}}"}}]"#
        );
        let list = "storage/overlay-containers/containers.json";
        let volatile = "var/lib/containers/storage/vfs-containers/volatile-containers.json";
        let in_pod = names("api", "shop/api:1", "api-7f9", "shop");
        let alone = names("web", "nginx:1.27", "", "");
        let crio_bundle = format!("run/containers/storage/overlay-containers/{ID}/userdata/config.json");
        let cases: &[(&[(String, &str)], &ContainerNames)] = &[
            (
                &[(format!("run/containerd/io.containerd.runtime.v2.task/k8s.io/{ID}/config.json"), spec)],
                &in_pod,
            ),
            (&[(format!("var/lib/docker/containers/{ID}/config.v2.json"), docker)], &alone),
            (&[(format!("var/lib/containers/{list}"), &storage)], &alone),
            (&[(volatile.to_owned(), &storage)], &alone),
            (&[(format!("var/lib/containers/{list}"), &storage), (crio_bundle, crio)], &in_pod),
            (
                &[
                    (format!("home/me/.local/share/containers/{list}"), &storage),
                    (
                        "etc/passwd".to_owned(),
                        "root:x:0:0::/root:/bin/sh\nme:x:1000:1000:Me:/home/me:/bin/sh\n",
                    ),
                ],
                &alone,
            ),
            (
                &[(format!("var/log/containers/api-7f9_shop_api-{ID}.log"), "")],
                &names("api", "", "api-7f9", "shop"),
            ),
            (
                &[(format!("var/log/pods/shop_api-7f9_{UID}/api/0.log"), "")],
                &names("", "", "api-7f9", "shop"),
            ),
        ];
        for (files, expected) in cases {
            let root = tempfile::tempdir().unwrap();
            for (path, content) in *files {
                write(root.path(), path, content);
            }
            assert_eq!(found(root.path(), Some(1000)), **expected, "{:?}", files[0].0);
        }
    }

    #[test]
    fn what_is_broken_or_of_another_container_says_nothing() {
        let root = tempfile::tempdir().unwrap();
        let other = ID.replace('2', "3");
        write(root.path(), &format!("var/log/containers/a_b_c-{other}.log"), "");
        write(root.path(), &format!("var/log/pods/a_{UID}0/c"), "");
        write(
            root.path(),
            &format!("var/lib/docker/containers/{ID}/config.v2.json"),
            "{\"Name\": 7, \"Config\": []}",
        );
        write(root.path(), "var/lib/containers/storage/overlay-containers/containers.json", "{");
        assert_eq!(found(root.path(), None), ContainerNames::default());
        assert_eq!(text("a\u{1b}[31m"), None);
    }
}
