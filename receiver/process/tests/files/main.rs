//! Identification of mapped files: real programs, and attacks on whoever opens paths that a process chooses.
#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

mod build_ids;
#[path = "../common/mod.rs"]
mod common;
mod roots;

use std::fs;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{PermissionsExt as _, chown, lchown, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use common::{Talker, Tree, compile, line_for};
use sidewinder_process::{
    BuildIds, Credentials, FileTable, FileTableLimits, IdentifiedFile, OpenError, PathTrust, Pid, ProcRoot,
    ProcessDir, ProcessRoot, ReadAt, Registry, RegistryLimits,
};

/// A tree with one process, and its mapped file.
struct Target {
    tree: Tree,
    file: PathBuf,
}

const PID: u32 = 10;

impl Target {
    /// Process 10 maps `/lib/x` of its own root.
    fn new() -> Self {
        let tree = Tree::new();
        tree.add(PID, 100, "");
        let file = tree.root(PID).join("lib/x");
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, "the mapped one").unwrap();
        tree.add(PID, 100, &line_for(&file, "/lib/x"));
        Self { tree, file }
    }

    fn identify(&self) -> (FileTable, IdentifiedFile) {
        self.identify_with(FileTableLimits::default())
    }

    fn identify_with(&self, limits: FileTableLimits) -> (FileTable, IdentifiedFile) {
        let mut files = FileTable::new(self.tree.proc_root(), limits);
        let identified = identify(&mut files, &self.tree.proc_root(), PID);
        (files, identified)
    }

    /// Moves the file away, still mapped, and creates another one at its path.
    fn replace(&self, other: impl FnOnce(&Path)) {
        fs::rename(&self.file, self.file.with_extension("old")).unwrap();
        other(&self.file);
    }
}

/// Identifies the first file that a process maps.
fn identify(files: &mut FileTable, proc_root: &ProcRoot, pid: u32) -> IdentifiedFile {
    let mut registry = Registry::new(proc_root.clone(), RegistryLimits::default());
    registry.scan(Pid(pid)).unwrap();
    let process = registry.process(Pid(pid)).unwrap();
    let mapping = process.mappings().find(|mapping| mapping.backing.file().is_some()).unwrap();
    files.identify(process, mapping).unwrap()
}

