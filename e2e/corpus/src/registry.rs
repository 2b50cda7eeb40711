//! Programs of package registries (`workloads/python/pypi.py`, `workloads/java/Programs.java`, `workloads/node/npm.js`), and what
//! they need, fetched once.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use sidewinder_e2e_support::command::run;
use sidewinder_e2e_support::{lock, paths, python};

const REQUIREMENTS: &str = include_str!("../requirements.txt");
const PROJECT: &str = include_str!("../maven/pom.xml");
const PROGRAMS_OF_JAVA: &str = include_str!("../../workloads/java/Programs.java");
const PACKAGE: &str = include_str!("../npm/package.json");
const PACKAGE_LOCK: &str = include_str!("../npm/package-lock.json");

/// A registry of packages. Of each, what is fetched is listed in the version that was tried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Registry {
    /// A virtual environment of the system's Python.
    Pypi,
    /// `lib/` with libraries of Java, and `classes/` with the programs that use them.
    Maven,
    /// `node_modules/`.
    Npm,
}

impl Registry {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Pypi, Self::Maven, Self::Npm];

    /// The variable with its folder in the commands of programs.
    #[must_use]
    pub fn variable(self) -> &'static str {
        match self {
            Self::Pypi => "PYPI",
            Self::Maven => "MAVEN",
            Self::Npm => "NPM",
        }
    }

    /// The programs that fetch and build.
    #[must_use]
    pub const fn tools(self) -> &'static [&'static str] {
        match self {
            Self::Pypi => &[python::SYSTEM],
            Self::Maven => &["mvn", "javac"],
            Self::Npm => &["npm"],
        }
    }

    /// Where its packages are, below `target/e2e`, once they are fetched.
    ///
    /// # Errors
    /// When there is no such folder.
    pub fn folder(self) -> Result<PathBuf> {
        Ok(paths::compiled()?.join(self.variable().to_lowercase()))
    }

    /// Its folder, with all that is needed: fetched where that has not been done.
    ///
    /// # Errors
    /// When something can't be fetched or installed.
    pub fn fetched(self) -> Result<PathBuf> {
        let folder = self.folder()?;
        let _lock = lock::exclusive(&folder)?;
        let stamp = folder.join("installed.txt");
        let wanted = self.files().map(|(_, text)| text).concat();
        if fs::read_to_string(&stamp).is_ok_and(|known| known == wanted) {
            return Ok(folder);
        }
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        fs::create_dir_all(&folder)?;
        for (name, text) in self.files() {
            fs::write(folder.join(name), text)?;
        }
        self.install(&folder).with_context(|| format!("can't fetch what the corpus has of {self:?}"))?;
        fs::write(stamp, wanted)?;
        Ok(folder)
    }

    /// What is to be fetched, and what is compiled then: the names of files, and their text.
    fn files(self) -> [(&'static str, &'static str); 2] {
        match self {
            Self::Pypi => [("requirements.txt", REQUIREMENTS), ("README", "Fetched for `make corpus`.\n")],
            Self::Maven => [("pom.xml", PROJECT), ("Programs.java", PROGRAMS_OF_JAVA)],
            Self::Npm => [("package.json", PACKAGE), ("package-lock.json", PACKAGE_LOCK)],
        }
    }

    fn install(self, folder: &Path) -> Result<()> {
        let run_in = |command: &mut Command| run(command.current_dir(folder)).map(drop);
        match self {
            Self::Pypi => {
                run_in(Command::new(python::SYSTEM).args(["-m", "venv", "."]))?;
                // Wheels alone: nothing is compiled here.
                let options = ["--no-deps", "--only-binary", ":all:", "-r", "requirements.txt"];
                let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
                run_in(Command::new(folder.join("bin/python")).args(pip).args(options))
            }
            Self::Maven => {
                run_in(Command::new("mvn").args([
                    "-q",
                    "-B",
                    "dependency:copy-dependencies",
                    "-DoutputDirectory=lib",
                ]))?;
                let options = ["-nowarn", "--release", "17", "-cp", "lib/*", "-d", "classes"];
                run_in(Command::new("javac").args(options).arg("Programs.java"))
            }
            // No package's own scripts are run.
            Self::Npm => run_in(Command::new("npm").args(["ci", "--ignore-scripts", "--silent"])),
        }
    }
}
