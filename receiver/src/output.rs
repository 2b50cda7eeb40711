//! Files that commands write: the whole of it, or what was there before.
//!
//! A regular file is written without a name, then linked beside its destination and renamed over it: a full disk, a signal
//! or a crash leaves the old file. What can't be replaced, such as a pipe or a device, is written to directly, once.

use std::error::Error;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Seek as _, Write as _};
use std::os::fd::{AsFd, AsRawFd as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, fchown};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, fcntl_setfl, linkat, open};
use rustix::io::Errno;

use sidewinder_render::ProfileFormat;

use crate::cli::FormatArg;
use crate::exit::{ExitCause, Failure};
use crate::terminal::print_notice;

/// What to do where a file can't be written.
const WRITE_ELSEWHERE_HINT: &str =
    "choose another place with -o FILE: a folder that exists, on a disk with room";
/// How often it is looked whether somebody reads a named pipe.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// As many as the kernel follows (path_resolution(7)).
const SYMLINKS_MAX: usize = 40;

/// What a command can write a profile as.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OutputFormat {
    /// OpenTelemetry's `ProfilesData`.
    Otlp,
    /// Another.
    Rendered(ProfileFormat),
}

impl OutputFormat {
    /// The one that was asked for, else what the end of the file's name tells.
    ///
    /// # Errors
    /// Where neither tells it.
    pub(crate) fn from_path(path: &Path, asked: Option<FormatArg>) -> Result<Self, Failure> {
        const OTLP: &str = ".otlp";
        if let Some(asked) = asked {
            return Ok(asked.into());
        }
        if path.file_name().is_some_and(|name| name.to_string_lossy().to_lowercase().ends_with(OTLP)) {
            return Ok(Self::Otlp);
        }
        ProfileFormat::from_path(path, &[OTLP]).map(Self::Rendered).map_err(|error| {
            Failure::new(ExitCause::Usage, "can't write the profile")
                .with_source(error)
                .with_next_step("give the file such a name, or say --format")
        })
    }
}

impl From<FormatArg> for OutputFormat {
    fn from(asked: FormatArg) -> Self {
        match asked {
            FormatArg::Otlp => Self::Otlp,
            FormatArg::Pprof => Self::Rendered(ProfileFormat::Pprof),
            FormatArg::Folded => Self::Rendered(ProfileFormat::Folded),
            FormatArg::Svg => Self::Rendered(ProfileFormat::Svg),
            FormatArg::Html => Self::Rendered(ProfileFormat::Html),
            FormatArg::Firefox => Self::Rendered(ProfileFormat::Firefox),
            FormatArg::Speedscope => Self::Rendered(ProfileFormat::Speedscope),
        }
    }
}

/// Where a command writes its result.
#[derive(Debug)]
pub(crate) struct Output {
    /// As the user names it.
    path: PathBuf,
    target: OutputTarget,
}

#[derive(PartialEq, Eq, Debug)]
enum OutputTarget {
    /// A regular file, or none yet, behind all symbolic links.
    File(PathBuf),
    /// A pipe or a device.
    Stream,
    /// A descriptor of ours, whatever it is open on.
    Descriptor(u32),
}

impl Output {
    /// Finds out whether the file can be written, before the work and not after it. Changes nothing.
    ///
    /// # Errors
    /// Where it can't.
    pub(crate) fn new(path: &Path) -> Result<Self, Failure> {
        let failed = |error| write_failure(ExitCause::Usage, path, error);
        let place = resolve_target(path).map_err(failed)?;
        if let OutputTarget::File(destination) = &place {
            check_replaceable(destination).map_err(failed)?;
        }
        Ok(Self { path: path.to_owned(), target: place })
    }

