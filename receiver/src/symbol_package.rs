//! The package that has the symbols of a binary without any.
//!
//! Fedora's binaries and some of Ubuntu's name their package in a note. Debian's package manager lists the files of each package;
//! that list is read in our own root alone, and counts only for a binary that is the same file there.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use serde_json::Value;
use sidewinder_process::{OpenedFile, read_package_note};
use sidewinder_text::ExternalText;

/// Where dpkg lists the files of each installed package (dpkg(1)).
const DPKG_LISTS: &str = "/var/lib/dpkg/info";
/// The most lists that are read, and the most of them in bytes: a desktop has 4,000 with 40 MB.
const LISTS_MAX: usize = 32 << 10;
const LISTS_BYTES_MAX: u64 = 256 << 20;
/// The longest name of a package that is shown; Debian's have at most 80 characters.
const NAME_BYTES_MAX: usize = 128;

/// The package of a binary.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum SymbolPackage {
    /// A package of Debian or Ubuntu.
    Debian(String),
    /// A source package of theirs.
    DebianSource(String),
    /// An RPM package.
    Rpm(String),
}

impl SymbolPackage {
    /// What installs the symbols.
    fn instruction(&self) -> String {
        match self {
            // The C library's package of symbols is older than the automatic ones.
            Self::Debian(name) if name == "libc6" => "install libc6-dbg".to_owned(),
            Self::Debian(name) => format!("install {}-dbgsym", ExternalText::new(name)),
            Self::DebianSource(name) => {
                format!("install the -dbgsym package of the source package {}", ExternalText::new(name))
            }
            Self::Rpm(name) => format!("run `dnf debuginfo-install {}`", ExternalText::new(name)),
        }
    }

    /// The package that a file's own note names.
    fn from_note(file: &OpenedFile) -> Option<Self> {
        Self::parse_note(&read_package_note(file).ok()??)
    }

    fn parse_note(note: &str) -> Option<Self> {
        let note: Value = serde_json::from_str(note).ok()?;
        let name = note.get("name")?.as_str().filter(|name| is_name(name))?.to_owned();
        match note.get("type")?.as_str()? {
            "rpm" => Some(Self::Rpm(name)),
            "deb" => Some(Self::DebianSource(name)),
            _ => None,
        }
    }
}

/// What a user can do about a binary without symbols. `asks_servers`: servers have been asked for them already.
pub(crate) fn advice(package: Option<&SymbolPackage>, asks_servers: bool) -> String {
    match (package.map(SymbolPackage::instruction), asks_servers) {
        (Some(install), false) => format!("{install}, or use --debuginfod"),
        (Some(install), true) => install,
        (None, false) => "install its debug symbols, or use --debuginfod".to_owned(),
        (None, true) => "no server has its debug symbols: install them, or build it with them".to_owned(),
    }
}

/// The package of each of these files, given by their paths as their processes see them.
pub(crate) fn packages_of(files: &[(&str, &OpenedFile)]) -> Vec<Option<SymbolPackage>> {
    let listed = dpkg_packages(Path::new(DPKG_LISTS), files.iter().map(|(path, _)| *path));
    let package = |(path, file): &(&str, &OpenedFile)| {
        let listed = listed.get(*path).filter(|_| is_own_file(path, file));
        listed.map(|name| SymbolPackage::Debian(name.clone())).or_else(|| SymbolPackage::from_note(file))
    };
    files.iter().map(package).collect()
}

/// Whether the path leads to the same file in our own root.
fn is_own_file(path: &str, file: &OpenedFile) -> bool {
    let opened = file.file().and_then(|file| file.metadata().ok());
    let ours = fs::metadata(path).ok();
    opened.zip(ours).is_some_and(|(opened, ours)| (opened.dev(), opened.ino()) == (ours.dev(), ours.ino()))
}

/// The installed packages that have these files, by path.
fn dpkg_packages<'a>(directory: &Path, paths: impl Iterator<Item = &'a str>) -> HashMap<&'a str, String> {
    // Where /lib is a link to /usr/lib, older packages list their files without /usr.
    let wanted: HashMap<&[u8], &str> = paths
        .flat_map(|path| {
            [Some(path), path.strip_prefix("/usr")].into_iter().flatten().map(move |at| (at, path))
        })
        .map(|(listed, path)| (listed.as_bytes(), path))
        .collect();
    let mut found = HashMap::new();
    let Ok(lists) = fs::read_dir(directory) else { return found };
    let mut left_bytes = LISTS_BYTES_MAX;
    for list in lists.take(LISTS_MAX).flatten() {
        if left_bytes == 0 {
            break;
        }
        let name = list.file_name();
        let Some(package) = name.to_str().and_then(|name| name.strip_suffix(".list")) else { continue };
        let package = package.split(':').next().unwrap_or(package);
        let mut text = Vec::new();
        let read = File::open(list.path()).and_then(|file| file.take(left_bytes).read_to_end(&mut text));
        if read.is_err() || !is_name(package) {
            continue;
        }
        left_bytes = left_bytes.saturating_sub(text.len() as u64);
        for line in text.split(|byte| *byte == b'\n') {
            if let Some(path) = wanted.get(line) {
                found.insert(*path, package.to_owned());
            }
        }
    }
    found
}

/// Whether a text can be the name of a package of any of these distributions.
fn is_name(text: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-._".contains(&byte))
        && !text.starts_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_names_the_package_of_the_symbols() {
        let parse = |note| SymbolPackage::parse_note(note);
        let rpm = parse("{\"type\":\"rpm\",\"name\":\"zlib-ng\",\"version\":\"2\"}").unwrap();
        assert_eq!(advice(Some(&rpm), false), "run `dnf debuginfo-install zlib-ng`, or use --debuginfod");
        let deb = parse("{\"type\":\"deb\",\"os\":\"ubuntu\",\"name\":\"zlib\"}").unwrap();
        assert_eq!(advice(Some(&deb), true), "install the -dbgsym package of the source package zlib");
        for wrong in ["", "{}", "[]", "{\"type\":\"rpm\"}", "{\"type\":\"rpm\",\"name\":\"a; rm -r /\"}"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn dpkgs_lists_name_the_package_of_a_file_under_both_of_its_paths() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name, text| fs::write(folder.path().join(name), text).unwrap();
        write("zlib1g:amd64.list", "/.\n/lib\n/lib/x86_64-linux-gnu/libz.so.1\n");
        write("ruby3.1.list", "/usr/bin/ruby3.1\n");
        write("ruby3.1.md5sums", "/usr/bin/other\n");
        let paths = ["/usr/lib/x86_64-linux-gnu/libz.so.1", "/usr/bin/ruby3.1", "/usr/bin/other", "/lib"];
        let found = dpkg_packages(folder.path(), paths.into_iter());
        assert_eq!(found.get(paths[0]).map(String::as_str), Some("zlib1g"));
        assert_eq!(found.get(paths[1]).map(String::as_str), Some("ruby3.1"));
        assert_eq!(found.get(paths[2]), None);
        assert_eq!(dpkg_packages(&folder.path().join("none"), paths.into_iter()), HashMap::new());
        let package = SymbolPackage::Debian("zlib1g".to_owned());
        assert_eq!(advice(Some(&package), false), "install zlib1g-dbgsym, or use --debuginfod");
    }

    #[test]
    fn a_binary_without_a_package_has_advice_too() {
        assert_eq!(advice(None, false), "install its debug symbols, or use --debuginfod");
        assert!(advice(None, true).starts_with("no server has"));
    }
}