fn content(files: &FileTable, identified: &IdentifiedFile) -> String {
    let opened = files.get(identified.id).unwrap().opened().unwrap();
    let mut bytes = vec![0; opened.size_bytes() as usize];
    opened.read_exact_at(&mut bytes, 0).unwrap();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn the_file_is_found_in_the_root_of_its_process() {
    let (files, found) = Target::new().identify();
    assert!(found.is_new && found.unreadable.is_none());
    assert_eq!(content(&files, &found), "the mapped one");
    assert_eq!(files.get(found.id).unwrap().path(), b"/lib/x");
    assert_eq!(files.get(found.id).unwrap().name(), b"x");
}

#[test]
fn an_absolute_link_stays_inside_the_root() {
    let target = Target::new();
    // The attack: a file with that path also exists outside the root.
    let elsewhere = target.tree.root(PID).join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::rename(&target.file, elsewhere.join("x")).unwrap();
    fs::remove_dir(target.file.parent().unwrap()).unwrap();
    symlink("/elsewhere", target.file.parent().unwrap()).unwrap();
    let (files, found) = target.identify();
    assert_eq!(content(&files, &found), "the mapped one");
}

#[test]
fn a_link_that_leads_to_a_file_of_ours_is_another_file() {
    let target = Target::new();
    target.replace(|file| symlink("/etc/passwd", file).unwrap());
    let (_, found) = target.identify();
    assert!(matches!(found.unreadable, Some(OpenError::NotFound)), "{found:?}");
    let target = Target::new();
    target.replace(|file| symlink("../../../../../../../../etc/passwd", file).unwrap());
    let (_, found) = target.identify();
    assert!(matches!(found.unreadable, Some(OpenError::NotFound)), "{found:?}");
}

#[test]
fn a_file_that_took_the_place_of_the_mapped_one_is_refused() {
    let target = Target::new();
    target.replace(|file| fs::write(file, "an impostor").unwrap());
    let (files, found) = target.identify();
    assert!(matches!(found.unreadable, Some(OpenError::Mismatch)), "{found:?}");
    assert!(files.get(found.id).unwrap().opened().is_none());
    assert_eq!(files.get(found.id).unwrap().path(), b"/lib/x", "its name is known nevertheless");
}

#[test]
fn fifos_devices_sockets_and_directories_are_never_opened() {
    let fifo = |file: &Path| assert!(Command::new("mkfifo").arg(file).status().unwrap().success());
    let socket = |file: &Path| drop(std::os::unix::net::UnixListener::bind(file).unwrap());
    let directory = |file: &Path| fs::create_dir(file).unwrap();
    for lay in [fifo as fn(&Path), socket, directory] {
        let target = Target::new();
        target.replace(lay);
        let (_, found) = target.identify();
        assert!(matches!(found.unreadable, Some(OpenError::NotRegular)), "{found:?}");
    }
}

#[test]
fn a_device_with_the_mapped_path_is_refused() {
    let tree = Tree::new();
    tree.add(PID, 100, "400000-402000 r-xp 00000000 08:01 7 /dev/zero\n");
    let root = tree.proc_root().0.join(PID.to_string()).join("root");
    fs::remove_file(&root).unwrap();
    symlink("/", root).unwrap();
    let mut files = FileTable::new(tree.proc_root(), FileTableLimits::default());
    let found = identify(&mut files, &tree.proc_root(), PID);
    assert!(matches!(found.unreadable, Some(OpenError::NotRegular)), "{found:?}");
}

#[test]
fn a_deleted_file_is_found_by_the_kernels_own_links() {
    let target = Target::new();
    let old = target.file.with_extension("old");
    target.replace(|file| fs::write(file, "an impostor").unwrap());
    target.tree.add(PID, 100, &line_for(&old, "/lib/x (deleted)"));
    let links = target.tree.proc_root().0.join(PID.to_string()).join("map_files");
    fs::create_dir(&links).unwrap();
    symlink(&old, links.join("400000-402000")).unwrap();
    let (files, found) = target.identify();
    assert_eq!(content(&files, &found), "the mapped one");
    assert_eq!(files.get(found.id).unwrap().path(), b"/lib/x");
}

#[test]
fn a_name_with_a_newline_or_with_four_characters_that_look_like_one_is_found() {
    for name in ["a\nb", "a\\012b", "a (deleted)"] {
        let target = Target::new();
        let named = target.file.with_file_name(name);
        fs::rename(&target.file, &named).unwrap();
        let shown = format!("/lib/{}", name.replace('\n', "\\012"));
        target.tree.add(PID, 100, &line_for(&named, &shown));
        let (files, found) = target.identify();
        assert_eq!(content(&files, &found), "the mapped one", "{name:?}");
    }
}

#[test]
fn processes_that_map_one_file_share_its_number() {
    let target = Target::new();
    let (mut files, first) = target.identify();
    let shown = line_for(&target.file, "/lib/x");
    target.tree.add(11, 100, &shown);
    // The second process need not have access to the file.
    let second = identify(&mut files, &target.tree.proc_root(), 11);
    assert_eq!((second.id, second.is_new), (first.id, false));
    files.close(first.id);
    assert_eq!(files.open_files(), 0);
    assert!(!identify(&mut files, &target.tree.proc_root(), PID).is_new, "it is known when opened again");
}

#[test]
fn a_file_that_was_written_into_is_another_one() {
    let target = Target::new();
    let (mut files, before) = target.identify();
    std::thread::sleep(std::time::Duration::from_millis(20));
    fs::OpenOptions::new().append(true).open(&target.file).unwrap().write_all(b", changed").unwrap();
    let unseen = identify(&mut files, &target.tree.proc_root(), PID);
    assert_eq!(unseen.id, before.id, "a check is reused until it is invalidated");
    files.invalidate_confirmed();
    let after = identify(&mut files, &target.tree.proc_root(), PID);
    assert!(after.is_new && after.id != before.id);
    assert_eq!(content(&files, &after), "the mapped one, changed");
}

#[test]
fn descriptors_and_entries_stay_within_their_limits() {
    let limits = FileTableLimits { files: 3, open_files: 2, allow_remote: false };
    let target = Target::new();
    let (mut files, first) = target.identify_with(limits);
    let mut last = first.id;
    for number in 0..5 {
        let file = target.file.with_file_name(format!("y{number}"));
        fs::write(&file, "y").unwrap();
        target.tree.add(PID, 100, &line_for(&file, &format!("/lib/y{number}")));
        let found = identify(&mut files, &target.tree.proc_root(), PID);
        assert!(found.is_new && found.id > last, "IDs are never reused");
        last = found.id;
    }
    assert_eq!((files.len(), files.open_files()), (3, 2));
    assert!(files.get(first.id).is_none());
    assert!(files.get(last).unwrap().opened().is_some());
}

#[test]
fn the_file_of_an_ended_process_is_found_where_we_live() {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("sleeper");
    fs::copy("/bin/sleep", &program).unwrap();
    let mut child = Command::new(&program).arg("1000").spawn().unwrap();
    let pid = Pid(child.id());
    let mut registry = Registry::new(ProcRoot::default(), RegistryLimits::default());
    // The child may still be on its way to exec.
    let process = loop {
        registry.scan(pid).unwrap();
        let process = registry.process(pid).unwrap().clone();
        if process.comm() == b"sleeper"
            && process
                .mappings()
                .any(|mapping| mapping.backing.file().is_some_and(|file| file.name() == b"sleeper"))
        {
            break process;
        }
    };
    child.kill().unwrap();
    child.wait().unwrap();
    let mapping = process.mappings().find(|mapping| mapping.backing.file().is_some()).unwrap();
    let mut files = FileTable::new(ProcRoot::default(), FileTableLimits::default());
    assert!(files.identify(&process, mapping).unwrap().unreadable.is_none());
    // It has been rewritten in place since, so it is no longer what the process ran.
    let mut files = FileTable::new(ProcRoot::default(), FileTableLimits::default());
    std::thread::sleep(std::time::Duration::from_millis(20));
    fs::OpenOptions::new().append(true).open(&program).unwrap().write_all(b"!").unwrap();
    let found = files.identify(&process, mapping).unwrap();
    assert!(matches!(found.unreadable, Some(OpenError::Gone)), "{found:?}");
}

#[test]
fn a_running_program_whose_file_is_deleted_can_still_be_read() {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("cat");
    fs::copy("/bin/cat", &program).unwrap();
    let mut talker = Talker::start(&mut Command::new(&program));
    talker.say("ready");
    talker.hear();
    fs::remove_file(&program).unwrap();
    fs::write(&program, "an impostor").unwrap();
    let mut files = FileTable::new(ProcRoot::default(), FileTableLimits::default());
    let found = identify(&mut files, &ProcRoot::default(), talker.pid().0);
    assert!(found.unreadable.is_none(), "{found:?}");
    let opened = files.get(found.id).unwrap().opened().unwrap();
    assert_eq!(opened.size_bytes(), fs::metadata("/bin/cat").unwrap().len());
    assert_eq!(files.get(found.id).unwrap().path(), program.to_str().unwrap().as_bytes());
}

#[test]
fn a_program_that_never_had_a_file_can_be_read() {
    let memory = rustix::fs::memfd_create("program", rustix::fs::MemfdFlags::empty()).unwrap();
    fs::File::from(memory.try_clone().unwrap()).write_all(&fs::read("/bin/cat").unwrap()).unwrap();
    let mut talker = Talker::start(&mut Command::new(format!("/proc/self/fd/{}", memory.as_raw_fd())));
    talker.say("ready");
    talker.hear();
    let mut files = FileTable::new(ProcRoot::default(), FileTableLimits::default());
    let found = identify(&mut files, &ProcRoot::default(), talker.pid().0);
    assert!(found.unreadable.is_none(), "{found:?}");
    assert_eq!(files.get(found.id).unwrap().path(), b"/memfd:program");
    let opened = files.get(found.id).unwrap().opened().unwrap();
    assert_eq!(opened.size_bytes(), fs::metadata("/bin/cat").unwrap().len());
}

/// A FUSE file system whose server never responds; unmounted when dropped.
struct SilentMount {
    at: PathBuf,
    _server: fs::File,
}

impl SilentMount {
    /// `None` if we may not mount one.
    fn new(at: &Path) -> Option<Self> {
        let server = fs::OpenOptions::new().read(true).write(true).open("/dev/fuse").ok()?;
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", server.as_raw_fd());
        let options = std::ffi::CString::new(options).unwrap();
        rustix::mount::mount("none", at, "fuse", rustix::mount::MountFlags::empty(), options.as_c_str())
            .ok()?;
        Some(Self { at: at.to_owned(), _server: server })
    }

    /// Mounted on the directory of a target's file, also in the target's mount namespace. `None`, with a message, if not
    /// permitted.
    fn over_the_file_of(target: &Target) -> Option<Self> {
        let mount = Self::new(target.file.parent().unwrap());
        if mount.is_none() {
            eprintln!("skipped: FUSE can't be mounted here");
        }
        let mountinfo = target.tree.proc_root().0.join(PID.to_string()).join("mountinfo");
        fs::copy("/proc/self/mountinfo", mountinfo).unwrap();
        mount
    }
}

impl Drop for SilentMount {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.at, rustix::mount::UnmountFlags::DETACH);
    }
}