    /// The name, as the user gave it.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes what `fill` writes. A named pipe is waited for until somebody reads it, or `stop` is set meanwhile.
    ///
    /// # Errors
    /// Where that fails: a file is as it was then.
    pub(crate) fn write<E: Into<Box<dyn Error + Send + Sync>>>(
        &self,
        stop: &AtomicBool,
        fill: impl FnOnce(&mut BufWriter<&File>) -> Result<(), E>,
    ) -> Result<(), Failure> {
        let failed =
            |error: Box<dyn Error + Send + Sync>| write_failure(ExitCause::Runtime, &self.path, error);
        let fill = |file: &File| {
            let mut out = BufWriter::new(file);
            fill(&mut out).map_err(|error| failed(error.into()))?;
            out.flush().map_err(|error| failed(error.into()))
        };
        match &self.target {
            OutputTarget::File(destination) => {
                let partial = PartialFile::create(destination).map_err(|error| failed(error.into()))?;
                fill(&partial.file)?;
                partial.persist(destination).map_err(|error| failed(error.into()))
            }
            // Opened anew, a file that the shell has redirected to would be written from its beginning.
            OutputTarget::Descriptor(1) => {
                fill(&duplicate(io::stdout()).map_err(|error| failed(error.into()))?)
            }
            OutputTarget::Descriptor(2) => {
                fill(&duplicate(io::stderr()).map_err(|error| failed(error.into()))?)
            }
            OutputTarget::Stream | OutputTarget::Descriptor(_) => {
                fill(&self.open_stream(stop).map_err(|error| failed(error.into()))?)
            }
        }
    }

    fn open_stream(&self, stop: &AtomicBool) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::NOCTTY | OFlags::CLOEXEC;
        let mut is_told = false;
        loop {
            match open(&self.path, flags | OFlags::NONBLOCK, Mode::empty()) {
                Err(Errno::NXIO) if is_pipe(&self.path) => {}
                Err(error) => return Err(error.into()),
                Ok(file) => {
                    fcntl_setfl(&file, OFlags::APPEND)?;
                    return Ok(file.into());
                }
            }
            if !std::mem::replace(&mut is_told, true) {
                // An interrupt that has ended the recording does not end this too.
                stop.store(false, Ordering::Relaxed);
                print_notice(format_args!(
                    "waiting for somebody to read {}; Ctrl-C ends\n",
                    self.path.display()
                ));
            }
            if stop.load(Ordering::Relaxed) {
                return Err(io::Error::new(io::ErrorKind::Interrupted, "nobody has read the pipe"));
            }
            thread::sleep(POLL_INTERVAL);
        }
    }
}

fn write_failure(cause: ExitCause, path: &Path, error: impl Into<Box<dyn Error + Send + Sync>>) -> Failure {
    Failure::new(cause, format!("can't write {}", path.display()))
        .with_source(error)
        .with_next_step(WRITE_ELSEWHERE_HINT)
}

/// What a path names.
fn resolve_target(path: &Path) -> io::Result<OutputTarget> {
    let mut at = path.to_owned();
    for _ in 0..SYMLINKS_MAX {
        if let Some(number) = parse_descriptor_path(&at) {
            return Ok(OutputTarget::Descriptor(number));
        }
        let found = match fs::symlink_metadata(&at) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound && at.file_name().is_some() => {
                return Ok(OutputTarget::File(at));
            }
            Err(error) => return Err(error),
        };
        if found.is_symlink() {
            at = parent_directory(&at).join(fs::read_link(&at)?);
        } else if found.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        } else if found.is_file() {
            return Ok(OutputTarget::File(at));
        } else {
            return Ok(OutputTarget::Stream);
        }
    }
    Err(Errno::LOOP.into())
}

/// The descriptor of ours that a path stands for, as `/dev/fd/63` does.
fn parse_descriptor_path(path: &Path) -> Option<u32> {
    let is_ours =
        parent_directory(path).canonicalize().ok()? == Path::new(&format!("/proc/{}/fd", std::process::id()));
    path.file_name()?.to_str()?.parse().ok().filter(|_| is_ours)
}

fn duplicate(stream: impl AsFd) -> io::Result<File> {
    Ok(stream.as_fd().try_clone_to_owned()?.into())
}

