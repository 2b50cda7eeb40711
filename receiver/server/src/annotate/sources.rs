//! The text of source files, below directories that the user names.
//!
//! The paths in a profile are written by whoever built the profiled program, and are not trusted: a path only ever selects a
//! file below one of the directories, and the kernel keeps the search below it ([`ResolveFlags::BENEATH`]), whatever links
//! there are. Only regular files are read.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use rustix::fs::{Mode, OFlags, ResolveFlags, open, openat2};
use sidewinder_render::{SourceExcerpt, SourcePart};
use sidewinder_text::ExternalText;

/// The largest source file that is read, in bytes.
const FILE_BYTES_MAX: u64 = 2 << 20;
/// The longest line that is shown, in characters; the rest of it is cut off.
const LINE_CHARS_MAX: usize = 400;
/// How many lines are shown before and after one with a cost.
const CONTEXT_LINES: u32 = 12;
/// The most components of a path that are compared with the files of a directory.
const COMPONENTS_MAX: usize = 64;

/// `DIR`, or `FROM=TO`: where source files are looked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SourcePath {
    /// Only for files below this directory of the machine that compiled them, which the other one stands for.
    from: Option<String>,
    directory: PathBuf,
}

impl FromStr for SourcePath {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (from, directory) = match text.split_once('=') {
            Some(("", _)) => return Err("nothing is before the =, as in /build/app=/home/me/app".to_owned()),
            Some((from, to)) => (Some(from.to_owned()), to),
            None => (None, text),
        };
        if directory.is_empty() {
            return Err("it names no directory".to_owned());
        }
        Ok(Self { from, directory: directory.into() })
    }
}

/// Why a directory of sources can't be used.
#[derive(Debug, thiserror::Error)]
#[error("can't read sources below {}", ExternalText::new(.path))]
pub struct SourcePathError {
    path: PathBuf,
    source: io::Error,
}

/// A directory with source files, held open.
struct SourceDirectory {
    from: Option<Vec<String>>,
    /// Its own path, by component.
    path: Vec<String>,
    root: OwnedFd,
}

/// Where source files are looked for.
#[derive(Default)]
pub struct SourceDirectories(Vec<SourceDirectory>);

impl fmt::Debug for SourceDirectories {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|directory| directory.path.join("/"))).finish()
    }
}

impl SourceDirectories {
    /// Opens the directories.
    ///
    /// # Errors
    /// If one of them is no directory that we may search.
    pub fn open(paths: &[SourcePath]) -> Result<Self, SourcePathError> {
        let open = |path: &SourcePath| {
            let failed = |source| SourcePathError { path: path.directory.clone(), source };
            let directory = path.directory.canonicalize().map_err(failed)?;
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let root = open(&directory, flags, Mode::empty()).map_err(|error| failed(error.into()))?;
            let from = path.from.as_deref().map(components);
            Ok(SourceDirectory { from, path: components(&directory.to_string_lossy()), root })
        };
        paths.iter().map(open).collect::<Result<_, _>>().map(Self)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Lines of a source file, with their neighbours; `None` if it is not there, or not a text.
    pub(crate) fn excerpt(&self, path: &str, lines: &BTreeSet<u32>) -> Option<SourceExcerpt> {
        excerpt(path, &self.read(path)?, lines)
    }

    /// The content of the file that agrees with most of the last components of a path.
    fn read(&self, path: &str) -> Option<String> {
        let path = components(path);
        let from = path.len().saturating_sub(COMPONENTS_MAX);
        (from..path.len()).find_map(|at| {
            let (before, suffix) = path.split_at_checked(at)?;
            let mut directories = self.0.iter().filter(|directory| directory.matches(before, suffix));
            directories.find_map(|directory| directory.read(suffix))
        })
    }
}

impl SourceDirectory {
    /// Whether a file with this suffix of a path, below the directory, may be the one that the whole path means. Where nothing
    /// but the name of the file would agree, it is not: many files are called `lib.rs`.
    fn matches(&self, before: &[String], suffix: &[String]) -> bool {
        match &self.from {
            Some(from) => before == from.as_slice(),
            None => suffix.len() > 1 || before.is_empty() || before.last() == self.path.last(),
        }
    }

