//! Identification of mapped files: real programs, and attacks on whoever opens paths that a process chooses.
#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

mod common;

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

/// The first identifier that `readelf -n` prints after a label.
fn readelf(file: &Path, label: &str) -> Option<String> {
    let output = Command::new("readelf").arg("-n").arg(file).output().expect("readelf is installed");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.split_once(label)?.1.split_whitespace().next().map(str::to_owned)
}

fn ids_of(program: &Path) -> (BuildIds, String) {
    let tree = Tree::new();
    tree.add(PID, 100, &line_for(program, program.to_str().unwrap()));
    let root = tree.proc_root().0.join(PID.to_string()).join("root");
    fs::remove_file(&root).unwrap();
    symlink("/", root).unwrap();
    let mut files = FileTable::new(tree.proc_root(), FileTableLimits::default());
    let found = identify(&mut files, &tree.proc_root(), PID);
    let entry = files.get(found.id).unwrap();
    (entry.build_ids().clone(), entry.hash().unwrap().to_string())
}

#[test]
fn build_ids_equal_readelfs() {
    let directory = tempfile::tempdir().unwrap();
    let source = "int main(void) { return 0; }";
    for (name, argument) in [
        ("sha1", "-Wl,--build-id=sha1"),
        ("md5", "-Wl,--build-id=md5"),
        ("long", "-Wl,--build-id=0x00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"),
        ("none", "-Wl,--build-id=none"),
        ("static", "-static"),
    ] {
        let program = compile(directory.path(), name, source, &[argument]);
        let ids = ids_of(&program).0;
        assert_eq!(ids.gnu.map(|id| id.to_string()), readelf(&program, "Build ID:"), "{name}");
        assert_eq!(ids.go, None);
    }
}