fn is_pipe(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.file_type().is_fifo())
}

fn parent_directory(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

/// Whether a file can be replaced: it may be written to, and so may its folder.
fn check_replaceable(destination: &Path) -> io::Result<()> {
    match OpenOptions::new().write(true).open(destination) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    PartialFile::create(destination).map(drop)
}

/// A file in the making, on the same filesystem as its destination. It is removed unless it [persists](Self::persist).
struct PartialFile {
    file: File,
    /// None where the filesystem keeps files without one; then nothing is left of it even if we are killed.
    name: Option<PathBuf>,
}

impl PartialFile {
    /// Creates it, with the permissions that any new file would get.
    fn create(destination: &Path) -> io::Result<Self> {
        let folder = parent_directory(destination);
        let mode = Mode::from_raw_mode(0o666);
        match open(folder, OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC, mode) {
            Ok(file) => Ok(Self { file: file.into(), name: None }),
            // What a filesystem says that can't, and a kernel that does not know the flag.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => Self::create_named(destination),
            Err(error) => {
                let said =
                    format!("no file can be created in {}: {}", folder.display(), io::Error::from(error));
                Err(io::Error::new(io::Error::from(error).kind(), said))
            }
        }
    }

    fn create_named(destination: &Path) -> io::Result<Self> {
        let name = partial_name(destination);
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&name)?;
        Ok(Self { file, name: Some(name) })
    }

    /// Puts it in the place of `destination`, whose permissions it gets, once all of it is on the disk.
    fn persist(mut self, destination: &Path) -> io::Result<()> {
        if let Ok(replaced) = fs::metadata(destination) {
            // Who may not give files away keeps the new one; changing the owner also takes set-user-ID away.
            let _ = fchown(&self.file, Some(replaced.uid()), Some(replaced.gid()));
            self.file.set_permissions(replaced.permissions())?;
        }
        self.file.sync_all()?;
        let Some(name) = self.name.take().or_else(|| self.link(destination)) else {
            let mut named = Self::create_named(destination)?;
            self.file.rewind()?;
            io::copy(&mut self.file, &mut named.file)?;
            return named.persist(destination);
        };
        let name = self.name.insert(name);
        match fs::rename(&*name, destination) {
            Ok(()) => {
                self.name = None;
                Ok(())
            }
            // Where something is mounted, as a container's engine does with single files, nothing else can be put.
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                let mut to = OpenOptions::new().write(true).truncate(true).open(destination)?;
                self.file.rewind()?;
                io::copy(&mut self.file, &mut to)?;
                to.sync_all()
            }
            Err(error) => Err(error),
        }
    }

    /// Gives it a name; `None` where the filesystem refuses that, late.
    fn link(&self, destination: &Path) -> Option<PathBuf> {
        let name = partial_name(destination);
        let ours = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        linkat(CWD, ours, CWD, &name, AtFlags::SYMLINK_FOLLOW).ok().map(|()| name)
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            // It may be gone, or its folder be out of reach: then there is nothing more to do.
            let _ = fs::remove_file(name);
        }
    }
}

