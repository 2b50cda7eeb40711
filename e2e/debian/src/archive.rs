//! Debian's packages and sources, and sources of Ubuntu, by apt, beside and without touching what this machine has installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use sidewinder_e2e_support::command::run;
use sidewinder_e2e_support::paths;

const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// Ubuntu's archive, and its keyring, which is a package of Debian.
const UBUNTU: &str = "http://archive.ubuntu.com/ubuntu";
const UBUNTU_KEYRING: (&str, &str) = ("ubuntu-keyring", "usr/share/keyrings/ubuntu-archive-keyring.gpg");
/// The suites that are looked at.
const SUITES: [&str; 7] =
    ["bullseye", "bookworm", "bookworm-backports", "trixie", "trixie-backports", "sid", "experimental"];
/// How long a listing of the archive is used.
const LISTS_AGE: Duration = Duration::from_secs(24 * 3600);

/// A private configuration of apt.
#[derive(Debug)]
pub struct Archive {
    folder: PathBuf,
    /// Debian's name of another architecture than this machine's.
    foreign: Option<&'static str>,
}

impl Archive {
    /// Learns what the archive has.
    ///
    /// # Errors
    /// When the archive can't be reached and never was.
    pub fn open() -> Result<Self> {
        let site = site()?;
        let sources: String = SUITES.iter().map(|suite| entry("deb", KEYRING, &site, suite)).collect();
        Self::open_in(Self { folder: paths::cache().join("vm"), foreign: None }, &sources)
    }

    /// Learns which sources a suite of Ubuntu has: those of a release stay, where those of Debian's sid give way to newer ones.
    ///
    /// # Errors
    /// When the archive can't be reached and never was.
    pub fn open_sources_of_ubuntu(suite: &str) -> Result<Self> {
        let folder = paths::cache().join("ubuntu-sources");
        let sources = entry("deb-src", &keyring_of_ubuntu(&folder)?, UBUNTU, suite);
        Self::open_in(Self { folder, foreign: None }, &sources)
    }

    /// Learns what a suite of Ubuntu has for another architecture, as [`open_foreign`](Self::open_foreign) does of Debian's.
    ///
    /// # Errors
    /// When the archive can't be reached and never was.
    pub fn open_foreign_of_ubuntu(architecture: &'static str, folder: &str, suite: &str) -> Result<Self> {
        let folder = paths::cache().join(folder);
        let sources = entry("deb", &keyring_of_ubuntu(&folder)?, UBUNTU, suite);
        Self::open_in(Self { folder, foreign: Some(architecture) }, &sources)
    }

    /// Learns which sources a suite of Debian has.
    ///
    /// # Errors
    /// When the archive can't be reached and never was.
    pub fn open_sources(suite: &str) -> Result<Self> {
        let sources = entry("deb-src", KEYRING, &site()?, suite);
        Self::open_in(Self { folder: paths::cache().join("debian-sources"), foreign: None }, &sources)
    }

    /// Learns what suites have for another architecture, by Debian's name for it: `arm64`. What is learned and downloaded is kept
    /// in a folder of this name.
    ///
    /// # Errors
    /// When the archive can't be reached and never was.
    pub fn open_foreign(architecture: &'static str, folder: &str, suites: &[&str]) -> Result<Self> {
        let folder = paths::cache().join(folder);
        let site = site()?;
        let sources: String = suites.iter().map(|suite| entry("deb", KEYRING, &site, suite)).collect();
        Self::open_in(Self { folder, foreign: Some(architecture) }, &sources)
    }

    fn open_in(archive: Self, sources: &str) -> Result<Self> {
        for folder in ["state/lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(archive.folder.join(folder))?;
        }
        let (list, stamp) = (archive.folder.join("sources.list"), archive.folder.join("updated"));
        let is_known = fs::read_to_string(&list).is_ok_and(|known| known == sources);
        fs::write(&list, sources)?;
        let age = fs::metadata(&stamp).and_then(|metadata| metadata.modified()).ok();
        if !is_known || age.and_then(|at| at.elapsed().ok()).is_none_or(|age| age > LISTS_AGE) {
            archive.apt("apt-get", &["update", "-qq"])?;
            fs::write(stamp, "")?;
        }
        Ok(archive)
    }

    /// Where it keeps what it has downloaded.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The newest version of a package in a suite, or in any.
    ///
    /// # Errors
    /// When the archive doesn't have it.
    pub fn version(&self, package: &str, suite: Option<&str>) -> Result<String> {
        // package | version | archive suite/main ..., newest first.
        let versions = self.apt("apt-cache", &["madison", package])?;
        versions
            .lines()
            .filter_map(|line| line.split_once('|')?.1.split_once('|'))
            .find(|(_, place)| suite.is_none_or(|suite| place.contains(&format!(" {suite}/main "))))
            .map(|(version, _)| version.trim().to_owned())
            .with_context(|| format!("the archive has no {package} in {}", suite.unwrap_or("any suite")))
    }

