//! Writes the output files of commands: atomically where that is possible.
//!
//! A regular file is written as an unnamed temporary file, then linked beside its destination and renamed over it: a full
//! disk, a signal or a crash leaves the old file. A target that can't be replaced, such as a pipe or a device, is written
//! to directly, once.

mod target;

use std::error::Error;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, BufWriter, Seek as _, Write as _};
use std::os::fd::{AsFd, AsRawFd as _};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, fcntl_setfl, linkat, open};
use rustix::io::Errno;

use sidewinder_base::exit::{ExitCause, Failure};
use sidewinder_base::terminal::print_notice;
use sidewinder_render::ProfileFormat;
use sidewinder_text::ExternalText;

use self::target::{FileOwner, FoundFile, OutputTarget, look_up, parent_directory, resolve_target};
use crate::cli::FormatArg;

/// The next step for a user whose file can't be written.
const WRITE_ELSEWHERE_HINT: &str =
    "choose another path with -o FILE: an existing folder, on a disk with room";
/// How often a named pipe is checked for a reader.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The format in which a command writes a profile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OutputFormat {
    /// OpenTelemetry's `ProfilesData`.
    Otlp,
    /// A format for people and other tools.
    Rendered(ProfileFormat),
}

impl OutputFormat {
    /// The requested format, or else the one that the suffix of the file's name stands for.
    ///
    /// # Errors
    /// If no format is requested and the suffix is unknown.
    pub(crate) fn from_path(path: &Path, requested: Option<FormatArg>) -> Result<Self, Failure> {
        const OTLP: &str = ".otlp";
        if let Some(requested) = requested {
            return Ok(requested.into());
        }
        if path.file_name().is_some_and(|name| name.to_string_lossy().to_lowercase().ends_with(OTLP)) {
            return Ok(Self::Otlp);
        }
        ProfileFormat::from_path(path, &[OTLP]).map(Self::Rendered).map_err(|error| {
            Failure::new(ExitCause::Usage, "can't write the profile")
                .with_source(error)
                .with_next_step("give the file such a name, or use --format")
        })
    }
}

