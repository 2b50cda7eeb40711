//! A machine that boots a kernel, profiles, and tells what came out.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail};
use sidewinder_e2e_support::command::run;
use sidewinder_e2e_support::{paths, python, workload};
use tempfile::TempDir;

use crate::machine::Machine;

/// The guest's memory: an archive of files, which the kernel unpacks as its root.
#[derive(Debug)]
pub(crate) struct Root {
    machine: Machine,
    folder: TempDir,
    /// An environment variable of `init`: `NAME=VALUE`, or nothing.
    variable: String,
}

impl Root {
    /// The profiler, the workloads, Python, the libraries of these, and a shell to run them.
    ///
    /// # Errors
    /// When one of these can't be had.
    pub(crate) fn build() -> Result<Self> {
        let programs = [
            (paths::sidewinder()?, "/sidewinder"),
            (workload::LADDER.compiled()?, "/ladder"),
            (workload::READS.compiled()?, "/reads"),
            (workload::REC.compiled()?, "/rec"),
            (workload::CONVOYS.compiled()?, "/convoys"),
            (workload::FAULTS.compiled()?, "/faults"),
            (workload::WRITES.compiled()?, "/writes"),
            (python::SYSTEM.into(), python::SYSTEM),
        ];
        let ladder = paths::e2e().join("workloads/python/ladder.py");
        let modules = python_modules()?.into_iter().map(|module| (module.clone(), module));
        let programs = programs.map(|(program, name)| (program, name.to_owned()));
        let files = modules.chain([(ladder, "/ladder.py".into())]);
        Self::of(Machine::Amd64, "init", &busybox()?, programs, files)
    }

    /// Programs and other files, each under its name there, the libraries that the programs need, and a shell to run `init`, a
    /// script of this folder.
    ///
    /// # Errors
    /// When one of these can't be had.
    pub(crate) fn of(
        machine: Machine,
        init: &str,
        busybox: &Path,
        programs: impl IntoIterator<Item = (PathBuf, String)>,
        files: impl IntoIterator<Item = (PathBuf, PathBuf)>,
    ) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let root = folder.path().join("root");
        let put = |from: &Path, to: &Path| -> Result<()> {
            let to = root.join(to.strip_prefix("/")?);
            fs::create_dir_all(to.parent().context("no folder")?)?;
            fs::copy(from, &to).with_context(|| from.display().to_string())?;
            Ok(fs::set_permissions(&to, fs::Permissions::from_mode(0o755))?)
        };
        put(&paths::e2e().join("vm").join(init), Path::new("/init"))?;
        put(busybox, Path::new("/bin/busybox"))?;
        for (program, name) in programs {
            put(&program, Path::new(&name))?;
            for (library, name) in machine.libraries_of(&program)? {
                put(&library, &name)?;
            }
        }
        for (file, name) in files {
            put(&file, &name)?;
        }
        let archive = folder.path().join("root.cpio");
        run(Command::new("sh")
            .args(["-c", "find . | cpio --quiet -o -H newc > \"$0\""])
            .arg(&archive)
            .current_dir(root))?;
        Ok(Self { machine, folder, variable: String::new() })
    }

    /// The same, with an environment variable for `init`, whose value has no spaces.
    pub(crate) fn with_variable(self, name: &str, value: &str) -> Self {
        Self { variable: format!("{name}={value}"), ..self }
    }

    /// Boots a kernel with this root, waits for its end, and returns what it said. Now and then an emulated CPU runs into
    /// code that another one is just patching, before there is any process: such a guest is booted once more.
    ///
    /// # Errors
    /// When the guest doesn't come to its end in time; the error has the end of its console.
    pub(crate) fn boot(&self, kernel: &Path, cpus: u32, patience: Duration) -> Result<Told> {
        let mut told = self.boot_once(kernel, cpus, patience)?;
        if told.sections.is_empty() {
            told = self.boot_once(kernel, cpus, patience)?;
        }
        if !told.sections.contains_key("end") {
            let console = String::from_utf8_lossy(&fs::read(self.console()).unwrap_or_default()).into_owned();
            let lines: Vec<&str> = console.lines().rev().take(25).collect();
            let lines: Vec<&str> = lines.into_iter().rev().collect();
            bail!(
                "the guest did not finish; it reported {:?}; its console ends with\n{}",
                told.sections.keys(),
                lines.join("\n")
            );
        }
        Ok(told)
    }

    /// What a guest said until its end, or until it was out of time. It is kept beside the compiled programs.
    fn boot_once(&self, kernel: &Path, cpus: u32, patience: Duration) -> Result<Told> {
        let name = kernel.file_name().context("the kernel has no name")?.to_string_lossy();
        let told = paths::compiled()?.join(format!("guest-of-{name}"));
        let variables = format!("{} unix_time={}", self.variable, unix_time_seconds()?);
        let mut machine = self
            .machine
            .emulator(&self.console(), &told, &variables)
            .args(["-m", "2048", "-smp", &cpus.to_string(), "-display", "none", "-no-reboot", "-nic", "none"])
            .arg("-kernel")
            .arg(kernel)
            .arg("-initrd")
            .arg(self.folder.path().join("root.cpio"))
            .stdin(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot run {}", self.machine.program()))?;
        let deadline = Instant::now() + patience;
        while machine.try_wait()?.is_none() {
            if Instant::now() > deadline {
                machine.kill()?;
                machine.wait()?;
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(Told::parse(&String::from_utf8_lossy(&fs::read(told).unwrap_or_default())))
    }

    fn console(&self) -> PathBuf {
        self.folder.path().join("console")
    }
}

fn unix_time_seconds() -> Result<u64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs())
}

