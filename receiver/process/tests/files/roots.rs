//! Files that are found by their names in the root of a process: which are opened, and whom they must belong to.

use super::*;

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