impl From<FormatArg> for OutputFormat {
    fn from(format: FormatArg) -> Self {
        match format {
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
    /// As the user gave it.
    path: PathBuf,
    target: OutputTarget,
}

impl Output {
    /// Checks that the file can be written, so that a user learns of a problem before the recording. Changes nothing.
    ///
    /// # Errors
    /// If it can't be written.
    pub(crate) fn new(path: &Path) -> Result<Self, Failure> {
        let failed = |error| write_failure(ExitCause::Usage, path, error);
        let target = resolve_target(path).map_err(failed)?;
        if let OutputTarget::File(destination) = &target {
            check_replaceable(destination).map_err(failed)?;
        }
        Ok(Self { path: path.to_owned(), target })
    }

    /// The output of a further kind of profile: a file beside this one, with this name of it before the suffix.
    ///
    /// # Errors
    /// If it can't be written, or if this output isn't a file: a pipe or a device takes one profile.
    pub(crate) fn of_kind(&self, kind: &str) -> Result<Self, Failure> {
        if !matches!(self.target, OutputTarget::File(_)) {
            let failure = Failure::new(
                ExitCause::Usage,
                format!("can't write profiles of several kinds to {}", ExternalText::new(&self.path)),
            );
            return Err(
                failure.with_next_step("write to a file, or choose --format otlp, which holds them all")
            );
        }
        Self::new(&path_of_kind(&self.path, kind))
    }

    /// The path as the user gave it.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the output with `fill`. For a named pipe, waits until it has a reader, or `stop` is set meanwhile. A reader that
    /// closes a pipe has seen enough: that is no error.
    ///
    /// # Errors
    /// If that fails; an existing file is then unchanged.
    pub(crate) fn write<E: Into<Box<dyn Error + Send + Sync>>>(
        &self,
        stop: &AtomicBool,
        fill: impl FnOnce(&mut BufWriter<&File>) -> Result<(), E>,
    ) -> Result<(), Failure> {
        let failed =
            |error: Box<dyn Error + Send + Sync>| write_failure(ExitCause::Runtime, &self.path, error);
        let fill = |file: &File| {
            let mut out = BufWriter::new(file);
            match fill(&mut out).map_err(Into::into).and_then(|()| Ok(out.flush()?)) {
                Err(error) if is_closed_pipe(&*error) => Ok(()),
                written => written.map_err(failed),
            }
        };
        match &self.target {
            OutputTarget::File(destination) => {
                let partial = PartialFile::create(destination).map_err(|error| failed(error.into()))?;
                fill(&partial.file)?;
                partial.persist(destination).map_err(|error| failed(error.into()))
            }
            // Opening /dev/stdout again would write from the beginning of a file that the shell redirects to.
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
        let mut is_waiting = false;
        loop {
            match open(&self.path, flags | OFlags::NONBLOCK, Mode::empty()) {
                Err(Errno::NXIO) if is_pipe(&self.path) => {}
                Err(error) => return Err(error.into()),
                Ok(file) => {
                    fcntl_setfl(&file, OFlags::APPEND)?;
                    return Ok(file.into());
                }
            }
            if !std::mem::replace(&mut is_waiting, true) {
                // The interrupt that ended the recording must not end this wait too.
                stop.store(false, Ordering::Relaxed);
                print_notice(format_args!(
                    "waiting for somebody to read {}; Ctrl-C ends\n",
                    ExternalText::new(&self.path)
                ));
            }
            if stop.load(Ordering::Relaxed) {
                return Err(io::Error::new(io::ErrorKind::Interrupted, "nobody has read the pipe"));
            }
            thread::sleep(POLL_INTERVAL);
        }
    }
}

/// `profile.off_cpu.pb.gz` for `profile.pb.gz`.
fn path_of_kind(path: &Path, kind: &str) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let suffixes = ProfileFormat::ALL.map(ProfileFormat::suffix);
    let suffix =
        suffixes.into_iter().filter(|suffix| name.ends_with(suffix)).max_by_key(|suffix| suffix.len());
    let (stem, suffix) = match suffix {
        Some(suffix) => name.split_at(name.len() - suffix.len()),
        None => name.rsplit_once('.').map_or((&*name, ""), |(stem, _)| name.split_at(stem.len())),
    };
    path.with_file_name(format!("{stem}.{kind}{suffix}"))
}

fn write_failure(cause: ExitCause, path: &Path, error: impl Into<Box<dyn Error + Send + Sync>>) -> Failure {
    Failure::new(cause, format!("can't write {}", ExternalText::new(path)))
        .with_source(error)
        .with_next_step(WRITE_ELSEWHERE_HINT)
}

/// Whether the reader of a pipe has closed it, as `head` does.
fn is_closed_pipe(error: &(dyn Error + 'static)) -> bool {
    let mut causes = std::iter::successors(Some(error), |error: &&(dyn Error + 'static)| (*error).source());
    causes.any(|cause| {
        cause.downcast_ref::<io::Error>().is_some_and(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
    })
}

fn duplicate(stream: impl AsFd) -> io::Result<File> {
    Ok(stream.as_fd().try_clone_to_owned()?.into())
}

fn is_pipe(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_fifo())
}

/// Checks that a file can be replaced: that it and its folder are writable.
fn check_replaceable(destination: &Path) -> io::Result<()> {
    match OpenOptions::new().write(true).open(destination) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    PartialFile::create(destination).map(drop)
}

/// A temporary file on the same filesystem as its destination. It is removed unless it is [persisted](Self::persist).
struct PartialFile {
    file: File,
    /// `None` if the filesystem supports unnamed files: nothing is left behind even if the process is killed.
    name: Option<PathBuf>,
}

impl PartialFile {
    /// Creates the file with the default permissions of a new file.
    fn create(destination: &Path) -> io::Result<Self> {
        let folder = parent_directory(destination);
        let mode = Mode::from_raw_mode(0o666);
        match open(folder, OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC, mode) {
            Ok(file) => Ok(Self { file: file.into(), name: None }),
            // Errors of a filesystem without unnamed files, and of a kernel that does not know the flag.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => Self::create_named(destination),
            Err(error) => {
                let message = format!(
                    "no file can be created in {}: {}",
                    ExternalText::new(folder),
                    io::Error::from(error)
                );
                Err(io::Error::new(io::Error::from(error).kind(), message))
            }
        }
    }

    fn create_named(destination: &Path) -> io::Result<Self> {
        let name = partial_name(destination);
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&name)?;
        Ok(Self { file, name: Some(name) })
    }

    /// Syncs the file to disk, then replaces `destination` with it. Keeps the permissions of a file that it replaces.
    fn persist(mut self, destination: &Path) -> io::Result<()> {
        if let Some(replaced) = look_up(destination)?.filter(FoundFile::is_file) {
            let FileOwner { uid, gid, mode } = replaced.owner();
            // Without the privilege to change the owner, the new owner stays. Changing the owner also clears set-user-ID.
            let _ = fchown(&self.file, Some(uid), Some(gid));
            self.file.set_permissions(Permissions::from_mode(mode))?;
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
            // A mount point, such as a single file that a container engine mounts, can't be replaced.
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                let flags = OFlags::NOFOLLOW.bits().cast_signed();
                let mut to =
                    OpenOptions::new().write(true).truncate(true).custom_flags(flags).open(destination)?;
                self.file.rewind()?;
                io::copy(&mut self.file, &mut to)?;
                to.sync_all()
            }
            Err(error) => Err(error),
        }
    }

    /// Gives the file a name; `None` if the filesystem supports unnamed files but can't link them.
    fn link(&self, destination: &Path) -> Option<PathBuf> {
        let name = partial_name(destination);
        let ours = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        linkat(CWD, ours, CWD, &name, AtFlags::SYMLINK_FOLLOW).ok().map(|()| name)
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            // Nothing more can be done if it is gone, or its folder is no longer accessible.
            let _ = fs::remove_file(name);
        }
    }
}

fn partial_name(destination: &Path) -> PathBuf {
    parent_directory(destination).join(format!(".sidewinder.{:016x}.partial", rand::random::<u64>()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, symlink};

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
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
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
    fn a_failed_write_keeps_the_old_file_and_leaves_no_other() {
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

    /// As on filesystems without unnamed files.
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
    fn a_further_kind_is_written_beside_the_first_and_never_into_a_device() {
        let beside = |name: &str| path_of_kind(Path::new(name), "off_cpu");
        assert_eq!(beside("a/profile.pb.gz"), Path::new("a/profile.off_cpu.pb.gz"));
        assert_eq!(beside("x.speedscope.json"), Path::new("x.off_cpu.speedscope.json"));
        assert_eq!((beside("x.out"), beside("x")), ("x.off_cpu.out".into(), "x.off_cpu".into()));
        let refused = Output::new(Path::new("/dev/null")).unwrap().of_kind("off_cpu").unwrap_err();
        assert_eq!(refused.cause, ExitCause::Usage, "{refused}");
    }

    #[test]
    fn symbolic_links_are_followed() {
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
    fn a_path_that_cant_be_written_fails_early() {
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
    fn writing_a_named_pipe_waits_for_a_reader_or_an_interrupt() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        rustix::fs::mknodat(CWD, &path, rustix::fs::FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        let output = Output::new(&path).unwrap();
        let stop = AtomicBool::new(true);
        let interrupted = thread::scope(|threads| {
            let writing = threads.spawn(|| output.write(&stop, |out| out.write_all(b"lost")));
            // The interrupt from before the write is ignored.
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
        assert!(is_pipe(&path), "the pipe is still there");
    }
}