#[test]
fn a_file_system_that_never_answers_is_not_waited_for() {
    let target = Target::new();
    let Some(mount) = SilentMount::over_the_file_of(&target) else { return };
    let (answer, answers) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let (_, found) = target.identify();
        // The tree can only be removed when nothing is mounted in it, so it is moved back.
        answer.send((found.unreadable, target)).unwrap();
    });
    let (unreadable, target) =
        answers.recv_timeout(std::time::Duration::from_secs(10)).expect("nobody waits for the mount");
    drop(mount);
    drop(target);
    assert!(matches!(unreadable, Some(OpenError::NotCached)), "{unreadable:?}");
}

#[test]
fn a_file_on_a_mount_that_others_serve_is_opened_only_where_that_is_allowed() {
    let own = fs::read_to_string("/proc/self/mountinfo").unwrap();
    // Of several mounts on the same directory, the last one is visible.
    let Some(shared_memory) =
        own.lines().rfind(|line| line.contains(" /dev/shm ") && line.contains(" - tmpfs "))
    else {
        eprintln!("skipped: no tmpfs at /dev/shm");
        return;
    };
    let root = tempfile::tempdir_in("/dev/shm").unwrap();
    let file = root.path().join("x");
    fs::write(&file, "the mapped one").unwrap();
    let tree = Tree::new();
    tree.add(PID, 100, &line_for(&file, "/x"));
    let process = tree.proc_root().0.join(PID.to_string());
    fs::remove_file(process.join("root")).unwrap();
    symlink(root.path(), process.join("root")).unwrap();
    let readable = |mounts: &str, allow_remote| {
        fs::write(process.join("mountinfo"), mounts).unwrap();
        let limits = FileTableLimits { allow_remote, ..FileTableLimits::default() };
        let found = identify(&mut FileTable::new(tree.proc_root(), limits), &tree.proc_root(), PID);
        assert!(
            matches!(found.unreadable, None | Some(OpenError::Remote | OpenError::NotCached)),
            "{found:?}"
        );
        found.unreadable.is_none()
    };
    let remote = shared_memory.replace(" - tmpfs ", " - fuse.sshfs ");
    assert!(readable(shared_memory, false));
    assert!(!readable(&remote, false));
    assert!(readable(&remote, true));
    assert!(!readable("", false), "a file of an unknown mount may be on a remote file system");
}
