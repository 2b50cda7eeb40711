//! Where things are: the repository, what is built from it, and what is kept between runs.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

/// The repository.
#[must_use]
pub fn repository() -> &'static Path {
    let e2e = e2e();
    e2e.parent().unwrap_or(e2e)
}

/// The `e2e` folder of the repository.
#[must_use]
pub fn e2e() -> &'static Path {
    let support = Path::new(env!("CARGO_MANIFEST_DIR"));
    support.parent().unwrap_or(support)
}

/// Kept between runs and ignored by git: Collectors, and what Debian's archive has. `$SIDEWINDER_CACHE` names another folder.
#[must_use]
pub fn cache() -> PathBuf {
    env::var_os("SIDEWINDER_CACHE").map_or_else(|| e2e().join(".cache"), PathBuf::from)
}

/// Cargo's target folder, found from where the running test or benchmark was built.
///
/// # Errors
/// When the running program does not lie in such a folder.
pub fn target() -> Result<PathBuf> {
    let program = env::current_exe().context("cannot tell where the running program is")?;
    let profile = program
        .ancestors()
        .find(|folder| folder.file_name().is_some_and(|name| name == "debug" || name == "release"))
        .with_context(|| format!("{} was not built by cargo", program.display()))?;
    Ok(profile.parent().unwrap_or(profile).to_path_buf())
}

/// What the tests compile: `target/e2e`, created on demand.
///
/// # Errors
/// When the folder cannot be made.
pub fn compiled() -> Result<PathBuf> {
    let folder = target()?.join("e2e");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    Ok(folder)
}

/// Where `e2e/setup.sh` leaves the programs that it builds: `target/e2e/tools`.
///
/// # Errors
/// As [`compiled`].
pub fn tools() -> Result<PathBuf> {
    Ok(compiled()?.join("tools"))
}

/// The profiler under test: `$SIDEWINDER`, else cargo's release build, else its debug build.
///
/// # Errors
/// When none of them is there.
pub fn sidewinder() -> Result<PathBuf> {
    if let Some(path) = env::var_os("SIDEWINDER") {
        let path = PathBuf::from(path);
        if !path.is_file() {
            bail!("SIDEWINDER names {}, which is no file", path.display());
        }
        return Ok(path);
    }
    let target = target()?;
    ["release", "debug"]
        .iter()
        .map(|profile| target.join(profile).join("sidewinder"))
        .find(|path| path.is_file())
        .with_context(|| {
            format!("no sidewinder in {}: run `cargo build --release -p sidewinder`", target.display())
        })
}