#[test]
fn a_go_build_id_equals_the_linkers() {
    let go = ["go", "/usr/local/go/bin/go"]
        .into_iter()
        .find(|go| Command::new(go).arg("version").output().is_ok());
    let Some(go) = go else {
        eprintln!("skipped: no Go toolchain");
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let (source, program) = (directory.path().join("main.go"), directory.path().join("program"));
    fs::write(&source, "package main\nfunc main() {}\n").unwrap();
    let built = Command::new(go).args(["build", "-o"]).arg(&program).arg(&source).status().unwrap();
    assert!(built.success());
    let said = Command::new(go).args(["tool", "buildid"]).arg(&program).output().unwrap();
    let said = String::from_utf8(said.stdout).unwrap();
    assert_eq!(ids_of(&program).0.go.as_deref(), Some(said.trim()));
}

#[test]
fn the_hash_of_the_ends_is_that_of_the_conventions() {
    let directory = tempfile::tempdir().unwrap();
    for size in [0_u64, 1, 4095, 4096, 4097, 8192, 100_000] {
        let file = directory.path().join(format!("f{size}"));
        let bytes: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
        fs::write(&file, bytes).unwrap();
        let length: String = size.to_be_bytes().iter().map(|byte| format!("\\{byte:03o}")).collect();
        let script =
            format!("(head -c 4096 \"$0\"; tail -c 4096 \"$0\"; printf '{length}') | sha256sum | cut -c1-32");
        let expected = Command::new("sh").args(["-c", &script]).arg(&file).output().unwrap();
        assert_eq!(ids_of(&file).1, String::from_utf8(expected.stdout).unwrap().trim(), "{size} bytes");
    }
}

#[test]
fn broken_elf_files_have_no_build_id() {
    let directory = tempfile::tempdir().unwrap();
    let whole = fs::read("/bin/true").unwrap();
    let file = directory.path().join("broken");
    for (at, value) in [(4, 1_u8), (5, 2), (0, 0), (54, 1), (32, 0xff), (39, 0xff)] {
        let mut bytes = whole.clone();
        bytes[at] = value;
        fs::write(&file, &bytes).unwrap();
        assert_eq!(ids_of(&file).0, BuildIds::default(), "byte {at}");
        fs::remove_file(&file).unwrap();
    }
    for length in [0, 1, 63, 64, 65, 200, 700] {
        fs::write(&file, &whole[..length]).unwrap();
        ids_of(&file);
        fs::remove_file(&file).unwrap();
    }
}

#[test]
fn the_vdso_is_one_file_for_all() {
    let mut registry = Registry::new(ProcRoot::default(), RegistryLimits::default());
    registry.scan(Pid(std::process::id())).unwrap();
    let process = registry.process(Pid(std::process::id())).unwrap();
    let mapping =
        process.mappings().find(|mapping| mapping.backing == sidewinder_process::Backing::Vdso).unwrap();
    let mut files = FileTable::new(ProcRoot::default(), FileTableLimits::default());
    let first = files.identify(process, mapping).unwrap();
    let second = files.identify(process, mapping).unwrap();
    assert_eq!((first.id, first.is_new, second.is_new), (second.id, true, false));
    let entry = files.get(first.id).unwrap();
    assert!(entry.build_ids().gnu.is_some());
    let mut magic = [0; 4];
    entry.opened().unwrap().read_exact_at(&mut magic, 0).unwrap();
    assert_eq!(&magic, b"\x7fELF");
}

#[test]
fn a_root_opens_regular_files_inside_it_and_no_others() {
    let target = Target::new();
    let root = ProcessRoot::from_pid(&target.tree.proc_root(), Pid(PID)).unwrap();
    let reader = own_credentials();
    let below = |path: &str| target.tree.root(PID).join(path);
    symlink("/lib/x", below("inside")).unwrap();
    symlink("../../../../../../../../etc/passwd", below("outside")).unwrap();
    symlink("loop", below("loop")).unwrap();
    assert!(Command::new("mkfifo").arg(below("fifo")).status().unwrap().success());
    fs::write(below("two\nlines\x1b[31m"), "").unwrap();
    // Resolved by the kernel, and step by step.
    for trust in [PathTrust::Operator, PathTrust::Proven { reader: &reader, binary_owner: None }] {
        let open = |path: &str| root.open(std::iter::once(path.into()), trust).next().unwrap();
        assert!(open("lib/x").is_ok());
        assert!(matches!(open("lib/none"), Err(OpenError::NotFound)));
        assert!(matches!(open("lib"), Err(OpenError::NotRegular)));
        assert!(open("inside").is_ok(), "an absolute link starts at the root");
        assert!(matches!(open("outside"), Err(OpenError::NotFound)));
        assert!(matches!(open("loop"), Err(OpenError::NotFound)));
        assert!(matches!(open("fifo"), Err(OpenError::NotRegular)), "nobody waits for a writer");
        for path in ["", "lib/\0x", &"x/".repeat(4096), &"x".repeat(300), "lib/x/../x"] {
            assert!(matches!(open(path), Err(OpenError::NotFound)), "{path:?}");
        }
        assert!(open("two\nlines\x1b[31m").is_ok(), "a name is bytes");
        assert!(open("../../../../lib/x").is_ok(), "above the root is the root");
    }
}

fn own_credentials() -> Credentials {
    Credentials::read(&ProcessDir::open(&ProcRoot::default(), Pid(std::process::id())).unwrap()).unwrap()
}

#[test]
fn a_root_in_which_a_file_system_never_answers_is_not_waited_for() {
    let target = Target::new();
    let root = ProcessRoot::from_pid(&target.tree.proc_root(), Pid(PID)).unwrap();
    let Some(mount) = SilentMount::over_the_file_of(&target) else { return };
    let (answer, answers) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let reader = own_credentials();
        for trust in [PathTrust::Operator, PathTrust::Proven { reader: &reader, binary_owner: None }] {
            let opened = root.open(std::iter::once(b"lib/x.debug".to_vec()), trust).next().unwrap();
            answer.send(opened.map(drop)).unwrap();
        }
    });
    let next =
        || answers.recv_timeout(std::time::Duration::from_secs(10)).expect("nobody waits for the mount");
    let opened = [next(), next()];
    drop(mount);
    for opened in opened {
        assert!(matches!(opened, Err(OpenError::NotCached)), "{opened:?}");
    }
}

/// A user of this machine without a name, and an unrelated one.
const USER: u32 = 12_001;
const STRANGER: u32 = 12_002;

/// A process of [`USER`]'s.
struct OfUser(Child);

impl OfUser {
    /// `None` if we can't act as other users.
    fn start() -> Option<Self> {
        let child = Command::new("sleep").arg("600").uid(USER).gid(USER).spawn();
        if child.is_err() {
            eprintln!("SKIPPED: root alone can be other users");
        }
        child.ok().map(Self)
    }

    fn credentials(&self) -> Credentials {
        Credentials::read(&ProcessDir::open(&ProcRoot::default(), Pid(self.0.id())).unwrap()).unwrap()
    }
}

impl Drop for OfUser {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A world-writable directory with a file of each kind.
struct World {
    target: Target,
    reader: Credentials,
}

impl World {
    fn new(user: &OfUser) -> Self {
        let world = Self { target: Target::new(), reader: user.credentials() };
        world.directory("tmp", 0o1777, 0);
        world
    }

    fn at(&self, path: &str) -> PathBuf {
        self.target.tree.root(PID).join(path)
    }

    fn directory(&self, path: &str, mode: u32, owner: u32) {
        fs::create_dir_all(self.at(path)).unwrap();
        self.own(path, mode, owner);
    }

    fn file(&self, path: &str, mode: u32, owner: u32) {
        fs::write(self.at(path), "").unwrap();
        self.own(path, mode, owner);
    }

    fn own(&self, path: &str, mode: u32, owner: u32) {
        chown(self.at(path), Some(owner), Some(owner)).unwrap();
        fs::set_permissions(self.at(path), fs::Permissions::from_mode(mode)).unwrap();
    }

