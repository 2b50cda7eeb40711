//! Files that several tests need, and that one of them makes.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use nix::fcntl::{Flock, FlockArg};

/// Waits until nobody else makes `output`, in this process or another. Whoever holds the lock looks first whether the
/// file is there by now: a program must not be replaced while another test runs it.
///
/// # Errors
/// When the lock's file, beside `output`, can't be made or locked.
pub fn exclusive(output: &Path) -> Result<Flock<File>> {
    let mut path = OsString::from(output);
    path.push(".lock");
    let path = PathBuf::from(path);
    let file = File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
    Flock::lock(file, FlockArg::LockExclusive)
        .map_err(|(_, errno)| errno)
        .with_context(|| format!("cannot lock {}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn one_thread_holds_it_at_a_time() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let output = folder.path().join("program");
        let is_held = AtomicBool::new(false);
        thread::scope(|threads| {
            let hold = || -> Result<()> {
                let _lock = exclusive(&output)?;
                assert!(!is_held.swap(true, Ordering::SeqCst));
                thread::sleep(Duration::from_millis(20));
                is_held.store(false, Ordering::SeqCst);
                Ok(())
            };
            let threads: Vec<_> = (0..3).map(|_| threads.spawn(hold)).collect();
            threads
                .into_iter()
                .try_for_each(|thread| thread.join().map_err(|_| anyhow::anyhow!("two held it"))?)
        })
    }
}
