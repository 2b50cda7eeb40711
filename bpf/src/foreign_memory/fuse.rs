//! A FUSE server for tests that notices whether its only file is read, after `<linux/fuse.h>`. It answers with an error then:
//! without an answer, neither the reader nor the server in the same process could be killed.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

/// Requests that are answered, or not: FUSE_LOOKUP and so on.
const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const OPEN: u32 = 14;
const READ: u32 = 15;
const RELEASE: u32 = 18;
const FLUSH: u32 = 25;
const INIT: u32 = 26;
const OPENDIR: u32 = 27;
const NOT_IMPLEMENTED: i32 = -38;
const INPUT_OUTPUT: i32 = -5;
const DIRECTORY: (u64, u32) = (1, 0o040_755);
const FILE: (u64, u32) = (2, 0o100_644);

/// The mounted file system, until this is dropped.
pub(super) struct WatchedFile {
    mounted_on: PathBuf,
    is_read: Arc<AtomicBool>,
}

impl WatchedFile {
    /// Mounts it on an empty directory. Any name in it is that of the file, of this size.
    pub(super) fn mount(on: &Path, bytes: u64) -> io::Result<Self> {
        let device = File::options().read(true).write(true).open("/dev/fuse")?;
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
        let options = std::ffi::CString::new(options)?;
        mount("watched", on, "fuse", MountFlags::NODEV | MountFlags::NOSUID, &*options)?;
        let is_read = Arc::new(AtomicBool::new(false));
        let server = FuseServer { device, bytes, is_read: Arc::clone(&is_read) };
        thread::spawn(move || server.serve());
        Ok(Self { mounted_on: on.to_owned(), is_read })
    }

    /// Whether its contents were asked for.
    pub(super) fn is_read(&self) -> bool {
        self.is_read.load(Ordering::Relaxed)
    }
}

impl Drop for WatchedFile {
    fn drop(&mut self) {
        let _ = unmount(&*self.mounted_on, UnmountFlags::DETACH | UnmountFlags::FORCE);
    }
}

struct FuseServer {
    device: File,
    bytes: u64,
    is_read: Arc<AtomicBool>,
}

impl FuseServer {
    /// Answers until it is unmounted.
    fn serve(mut self) {
        let mut request = vec![0; 1 << 17];
        while self.device.read(&mut request).is_ok() {
            let word = |at: usize| u64::from_ne_bytes(request[at..at + 8].try_into().unwrap());
            let (operation, unique, node) = ((word(0) >> 32) as u32, word(8), word(16));
            let (error, answer) = match operation {
                INIT => (0, init()),
                LOOKUP => (0, [words(&[FILE.0, 0, 3600, 3600, 0]), self.attributes(FILE)].concat()),
                GETATTR if node == DIRECTORY.0 => {
                    (0, [words(&[3600, 0]), self.attributes(DIRECTORY)].concat())
                }
                GETATTR => (0, [words(&[3600, 0]), self.attributes(FILE)].concat()),
                OPEN | OPENDIR => (0, words(&[1, 0])),
                READ => {
                    self.is_read.store(true, Ordering::Relaxed);
                    (INPUT_OUTPUT, Vec::new())
                }
                FORGET => continue,
                RELEASE | FLUSH => (0, Vec::new()),
                _ => (NOT_IMPLEMENTED, Vec::new()),
            };
            let bytes = 16 + answer.len() as u64;
            let head = words(&[bytes | u64::from(error.cast_unsigned()) << 32, unique]);
            let _ = self.device.write(&[head, answer].concat());
        }
    }

    /// `struct fuse_attr`: inode, size, blocks, three times, their nanoseconds with mode and links, owner, device and block size.
    fn attributes(&self, (inode, mode): (u64, u32)) -> Vec<u8> {
        let times = [0; 3];
        let blocks = self.bytes.div_ceil(512);
        let mode = u64::from(mode);
        words(&[&[inode, self.bytes, blocks][..], &times, &[0, mode << 32, 1, 0, 4096]].concat())
    }
}

/// `struct fuse_init_out` for version 7.31.
fn init() -> Vec<u8> {
    let mut answer = words(&[31 << 32 | 7, 65536, 65536 << 32 | 10 << 16 | 12, 1 << 32 | 1]);
    answer.resize(64, 0);
    answer
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}
