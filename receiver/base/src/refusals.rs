//! Files that processes refer to and that are not read: because they belong to another user, because the process could not read
//! them itself ([`PathTrust`](sidewinder_process::PathTrust)), or because their file system may never respond. They are counted by
//! reason, and each is logged once.

use std::collections::HashSet;
use std::fmt;
use std::ops::AddAssign;
use std::sync::{Mutex, PoisonError};

use sidewinder_process::{OpenError, Pid, Refusal};
use tracing::warn;

/// The most files that are remembered, so that each is counted once. Beyond this, all are forgotten.
const REMEMBERED_MAX: usize = 4096;
/// The most files that are logged: a process can create any number of them.
const LOGGED_MAX: u32 = 50;

/// How many files were not read, by reason.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct RefusedFiles([u64; Refusal::ALL.len()]);

impl RefusedFiles {
    /// How many files were refused for each reason, by its label.
    pub fn by_reason(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Refusal::ALL.map(Refusal::label).into_iter().zip(self.0)
    }
}

impl AddAssign for RefusedFiles {
    fn add_assign(&mut self, other: Self) {
        self.0.iter_mut().zip(other.0).for_each(|(count, other)| *count += other);
    }
}

/// The files refused so far, shared by the threads that open them.
#[derive(Debug, Default)]
pub struct Refusals(Mutex<RefusalState>);

#[derive(Debug, Default)]
struct RefusalState {
    counts: RefusedFiles,
    seen: HashSet<(Pid, Box<[u8]>, Refusal)>,
    logged: u32,
}

impl Refusals {
    /// The files refused so far.
    pub fn counts(&self) -> RefusedFiles {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).counts
    }

    /// Records that a file at this path in the root of a process could not be opened. Counts only if the file was refused,
    /// not if it does not exist.
    pub fn record(&self, pid: Pid, path: &[u8], error: &OpenError) {
        if let Some(refusal) = error.refusal() {
            self.add(pid, path, refusal, format_args!("not read for names: {error}"));
        }
    }

    /// Records that a file at this path, whose code a process executes, could not be opened. Such a file exists: if its path
    /// can't be looked up without asking a file system that may never respond, it is refused.
    pub fn record_code(&self, pid: Pid, path: &[u8], error: &OpenError) {
        let refusal = match error {
            OpenError::NotCached => Some(Refusal::Remote),
            error => error.refusal(),
        };
        if let Some(refusal) = refusal {
            let message =
                format_args!("its code has no unwind table and no names, as it is not read: {error}");
            self.add(pid, path, refusal, message);
        }
    }

    fn add(&self, pid: Pid, path: &[u8], refusal: Refusal, message: fmt::Arguments<'_>) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.seen.len() >= REMEMBERED_MAX {
            state.seen.clear();
        }
        if !state.seen.insert((pid, path.into(), refusal)) {
            return;
        }
        if let Some(count) = state.counts.0.get_mut(refusal as usize) {
            *count += 1;
        }
        state.logged = state.logged.saturating_add(1);
        let path = format!("/{}", String::from_utf8_lossy(path.strip_prefix(b"/").unwrap_or(path)));
        match state.logged {
            // Quoted: a process may have put any characters into the path.
            ..=LOGGED_MAX => {
                warn!(pid = pid.0, file = ?path, "{message}");
            }
            logged if logged == LOGGED_MAX + 1 => {
                warn!("more files are not read: from now on they are only counted");
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nonzero_counts(refusals: &Refusals) -> Vec<(&'static str, u64)> {
        refusals.counts().by_reason().filter(|(_, count)| *count > 0).collect()
    }

    #[test]
    fn each_file_counts_once_for_each_reason() {
        let refusals = Refusals::default();
        for _ in 0..3 {
            refusals.record(Pid(1), b"tmp/perf-1.map", &OpenError::Link);
            refusals.record(Pid(2), b"tmp/perf-2.map", &OpenError::Link);
            refusals.record(Pid(2), b"tmp/perf-2.map", &OpenError::Owner(7));
        }
        assert_eq!(nonzero_counts(&refusals), [("symlink", 2), ("owner", 1)]);
    }

    #[test]
    fn a_missing_file_is_not_a_refused_one() {
        let refusals = Refusals::default();
        for error in [OpenError::NotFound, OpenError::Gone, OpenError::NotCached, OpenError::Permission] {
            refusals.record(Pid(1), b"tmp/perf-1.map", &error);
        }
        assert_eq!(nonzero_counts(&refusals), []);
    }

    #[test]
    fn code_on_a_file_system_that_may_not_respond_is_refused() {
        let refusals = Refusals::default();
        refusals.record_code(Pid(1), b"/mnt/a", &OpenError::Remote);
        refusals.record_code(Pid(1), b"/mnt/b", &OpenError::NotCached);
        refusals.record_code(Pid(1), b"/usr/bin/gone", &OpenError::NotFound);
        assert_eq!(nonzero_counts(&refusals), [("remote", 2)]);
    }

    #[test]
    fn the_number_of_remembered_files_is_bounded() {
        let refusals = Refusals::default();
        for pid in 0..2 * REMEMBERED_MAX as u32 {
            refusals.record(Pid(pid), b"x", &OpenError::HardLink);
        }
        assert_eq!(nonzero_counts(&refusals), [("hard_link", 2 * REMEMBERED_MAX as u64)]);
        assert!(refusals.0.lock().unwrap().seen.len() <= REMEMBERED_MAX);
    }
}
