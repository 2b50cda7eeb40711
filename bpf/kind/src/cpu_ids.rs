//! Lists of CPUs.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// CPU IDs, written as the kernel does: `0-3,8`. Empty: all.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CpuIds(BTreeSet<u32>);

/// A text that isn't a list of CPUs.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{part:?} is neither a CPU nor a range of CPUs up to {}", CpuIds::MAX)]
pub struct InvalidCpuIds {
    /// The first wrong part of the list.
    part: String,
}

impl FromIterator<u32> for CpuIds {
    fn from_iter<T: IntoIterator<Item = u32>>(ids: T) -> Self {
        Self(ids.into_iter().collect())
    }
}

impl CpuIds {
    /// The greatest CPU ID (`NR_CPUS` is at most 8,192 in any configuration of Linux on x86-64).
    pub const MAX: u32 = 8191;

    /// Whether all CPUs are meant.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Those of these CPUs that are among others; all of them if the others are all.
    #[must_use]
    pub fn only(&self, others: &Self) -> Self {
        self.iter().filter(|id| others.is_empty() || others.0.contains(id)).collect()
    }

    /// The CPU IDs in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().copied()
    }
}

impl FromStr for CpuIds {
    type Err = InvalidCpuIds;

    fn from_str(list: &str) -> Result<Self, InvalidCpuIds> {
        let mut ids = BTreeSet::new();
        for part in list.split(',').map(str::trim) {
            if part.is_empty() && list.trim().is_empty() {
                break;
            }
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            match (first.trim().parse::<u32>(), last.trim().parse::<u32>()) {
                (Ok(first), Ok(last)) if first <= last && last <= Self::MAX => ids.extend(first..=last),
                _ => return Err(InvalidCpuIds { part: part.to_owned() }),
            }
        }
        Ok(Self(ids))
    }
}

impl fmt::Display for CpuIds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ids = self.iter().peekable();
        let mut separator = "";
        while let Some(first) = ids.next() {
            let mut last = first;
            while let Some(next) = ids.next_if_eq(&(last + 1)) {
                last = next;
            }
            write!(f, "{separator}{first}")?;
            if last > first {
                write!(f, "-{last}")?;
            }
            separator = ",";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_ranges_are_read_and_written() {
        for (text, ids, written) in [
            ("", &[][..], ""),
            ("0", &[0], "0"),
            ("8, 0-2,1", &[0, 1, 2, 8], "0-2,8"),
            ("8191", &[8191], "8191"),
            ("0-1\n", &[0, 1], "0-1"),
        ] {
            let parsed: CpuIds = text.parse().unwrap();
            assert_eq!(parsed.iter().collect::<Vec<_>>(), ids);
            assert_eq!(parsed.to_string(), written);
        }
    }

    #[test]
    fn some_of_the_cpus_are_those_that_exist() {
        let only = |ids: &str| {
            let online: CpuIds = "0-1,4".parse().unwrap();
            online.only(&ids.parse().unwrap()).to_string()
        };
        assert_eq!((&*only("0,4,7"), &*only(""), &*only("9")), ("0,4", "0-1,4", ""));
    }

    #[test]
    fn the_part_that_is_wrong_is_named() {
        for (text, part) in [("0,x", "x"), ("3-1", "3-1"), ("0,,1", ""), ("0-8192", "0-8192"), ("-1", "-1")] {
            let error = text.parse::<CpuIds>().unwrap_err();
            assert_eq!(error.part, part, "{text}");
        }
    }
}