    /// The first package of this kind that a package depends on.
    ///
    /// # Errors
    /// When there is none.
    pub fn dependency(&self, package: &str, kind: &str) -> Result<String> {
        let shown = self.apt("apt-cache", &["show", package])?;
        let names = shown.lines().filter_map(|line| line.strip_prefix("Depends: "));
        let mut names = names.flat_map(|names| names.split([',', '|'])).map(str::trim);
        let name = names.find(|name| name.starts_with(kind));
        let name = name.and_then(|name| name.split(' ').next());
        name.map(str::to_owned).with_context(|| format!("{package} depends on no {kind}*"))
    }

    /// Downloads a package, given as `NAME` or `NAME=VERSION`, and adds its files to a folder.
    ///
    /// # Errors
    /// When the archive doesn't hand it out.
    pub fn unpack(&self, package: &str, folder: &Path) -> Result<()> {
        fs::create_dir_all(folder)?;
        let scratch = tempfile::tempdir_in(&self.folder)?;
        self.apt_in(scratch.path(), "apt-get", &["download", "-qq", package])?;
        let file = fs::read_dir(scratch.path())?.next().context("apt downloaded nothing")??.path();
        run(Command::new("dpkg-deb").arg("-x").arg(file).arg(folder))?;
        Ok(())
    }

    /// Downloads the source of a package, as its authors have released it, into a folder.
    ///
    /// # Errors
    /// When the archive doesn't hand it out.
    pub fn unpack_source(&self, package: &str, folder: &Path) -> Result<()> {
        fs::create_dir_all(folder)?;
        let scratch = tempfile::tempdir_in(&self.folder)?;
        self.apt_in(
            scratch.path(),
            "apt-get",
            &["source", "-qq", "--download-only", "--only-source", "--tar-only", package],
        )?;
        let mut files = fs::read_dir(scratch.path())?.filter_map(|entry| Some(entry.ok()?.path()));
        let is_release = |path: &PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            name.contains(".orig.tar.") && !name.ends_with(".asc")
        };
        let release = files.find(is_release).context("apt downloaded no source")?;
        let mut tar = Command::new("tar");
        tar.arg("-xf").arg(release).arg("-C").arg(folder).arg("--strip-components=1");
        run(&mut tar).map(drop)
    }

    fn apt(&self, program: &str, arguments: &[&str]) -> Result<String> {
        self.apt_in(&self.folder, program, arguments)
    }

    fn apt_in(&self, folder: &Path, program: &str, arguments: &[&str]) -> Result<String> {
        let at = |name: &str| self.folder.join(name).display().to_string();
        let options = [
            format!("Dir::Etc::SourceList={}", at("sources.list")),
            "Dir::Etc::SourceParts=/dev/null".to_owned(),
            format!("Dir::State={}", at("state")),
            format!("Dir::Cache={}", at("cache")),
            "Acquire::Languages=none".to_owned(),
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false".to_owned(),
            "APT::Sandbox::User=root".to_owned(),
        ];
        let mut command = Command::new(program);
        command.current_dir(folder);
        let foreign = self
            .foreign
            .iter()
            .flat_map(|name| [format!("APT::Architecture={name}"), format!("APT::Architectures::={name}")]);
        options.into_iter().chain(foreign).for_each(|option| {
            command.args(["-o", &option]);
        });
        run(command.args(arguments))
    }
}

/// The file with Ubuntu's keys, in a folder.
fn keyring_of_ubuntu(folder: &Path) -> Result<String> {
    let (package, file) = UBUNTU_KEYRING;
    let keyring = folder.join(file);
    if !keyring.is_file() {
        Archive::open()?.unpack(package, folder)?;
    }
    Ok(keyring.display().to_string())
}

/// A line of a list of sources.
fn entry(kind: &str, keyring: &str, site: &str, suite: &str) -> String {
    format!("{kind} [signed-by={keyring}] {site} {suite} main\n")
}

/// Where this machine has Debian's packages from.
fn site() -> Result<String> {
    let wanted = ["indextargets", "--format", "$(REPO_URI) $(LABEL)", "Created-By: Packages"];
    let targets = run(Command::new("apt-get").args(wanted))?;
    let site = targets.lines().find_map(|line| line.strip_suffix(" Debian"));
    site.map(str::to_owned).context("apt on this machine has no sources of Debian: run it on Debian")
}
