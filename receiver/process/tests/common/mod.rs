//! Test programs, and `/proc` trees made of files for states that a real one can't have on demand.
#![allow(dead_code, reason = "each test uses its own part")]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use sidewinder_process::{Pid, ProcRoot, Registry, RegistryLimits};
use tempfile::TempDir;

/// Compiles C to a program or, with `-shared` among the arguments, a library.
pub(crate) fn compile(directory: &Path, name: &str, source: &str, arguments: &[&str]) -> PathBuf {
    let input = directory.join(format!("{name}.c"));
    let output = directory.join(name);
    fs::write(&input, source).unwrap();
    let compiled = Command::new("cc")
        .arg("-o")
        .arg(&output)
        .arg(&input)
        .args(arguments)
        .status()
        .expect("cc is installed");
    assert!(compiled.success());
    output
}

/// A child that prints a line when it is ready, and continues when a line is written to it.
pub(crate) struct Talker {
    pub(crate) child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Talker {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (to, from) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, to, from }
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid(self.child.id())
    }

    /// Waits for the next line.
    pub(crate) fn hear(&mut self) -> String {
        let mut line = String::new();
        assert!(self.from.read_line(&mut line).unwrap() > 0, "the child has ended");
        line.trim_end().to_owned()
    }

    pub(crate) fn say(&mut self, line: &str) {
        writeln!(self.to, "{line}").unwrap();
    }
}

impl Drop for Talker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A `/proc` made of plain files and links, so that a test can create any state of any process, including one for which an
/// attacker would need to win a race.
pub(crate) struct Tree {
    pub(crate) directory: TempDir,
}

impl Tree {
    pub(crate) fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn proc_root(&self) -> ProcRoot {
        ProcRoot(self.directory.path().join("proc"))
    }

    pub(crate) fn registry(&self) -> Registry {
        Registry::new(self.proc_root(), RegistryLimits::default())
    }

    /// The root directory of a process.
    pub(crate) fn root(&self, pid: u32) -> PathBuf {
        self.directory.path().join(format!("root-{pid}"))
    }

    pub(crate) fn add(&self, pid: u32, start_ticks: u64, maps: &str) {
        let process = self.proc_root().0.join(pid.to_string());
        fs::create_dir_all(&process).unwrap();
        fs::create_dir_all(self.root(pid)).unwrap();
        let stat = format!("{pid} (p{pid}) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {start_ticks} 0 0\n");
        fs::write(process.join("stat"), stat).unwrap();
        fs::write(process.join("maps"), maps).unwrap();
        fs::write(process.join("mountinfo"), "").unwrap();
        if !process.join("root").exists() {
            symlink(self.root(pid), process.join("root")).unwrap();
        }
    }

    pub(crate) fn remove(&self, pid: u32) {
        fs::remove_dir_all(self.proc_root().0.join(pid.to_string())).unwrap();
    }
}

/// The maps line of a file, as the kernel would write it for a mapping that starts at its second page.
pub(crate) fn line_for(file: &Path, shown_path: &str) -> String {
    let status = fs::metadata(file).unwrap();
    let (major, minor) = (rustix::fs::major(status.dev()), rustix::fs::minor(status.dev()));
    format!("400000-402000 r-xp 00001000 {major:02x}:{minor:02x} {} {shown_path}\n", status.ino())
}
