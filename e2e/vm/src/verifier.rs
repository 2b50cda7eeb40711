//! What verifying the programs takes, compared with the baseline that is kept in the repository.
//!
//! A kernel refuses programs of which its verifier would have to follow more than a million instructions, and older
//! verifiers prune less. So growth is noticed on every kernel, long before it is refused on one.
//! Counts are those of clang 14, Debian bookworm's: another compiler may move them a little.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::{fs, io};

use anyhow::{Context as _, Result};
use sidewinder_e2e_support::paths;

/// A program needs no explanation until it takes more than this share of its baseline.
const TOLERATED_PERCENT: u64 = 110;
const HEADER: &str = "kernel\twalk\tprogram\tinstructions\n";
/// What `check --verify` calls the time that loading took.
const LOAD_MS: &str = "load_ms";

/// A program and the way to walk that it belongs to.
pub type Program = (String, String);

/// What `sidewinder check --verify` printed on one kernel.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Verified {
    /// Instructions that the verifier followed.
    pub instructions: BTreeMap<Program, u64>,
    /// For each way to walk, how long loading its programs took.
    pub load_ms: BTreeMap<String, u64>,
}

impl Verified {
    /// Reads what was printed; other lines are passed over.
    #[must_use]
    pub fn parse(printed: &str) -> Self {
        let mut verified = Self::default();
        for line in printed.lines() {
            let mut words = line.trim_end().split('\t');
            let (Some(walk), Some(what), Some(number), None) =
                (words.next(), words.next(), words.next(), words.next())
            else {
                continue;
            };
            let Ok(number) = number.parse() else { continue };
            if what == LOAD_MS {
                verified.load_ms.insert(walk.to_owned(), number);
            } else {
                verified.instructions.insert((walk.to_owned(), what.to_owned()), number);
            }
        }
        verified
    }
}

/// For each kernel, as `6.12`, what its verifier is known to follow.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Baseline {
    kernels: BTreeMap<String, BTreeMap<Program, u64>>,
}

impl Baseline {
    /// The one that is kept.
    ///
    /// # Errors
    /// When it can't be read, or a line of it.
    pub fn read() -> Result<Self> {
        match fs::read_to_string(path()) {
            Ok(text) => Self::parse(&text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error).with_context(|| path().display().to_string()),
        }
    }

    fn parse(text: &str) -> Result<Self> {
        let mut baseline = Self::default();
        for line in text.lines().skip(1) {
            let words: Vec<&str> = line.split('\t').collect();
            let &[kernel, walk, program, instructions] = words.as_slice() else {
                anyhow::bail!("{}: not four columns: {line}", path().display());
            };
            let programs = baseline.kernels.entry(kernel.to_owned()).or_default();
            programs.insert((walk.to_owned(), program.to_owned()), instructions.parse()?);
        }
        Ok(baseline)
    }

    /// Keeps this one.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn write(&self) -> Result<()> {
        let mut text = HEADER.to_owned();
        for (kernel, programs) in &self.kernels {
            for ((walk, program), instructions) in programs {
                let _ = writeln!(text, "{kernel}\t{walk}\t{program}\t{instructions}");
            }
        }
        fs::write(path(), text).with_context(|| path().display().to_string())
    }

    /// Takes what was verified as what is to be expected on this kernel.
    pub fn accept(&mut self, kernel: &str, verified: &Verified) {
        self.kernels.insert(kernel.to_owned(), verified.instructions.clone());
    }

    /// A line for each program that takes noticeably more than is known, or of which nothing is known. On a kernel that
    /// isn't in the baseline, a program may take what it takes on any other.
    #[must_use]
    pub fn breaches(&self, kernel: &str, verified: &Verified) -> Vec<String> {
        let expected = |program| match self.kernels.get(kernel) {
            Some(programs) => programs.get(program).copied(),
            None => self.kernels.values().filter_map(|programs| programs.get(program)).max().copied(),
        };
        let judged = verified.instructions.iter().filter_map(|(program, &found)| {
            let name = format!("{kernel}: {} ({})", program.1, program.0);
            match expected(program) {
                Some(known) if found * 100 <= known * TOLERATED_PERCENT => None,
                Some(known) => Some(format!("{name} takes {found} instructions, {known} are known")),
                None => Some(format!("{name} takes {found} instructions, and is not in the baseline")),
            }
        });
        judged.collect()
    }
}

/// The major and minor number of a kernel's release: `6.12` of `6.12.95+deb12-cloud-amd64`.
#[must_use]
pub fn series(release: &str) -> String {
    release.split('.').take(2).collect::<Vec<_>>().join(".")
}

fn path() -> PathBuf {
    paths::e2e().join("vm/baseline.tsv")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verified(instructions: u64) -> Verified {
        Verified::parse(&format!("loop\tsample_cpu\t{instructions}\r\nnoise\nloop\tload_ms\t7\n"))
    }

    #[test]
    fn a_program_may_take_a_tenth_more_than_its_baseline() {
        let mut baseline = Baseline::default();
        baseline.accept("6.1", &verified(1000));
        assert_eq!(baseline.breaches("6.1", &verified(1100)), Vec::<String>::new());
        assert_eq!(baseline.breaches("6.1", &verified(1101)).len(), 1);
    }

    #[test]
    fn an_unknown_kernel_may_take_what_others_do_and_an_unknown_program_nothing() {
        let mut baseline = Baseline::default();
        baseline.accept("6.1", &verified(1000));
        baseline.accept("6.12", &verified(2000));
        assert_eq!(baseline.breaches("7.3", &verified(2200)), Vec::<String>::new());
        assert_eq!(baseline.breaches("7.3", &verified(2201)).len(), 1);
        assert_eq!(Baseline::default().breaches("6.1", &verified(1)).len(), 1);
    }

    #[test]
    fn releases_are_known_by_their_series() {
        assert_eq!(series("6.12.95+deb12-cloud-amd64"), "6.12");
        assert_eq!(verified(3).load_ms.get("loop"), Some(&7));
    }
}