fn partial_name(destination: &Path) -> PathBuf {
    parent_directory(destination).join(format!(".sidewinder.{:016x}.partial", rand::random::<u64>()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn write(path: &Path, text: &str) -> Result<(), Failure> {
        Output::new(path)?.write(&AtomicBool::new(false), |out| out.write_all(text.as_bytes()))
    }

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_replaced_as_a_whole_and_keeps_its_permissions() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        fs::write(&path, "something longer that was there before").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        write(&path, "new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o640);
        let plain = folder.path().join("plain");
        fs::write(&plain, "").unwrap();
        let other = folder.path().join("other");
        write(&other, "").unwrap();
        assert_eq!(fs::metadata(&other).unwrap().mode(), fs::metadata(&plain).unwrap().mode());
        assert_eq!(names(folder.path()), ["other", "out", "plain"]);
    }

    #[test]
    fn what_fails_leaves_what_was_there_and_nothing_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        fs::write(&path, "old").unwrap();
        let error = Output::new(&path)
            .unwrap()
            .write(&AtomicBool::new(false), |out| {
                out.write_all(&[b'x'; 100_000])?;
                Err(io::Error::from(io::ErrorKind::StorageFull))
            })
            .unwrap_err();
        assert!(error.to_string().contains("out"), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(names(folder.path()), ["out"]);
    }

    /// As on filesystems that keep no file without a name.
    #[test]
    fn a_partial_file_with_a_name_is_renamed_or_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        drop(PartialFile::create_named(&path).unwrap());
        assert_eq!(names(folder.path()), [""; 0]);
        let partial = PartialFile::create_named(&path).unwrap();
        (&partial.file).write_all(b"whole").unwrap();
        assert_eq!(names(folder.path()).len(), 1);
        partial.persist(&path).unwrap();
        assert_eq!(
            (names(folder.path()), fs::read_to_string(&path).unwrap()),
            (vec!["out".to_owned()], "whole".to_owned())
        );
    }

    #[test]
    fn links_are_followed_to_where_they_lead() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("far")).unwrap();
        let (near, far) = (folder.path().join("near"), folder.path().join("far/out"));
        symlink("far/out", &near).unwrap();
        for text in ["first", "second"] {
            write(&near, text).unwrap();
            assert_eq!(fs::read_to_string(&far).unwrap(), text);
            assert!(fs::symlink_metadata(&near).unwrap().is_symlink());
        }
        symlink("b", folder.path().join("a")).unwrap();
        symlink("a", folder.path().join("b")).unwrap();
        assert!(write(&folder.path().join("a"), "").is_err());
    }

    #[test]
    fn what_can_be_no_output_is_told_at_once() {
        let folder = tempfile::tempdir().unwrap();
        for path in [folder.path().to_owned(), folder.path().join("no/out"), PathBuf::from("/")] {
            let error = Output::new(&path).unwrap_err();
            assert_eq!(error.cause, ExitCause::Usage, "{error}");
        }
        assert_eq!(names(folder.path()), [""; 0]);
    }

    #[test]
    fn descriptors_and_devices_are_written_to_directly() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("link");
        symlink("/dev/stdout", &link).unwrap();
        for (path, expected) in [
            (Path::new("/dev/stdout"), OutputTarget::Descriptor(1)),
            (&link, OutputTarget::Descriptor(1)),
            (Path::new("/dev/fd/1"), OutputTarget::Descriptor(1)),
            (Path::new("/proc/self/fd/2"), OutputTarget::Descriptor(2)),
            (Path::new("/dev/null"), OutputTarget::Stream),
        ] {
            assert_eq!(resolve_target(path).unwrap(), expected, "{path:?}");
        }
        write(Path::new("/dev/null"), "nothing").unwrap();
        assert!(write(Path::new("/dev/full"), "nothing").is_err());
    }

    #[test]
    fn a_named_pipe_is_waited_for_until_it_is_read_or_we_are_interrupted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        rustix::fs::mknodat(CWD, &path, rustix::fs::FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        let output = Output::new(&path).unwrap();
        let stop = AtomicBool::new(true);
        let interrupted = thread::scope(|threads| {
            let writing = threads.spawn(|| output.write(&stop, |out| out.write_all(b"lost")));
            // The interrupt before does not count.
            while stop.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(1));
            }
            stop.store(true, Ordering::Relaxed);
            writing.join().unwrap()
        });
        assert!(interrupted.unwrap_err().to_string().contains("nobody has read the pipe"));
        let read = thread::scope(|threads| {
            let reading = threads.spawn(|| fs::read_to_string(&path).unwrap());
            output.write(&stop, |out| out.write_all(b"whole")).unwrap();
            reading.join().unwrap()
        });
        assert_eq!(read, "whole");
        assert!(is_pipe(&path), "it is still there");
    }
}
