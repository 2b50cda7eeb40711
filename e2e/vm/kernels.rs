//! Debian's kernels, by apt, beside and without touching what this machine has installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use sidewinder_e2e::paths;

const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// Where the stable kernels come from, and where the newest is looked for.
const SUITES: [&str; 6] =
    ["bullseye", "bookworm", "bookworm-backports", "trixie-backports", "sid", "experimental"];
/// The kernel for guests: small, and with all that a guest needs built in.
const PACKAGE: &str = "linux-image-cloud-amd64";
/// What the archive has is asked anew after this long.
const LISTS_AGE: Duration = Duration::from_secs(24 * 3600);

/// Which kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wanted {
    /// That of a suite.
    Of(&'static str),
    /// The newest of all suites.
    Newest,
}

/// A private configuration of apt.
#[derive(Debug)]
pub(crate) struct Archive {
    folder: PathBuf,
}

impl Archive {
    /// Learns what the archive has.
    ///
    /// # Errors
    /// When the archive can't be reached and never was.
    pub(crate) fn open() -> Result<Self> {
        let archive = Self { folder: paths::cache().join("vm") };
        for folder in ["state/lists/partial", "cache/archives/partial", "kernels"] {
            fs::create_dir_all(archive.folder.join(folder))?;
        }
        let site = site()?;
        let suites = SUITES.map(|suite| format!("deb [signed-by={KEYRING}] {site} {suite} main\n"));
        fs::write(archive.folder.join("sources.list"), suites.concat())?;
        let stamp = archive.folder.join("updated");
        let age = fs::metadata(&stamp).and_then(|metadata| metadata.modified()).ok();
        if age.and_then(|at| at.elapsed().ok()).is_none_or(|age| age > LISTS_AGE) {
            archive.apt("apt-get", &["update", "-qq"])?;
            fs::write(stamp, "")?;
        }
        Ok(archive)
    }

    /// The compressed image of a kernel.
    ///
    /// # Errors
    /// When the archive doesn't have it, or hands it out in a form that isn't known.
    pub(crate) fn image(&self, wanted: Wanted) -> Result<PathBuf> {
        // package | version | archive suite/main ..., newest first.
        let versions = self.apt("apt-cache", &["madison", PACKAGE])?;
        let version = versions
            .lines()
            .filter_map(|line| line.split_once('|')?.1.split_once('|'))
            .find(|(_, place)| match wanted {
                Wanted::Of(suite) => place.contains(&format!(" {suite}/main ")),
                Wanted::Newest => true,
            })
            .map(|(version, _)| version.trim())
            .with_context(|| format!("no suite offers {PACKAGE} for {wanted:?}"))?;
        let package = self.dependency(&format!("{PACKAGE}={version}"), "linux-image-")?;
        // Since Linux 7 the image itself is in a package of its own.
        let package = self.dependency(&package, "linux-binary-").unwrap_or(package);
        let folder = self.folder.join("kernels").join(&package);
        if image_in(&folder).is_none() {
            self.download(&package, &folder)?;
        }
        image_in(&folder).with_context(|| format!("{package} has no vmlinuz"))
    }

    /// The first package of this kind that a package depends on.
    fn dependency(&self, package: &str, kind: &str) -> Result<String> {
        let shown = self.apt("apt-cache", &["show", package])?;
        let names = shown.lines().filter_map(|line| line.strip_prefix("Depends: "));
        let mut names = names.flat_map(|names| names.split([',', '|'])).map(str::trim);
        let name = names.find(|name| name.starts_with(kind));
        let name = name.and_then(|name| name.split(' ').next());
        name.map(str::to_owned).with_context(|| format!("{package} depends on no {kind}*"))
    }

    fn download(&self, package: &str, folder: &Path) -> Result<()> {
        let scratch = tempfile::tempdir_in(&self.folder)?;
        self.apt_in(scratch.path(), "apt-get", &["download", "-qq", package])?;
        let file = fs::read_dir(scratch.path())?.next().context("apt downloaded nothing")??.path();
        let unpacked = scratch.path().join("unpacked");
        run(Command::new("dpkg-deb").arg("-x").arg(file).arg(&unpacked))?;
        fs::rename(unpacked, folder)?;
        Ok(())
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
        options.iter().for_each(|option| {
            command.args(["-o", option]);
        });
        run(command.args(arguments))
    }
}

/// Where this machine has Debian's packages from.
fn site() -> Result<String> {
    let wanted = ["indextargets", "--format", "$(REPO_URI) $(LABEL)", "Created-By: Packages"];
    let targets = run(Command::new("apt-get").args(wanted))?;
    let site = targets.lines().find_map(|line| line.strip_suffix(" Debian"));
    site.map(str::to_owned).context("apt on this machine has no sources of Debian: run it on Debian")
}

fn image_in(folder: &Path) -> Option<PathBuf> {
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).ok()?.flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(entry.path());
            } else if entry.file_name().as_encoded_bytes().starts_with(b"vmlinuz") {
                return Some(entry.path());
            }
        }
    }
    None
}

/// Runs a command to its good end, and returns what it printed.
pub(crate) fn run(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot run {:?}", command.get_program()))?;
    if !output.status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