/// What a guest said, by section.
#[derive(Debug, Default)]
pub(crate) struct Told {
    sections: BTreeMap<String, String>,
}

impl Told {
    fn parse(text: &str) -> Self {
        let mut told = Self::default();
        let mut section = String::new();
        for line in text.lines() {
            let line = line.trim_end_matches('\r');
            if let Some(name) = line.strip_prefix("== ") {
                name.clone_into(&mut section);
                told.sections.entry(section.clone()).or_default();
            } else if let Some(text) = told.sections.get_mut(&section) {
                text.push_str(line);
                text.push('\n');
            }
        }
        told
    }

    /// A section.
    ///
    /// # Errors
    /// When the guest did not get so far.
    pub(crate) fn section(&self, name: &str) -> Result<&str> {
        self.sections
            .get(name)
            .map(String::as_str)
            .with_context(|| format!("the guest said nothing of {name}"))
    }
}

/// The files of the modules that the system's Python imports to run `ladder.py`.
fn python_modules() -> Result<Vec<PathBuf>> {
    const LIST: &str = "import os, sys, time
for module in sys.modules.values():
    print(getattr(module, '__file__', None) or '')";
    let listed = run(Command::new(python::SYSTEM).args(["-I", "-S", "-c", LIST]))?;
    Ok(listed.lines().filter(|path| !path.is_empty()).map(PathBuf::from).collect())
}

/// The one of this machine.
pub(crate) fn busybox() -> Result<PathBuf> {
    let places = ["/bin/busybox", "/usr/bin/busybox"];
    let found = places.iter().map(PathBuf::from).find(|path| path.is_file());
    found.context("no busybox: install busybox-static")
}

/// The files below a folder, with their places below another one. Links to nothing are left out.
pub(crate) fn files_below(folder: &Path, place: &Path) -> Result<Vec<(PathBuf, PathBuf)>> {
    let (mut files, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).with_context(|| next.display().to_string())? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.is_file() {
                let place = place.join(path.strip_prefix(folder)?);
                files.push((path, place));
            }
        }
    }
    Ok(files)
}
