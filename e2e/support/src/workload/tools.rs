//! Programs of the system that compute, and what they compute on.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::Result;

use crate::{lock, paths};

/// A program of the system that is started, profiled, and ended from outside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tool {
    /// `openssl speed` on one algorithm.
    Openssl,
    /// `xz -9` on a long text.
    Xz,
    /// `sqlite3` in a recursive query.
    Sqlite,
}

impl Tool {
    /// The program's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Openssl => "openssl",
            Self::Xz => "xz",
            Self::Sqlite => "sqlite3",
        }
    }

    /// Exported functions that its stacks go through, outermost first; others may stand between them.
    #[must_use]
    pub fn chain(self) -> &'static [&'static str] {
        match self {
            Self::Openssl => &["__libc_start_main", "EVP_Digest"],
            Self::Xz => &["__libc_start_main", "lzma_code"],
            Self::Sqlite => &["__libc_start_main", "sqlite3_step"],
        }
    }

    /// A command that computes for at least `seconds`; it may go on until it is killed.
    ///
    /// # Errors
    /// When its input cannot be prepared.
    pub fn command(self, seconds: u32) -> Result<Command> {
        let mut command = Command::new(self.name());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        match self {
            Self::Openssl => {
                let seconds = seconds.to_string();
                command.args(["speed", "-seconds", &seconds, "-bytes", "16384", "-evp", "sha256"]);
            }
            Self::Xz => {
                command.args(["-9", "-T1", "-c"]).arg(text()?);
            }
            Self::Sqlite => {
                let query = fs::File::open(paths::e2e().join("workloads/primes.sql"))?;
                command.arg(":memory:").stdin(query);
            }
        }
        Ok(command)
    }
}

/// A recursive script under the system's `python3`, which is built without frame pointers.
///
/// # Errors
/// Never today; other programs need preparation.
pub fn python(seconds: f64) -> Result<Command> {
    let mut command = Command::new("/usr/bin/python3");
    command.arg(paths::e2e().join("workloads/recursive.py")).arg(seconds.to_string());
    Ok(command)
}

/// A text of 64 MiB that compresses about as well as prose.
///
/// # Errors
/// When it can't be written.
pub fn text() -> Result<PathBuf> {
    const WORDS: [&str; 16] = [
        "stack ", "frame ", "row ", "rule ", "table ", "sample ", "outcome ", "mapping ", "of ", "the ",
        "a ", "in ", "is ", "and ", "to ", "\n",
    ];
    const BYTES: usize = 64 << 20;
    let path = paths::compiled()?.join("corpus.txt");
    let is_whole = || fs::metadata(&path).is_ok_and(|metadata| metadata.len() >= BYTES as u64);
    if is_whole() {
        return Ok(path);
    }
    let _lock = lock::exclusive(&path)?;
    if is_whole() {
        return Ok(path);
    }
    let mut text = String::with_capacity(BYTES + 16);
    let mut random = 1_u64;
    while text.len() < BYTES {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        text.push_str(WORDS.get((random >> 60) as usize).copied().unwrap_or_default());
    }
    fs::write(&path, text)?;
    Ok(path)
}