    fn read(&self, suffix: &[String]) -> Option<String> {
        let path: PathBuf = suffix.iter().collect();
        let file = self.open_beneath(&path).ok()?;
        let mut bytes = Vec::new();
        file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).ok()?;
        let is_text = bytes.len() as u64 <= FILE_BYTES_MAX && !bytes.contains(&0);
        is_text.then(|| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Opens a regular file below the directory. No link leads out of it.
    fn open_beneath(&self, path: &Path) -> io::Result<File> {
        // Nothing waits for the writer of a pipe.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let file = File::from(openat2(&self.root, path, flags, Mode::empty(), resolve)?);
        if file.metadata()?.is_file() { Ok(file) } else { Err(io::ErrorKind::InvalidInput.into()) }
    }
}

/// Lines of a text, with their neighbours; `None` if it does not have them.
pub(super) fn excerpt(path: &str, text: &str, lines: &BTreeSet<u32>) -> Option<SourceExcerpt> {
    let parts = parts(text, lines);
    (!parts.is_empty()).then(|| SourceExcerpt { path: path.to_owned(), parts })
}

/// The names in a path, without those that lead nowhere. What leads up takes the name before it along.
fn components(path: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for name in path.split('/') {
        match name {
            "" | "." => {}
            ".." => _ = names.pop(),
            name => names.push(name.to_owned()),
        }
    }
    names
}

/// Lines of a text with their neighbours, as consecutive parts.
fn parts(text: &str, lines: &BTreeSet<u32>) -> Vec<SourcePart> {
    let all: Vec<&str> = text.lines().collect();
    let end = u32::try_from(all.len()).unwrap_or(u32::MAX).saturating_add(1);
    let mut ranges: Vec<std::ops::Range<u32>> = Vec::new();
    for &line in lines.iter().filter(|line| (1..end).contains(*line)) {
        let range =
            line.saturating_sub(CONTEXT_LINES).max(1)..line.saturating_add(CONTEXT_LINES + 1).min(end);
        match ranges.last_mut() {
            Some(last) if range.start <= last.end => last.end = range.end,
            _ => ranges.push(range),
        }
    }
    let part = |range: std::ops::Range<u32>| {
        let lines = all.get(range.start as usize - 1..range.end as usize - 1).unwrap_or_default();
        SourcePart::new(range.start, lines.iter().map(|line| cut(line)))
    };
    ranges.into_iter().map(part).collect()
}

fn cut(line: &str) -> &str {
    line.char_indices().nth(LINE_CHARS_MAX).map_or(line, |(end, _)| &line[..end])
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use rustix::fs::{CWD, FileType, mknodat};

    use super::*;

    fn write(folder: &Path, path: &str, text: &str) {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn below(folder: &Path) -> SourceDirectories {
        SourceDirectories::open(&[folder.to_str().unwrap().parse().unwrap()]).unwrap()
    }

    fn line(sources: &SourceDirectories, path: &str) -> Option<String> {
        let excerpt = sources.excerpt(path, &BTreeSet::from([1]))?;
        assert_eq!(excerpt.path, path, "as the profile states it");
        excerpt.parts.first()?.text.first().cloned()
    }

    #[test]
    fn the_file_that_agrees_with_most_of_a_path_is_taken() {
        let folder = tempfile::tempdir().unwrap();
        for path in ["src/lib.rs", "app/src/lib.rs", "main.c"] {
            write(folder.path(), path, path);
        }
        let sources = below(folder.path());
        let found = |path: &str| line(&sources, path);
        assert_eq!(found("/build/app/src/lib.rs").unwrap(), "app/src/lib.rs");
        assert_eq!(found("/build/other/src/lib.rs").unwrap(), "src/lib.rs");
        assert_eq!(found("./src/../src/./lib.rs").unwrap(), "src/lib.rs");
        assert_eq!(found("main.c").unwrap(), "main.c");
        assert_eq!(found("/elsewhere/main.c"), None, "the name alone says nothing");
        let name = folder.path().file_name().unwrap().to_str().unwrap();
        assert_eq!(
            found(&format!("/build/{name}/main.c")).unwrap(),
            "main.c",
            "the directory's own name agrees"
        );
        assert_eq!(found(""), None);
        assert_eq!(found(&"a/".repeat(100_000)), None);
    }

    #[test]
    fn a_directory_stands_for_another_one_where_that_is_said() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), "lib.rs", "text");
        let path: SourcePath = format!("/build/app/src={}", folder.path().to_str().unwrap()).parse().unwrap();
        let sources = SourceDirectories::open(&[path]).unwrap();
        assert_eq!(line(&sources, "/build/app/src/lib.rs").unwrap(), "text");
        assert_eq!(line(&sources, "/build/app/lib.rs"), None);
        assert!("=/tmp".parse::<SourcePath>().is_err() && "".parse::<SourcePath>().is_err());
        let missing = "/no/such/directory".parse().unwrap();
        assert!(SourceDirectories::open(&[missing]).is_err());
    }

    /// Names in a profile are hostile.
    #[test]
    fn nothing_outside_of_the_directories_is_read_and_nothing_but_texts() {
        let folder = tempfile::tempdir().unwrap();
        let (inside, outside) = (folder.path().join("in"), folder.path().join("out"));
        write(&inside, "src/ok.c", "ok");
        write(&outside, "secret", "secret");
        symlink(outside.join("secret"), inside.join("src/absolute.c")).unwrap();
        symlink("../../out/secret", inside.join("src/relative.c")).unwrap();
        symlink("ok.c", inside.join("src/near.c")).unwrap();
        symlink(&outside, inside.join("dir")).unwrap();
        mknodat(CWD, inside.join("src/pipe.c"), FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        write(&inside, "src/binary.c", "a\0b");
        write(&inside, "src/large.c", &"x\n".repeat(1 << 20 | 1));
        let sources = below(&inside);
        for path in [
            "../../../../etc/shadow",
            "/etc/shadow",
            "/build/in/../../out/secret",
            "in/../out/secret",
            "src/absolute.c",
            "src/relative.c",
            "dir/secret",
            "src/pipe.c",
            "src/binary.c",
            "src/large.c",
            "in/src",
            "src/\0ok.c",
        ] {
            assert_eq!(line(&sources, path), None, "{path}");
        }
        assert_eq!(line(&sources, "src/near.c").unwrap(), "ok", "links that stay inside are followed");
    }

    #[test]
    fn lines_come_with_their_neighbours_once_each() {
        let text: String = (1..=100).map(|line| format!("line {line}\n")).collect();
        let ranges = |lines: &[u32]| -> Vec<(u32, usize)> {
            let parts = parts(&text, &lines.iter().copied().collect());
            parts.iter().map(|part| (part.line, part.text.len())).collect()
        };
        assert_eq!(ranges(&[3, 20, 90]), [(1, 32), (78, 23)]);
        assert_eq!(ranges(&[0, 101, u32::MAX]), [], "the file has changed");
        assert_eq!(parts(&text, &BTreeSet::from([50]))[0].text[12], "line 50");
        assert_eq!(parts(&"é".repeat(1000), &BTreeSet::from([1]))[0].text[0].chars().count(), LINE_CHARS_MAX);
    }
}
