//! The packages for machines without containers.
//!
//! Their binary takes minutes to build: `make packages-test` does, and names their folder by `SIDEWINDER_PACKAGES`.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use object::{Architecture, Object as _};
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::{ARCHITECTURE, command, paths, requirement};

/// The packages. `None`: there are none, and the test is skipped.
fn packages(name: &str) -> Result<Option<PathBuf>> {
    match env::var_os("SIDEWINDER_PACKAGES") {
        Some(folder) => Ok(Some(folder.into())),
        None => requirement::elsewhere(name, "make packages-test").map(|()| None),
    }
}

/// The architectures that a folder has packages for.
fn architectures(folder: &Path) -> Result<Vec<String>> {
    let names = fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name())).collect::<Result<Vec<_>>>()?;
    let of_package = |name: &str| {
        let (_, architecture) = name.strip_suffix(".deb")?.rsplit_once('_')?;
        Some(architecture.to_owned())
    };
    Ok(names.iter().filter_map(|name| of_package(name.to_str()?)).collect())
}

/// The only file of a folder with this end of its name.
fn file_in(folder: &Path, end: &str) -> Result<PathBuf> {
    let files = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    let file = files.into_iter().find(|file| file.to_string_lossy().ends_with(end));
    file.with_context(|| format!("no file in {} ends with {end}", folder.display()))
}

/// Unpacks both packages for an architecture, which have to hold the same files, and returns where that of Debian is.
fn unpack(packages: &Path, architecture: &str, folder: &Path) -> Result<PathBuf> {
    let (installed, unpacked) = (folder.join("installed"), folder.join("unpacked"));
    fs::create_dir_all(&unpacked)?;
    let package = file_in(packages, &format!("_{architecture}.deb"))?;
    command::run(Command::new("dpkg-deb").arg("--extract").arg(&package).arg(&installed))?;
    let stated = command::run(Command::new("dpkg-deb").arg("--field").arg(&package).arg("Architecture"))?;
    ensure!(stated.trim() == architecture, "{} is for {stated}", package.display());
    let mut tar = Command::new("tar");
    tar.args(["--extract", "--strip-components=1", "--file"]);
    tar.arg(file_in(packages, &format!("-{architecture}.tar.gz"))?);
    command::run(tar.arg("--directory").arg(&unpacked))?;
    // All but what belongs to Debian's package: its copyright file, and the service in `lib`.
    let mut differences = Command::new("diff");
    differences.args(["--recursive", "--brief", "--exclude=copyright", "--exclude=lib"]);
    command::run(differences.arg(installed.join("usr")).arg(&unpacked))?;
    Ok(installed)
}

#[promise(Packages)]
fn the_configuration_and_the_service_of_the_package_are_valid() -> Result<()> {
    let folder = paths::repository().join("config/package");
    let mut validate = Command::new(paths::sidewinder()?);
    command::run(validate.arg("validate").arg("--config").arg(folder.join("config.yaml")))?;
    if requirement::program("the service of the package", "systemd-analyze")? {
        // It also looks for the program, which is not installed here.
        let service = fs::read_to_string(folder.join("sidewinder.service"))?;
        let copy = tempfile::tempdir()?;
        let file = copy.path().join("sidewinder.service");
        fs::write(&file, service.replace("/usr/bin/sidewinder", "/bin/true"))?;
        command::run(Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&file))?;
    }
    Ok(())
}

#[promise(Packages, test_all)]
fn the_packages_of_each_architecture_hold_its_program_and_the_same_documents() -> Result<()> {
    let Some(packages) = packages("the packages of each architecture")? else { return Ok(()) };
    command::run(Command::new("sha256sum").args(["--check", "SHA256SUMS"]).current_dir(&packages))?;
    let architectures = architectures(&packages)?;
    ensure!(
        architectures.iter().any(|name| name == ARCHITECTURE),
        "none for this machine: {architectures:?}"
    );
    let folder = tempfile::tempdir()?;
    let own = unpack(&packages, ARCHITECTURE, &folder.path().join(ARCHITECTURE))?;
    for architecture in architectures {
        let installed = match &*architecture {
            ARCHITECTURE => own.clone(),
            other => unpack(&packages, other, &folder.path().join(other))?,
        };
        let program = fs::read(installed.join("usr/bin/sidewinder"))?;
        let program = object::File::parse(&*program)?;
        let expected = if architecture == "arm64" { Architecture::Aarch64 } else { Architecture::X86_64 };
        ensure!(program.architecture() == expected, "the program for {architecture}");
        ensure!(program.section_by_name(".interp").is_none(), "it needs libraries of the machine");
        let mut differences = Command::new("diff");
        differences
            .args(["--recursive", "--brief"])
            .arg(own.join("usr/share"))
            .arg(installed.join("usr/share"));
        command::run(&mut differences)?;
    }
    Ok(())
}

#[promise(Packages, test_all)]
fn the_packages_run_where_they_are_unpacked() -> Result<()> {
    let Some(packages) = packages("the packages")? else { return Ok(()) };
    let folder = tempfile::tempdir()?;
    let installed = unpack(&packages, ARCHITECTURE, folder.path())?;
    let binary = installed.join("usr/bin/sidewinder");
    if requirement::ebpf("the packages")? {
        let profile = folder.path().join("profile.folded");
        let mut record = Command::new(&binary);
        record.args(["record", "-F", "997", "-o"]).arg(&profile);
        command::run(record.args(["--", "sh", "-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done"]))?;
        ensure!(fs::read_to_string(&profile)?.lines().count() > 0, "no stack");
    }
    let manual = installed.join("usr/share/man/man1");
    let help = command::run(Command::new(&binary).arg("--help"))?;
    let (_, commands) = help.split_once("Commands:\n").context("no commands")?;
    let lines = commands.lines().map_while(|line| line.strip_prefix("  "));
    // Descriptions go on in lines that begin further to the right.
    let commands = lines.filter_map(|line| line.split(' ').next().filter(|word| !word.is_empty()));
    let commands: Vec<&str> = commands.filter(|command| *command != "help").collect();
    ensure!(commands.len() > 10, "{commands:?} of {help}");
    for command in commands {
        let page = command::run(Command::new("zcat").arg(manual.join(format!("sidewinder-{command}.1.gz"))))?;
        ensure!(page.contains(".TH"), "no manual page of {command}: {page}");
    }
    for shell in ["zsh/vendor-completions/_sidewinder", "fish/vendor_completions.d/sidewinder.fish"] {
        let completions = fs::read_to_string(installed.join("usr/share").join(shell))?;
        ensure!(completions.contains("annotate"), "{shell}: {completions}");
    }
    let completions = installed.join("usr/share/bash-completion/completions/sidewinder");
    command::run(
        Command::new("bash")
            .arg("-c")
            .arg("source \"$1\" && complete -p sidewinder")
            .arg("bash")
            .arg(completions),
    )?;
    Ok(())
}