    fn link(&self, path: &str, to: &str, owner: u32) {
        symlink(to, self.at(path)).unwrap();
        lchown(self.at(path), Some(owner), Some(owner)).unwrap();
    }

    fn open(&self, path: &str, trust: PathTrust<'_>) -> Result<fs::File, OpenError> {
        let root = ProcessRoot::from_pid(&self.target.tree.proc_root(), Pid(PID)).unwrap();
        root.open(std::iter::once(path.into()), trust).next().unwrap()
    }

    fn named(&self, path: &str) -> Result<fs::File, OpenError> {
        self.open(path, PathTrust::Named { reader: &self.reader })
    }

    fn proven(&self, path: &str, binary_owner: Option<u32>) -> Result<fs::File, OpenError> {
        self.open(path, PathTrust::Proven { reader: &self.reader, binary_owner })
    }
}

#[test]
fn a_file_by_name_alone_is_the_users_or_roots_and_has_no_other_name() {
    let Some(user) = OfUser::start() else { return };
    let world = World::new(&user);
    world.file("tmp/own", 0o600, USER);
    world.file("tmp/of-root", 0o644, 0);
    assert!(world.named("tmp/own").is_ok() && world.named("tmp/of-root").is_ok());

    world.file("tmp/of-stranger", 0o644, STRANGER);
    assert!(matches!(world.named("tmp/of-stranger"), Err(OpenError::Owner(STRANGER))));
    world.file("tmp/secret", 0o600, 0);
    assert!(matches!(world.named("tmp/secret"), Err(OpenError::Unreadable)));
    for target in ["/tmp/own", "secret", "/tmp/missing"] {
        let link = format!("tmp/to-{}", target.len());
        world.link(&link, target, USER);
        assert!(matches!(world.named(&link), Err(OpenError::Link)), "{target}");
    }
    fs::hard_link(world.at("tmp/of-root"), world.at("tmp/another")).unwrap();
    assert!(matches!(world.named("tmp/another"), Err(OpenError::HardLink)));
    assert!(Command::new("mkfifo").arg(world.at("tmp/fifo")).status().unwrap().success());
    world.own("tmp/fifo", 0o666, USER);
    assert!(matches!(world.named("tmp/fifo"), Err(OpenError::NotRegular)));
}

#[test]
fn the_directories_on_the_way_to_a_name_are_the_users_or_roots_too() {
    let Some(user) = OfUser::start() else { return };
    let world = World::new(&user);
    for (directory, mode, owner) in
        [("open", 0o777, 0), ("home", 0o700, USER), ("strange", 0o755, STRANGER), ("closed", 0o700, 0)]
    {
        world.directory(directory, 0o755, 0);
        world.file(&format!("{directory}/x"), 0o644, USER);
        world.own(directory, mode, owner);
    }
    assert!(world.named("open/x").is_ok() && world.named("home/x").is_ok());
    assert!(matches!(world.named("strange/x"), Err(OpenError::Owner(STRANGER))));
    assert!(matches!(world.named("closed/x"), Err(OpenError::NotFound)), "the process can't get there");
    world.link("by-root", "/home", 0);
    world.link("by-user", "home", USER);
    assert!(world.named("by-root/x").is_ok(), "as where /tmp leads to /var/tmp");
    assert!(matches!(world.named("by-user/x"), Err(OpenError::Link)));
}

#[test]
fn a_file_that_proves_itself_is_found_by_links_and_read_as_its_process_could() {
    let Some(user) = OfUser::start() else { return };
    let world = World::new(&user);
    world.directory("debug/store", 0o755, 0);
    world.file("debug/store/x", 0o644, 0);
    world.link("debug/link", "../../../debug/./store/x", USER);
    assert!(world.proven("debug/link", None).is_ok());
    world.link("debug/round", "round", USER);
    assert!(matches!(world.proven("debug/round", None), Err(OpenError::NotFound)));
    world.file("debug/secret", 0o600, 0);
    world.link("debug/to-secret", "/debug/secret", USER);
    assert!(matches!(world.proven("debug/to-secret", None), Err(OpenError::Unreadable)));
    world.directory("closed", 0o755, 0);
    world.file("closed/x", 0o644, 0);
    world.own("closed", 0o700, 0);
    for path in ["closed/x", "closed/../debug/store/x"] {
        assert!(matches!(world.proven(path, None), Err(OpenError::NotFound)), "{path}");
    }
    // The owner of the binary could have put anything into that.
    world.file("debug/of-stranger", 0o644, STRANGER);
    assert!(matches!(world.proven("debug/of-stranger", None), Err(OpenError::Owner(STRANGER))));
    assert!(world.proven("debug/of-stranger", Some(STRANGER)).is_ok());
    // The operator chose the directory.
    assert!(world.open("debug/to-secret", PathTrust::Operator).is_ok());
}
