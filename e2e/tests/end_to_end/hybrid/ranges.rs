//! Which ranges of a binary the profiler walks by frame pointers, as `sidewinder inspect --ranges` says.

use std::path::Path;

use anyhow::{Context as _, Result, bail};

use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::sidewinder;

/// How the mode of such a range begins.
const MODE: &str = "frame pointer";

/// Where the profiler walks a binary by frame pointers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct FramePointerRanges {
    /// Start and end, ascending.
    ranges: Vec<(u64, u64)>,
}

impl FramePointerRanges {
    /// Asks the profiler about a binary.
    ///
    /// # Errors
    /// When it fails, or prints what are no ranges.
    pub(crate) fn of(binary: &Path) -> Result<Self> {
        let mut command = sidewinder::command()?;
        let output =
            command.arg("inspect").arg(binary).arg("--ranges").output().context("cannot run inspect")?;
        if !output.status.success() {
            bail!("inspect ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr));
        }
        Self::parse(std::str::from_utf8(&output.stdout)?)
    }

    /// Reads lines of start, end and mode, separated by tabs.
    fn parse(lines: &str) -> Result<Self> {
        let address = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16);
        let mut ranges = Vec::new();
        for line in lines.lines() {
            let mut columns = line.splitn(3, '\t');
            let (Some(start), Some(end), Some(mode)) = (columns.next(), columns.next(), columns.next())
            else {
                bail!("{line:?} is no range");
            };
            let range = (address(start).with_context(|| line.to_owned())?, address(end)?);
            if mode.starts_with(MODE) {
                ranges.push(range);
            }
        }
        Ok(Self { ranges })
    }

    /// Whether the step at `svma` is one by frame pointer.
    #[must_use]
    pub(crate) fn contains(&self, svma: u64) -> bool {
        let after = self.ranges.partition_point(|(start, _)| *start <= svma);
        after.checked_sub(1).and_then(|at| self.ranges.get(at)).is_some_and(|(_, end)| svma < *end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[promise(HybridUnwinding)]
    fn only_ranges_walked_by_frame_pointers_count() -> Result<()> {
        let lines =
            "0x10\t0x14\ttable: leaf\n0x14\t0x20\tframe pointer: proven by the rows\n0x20\t0x30\tnone: gap\n";
        let ranges = FramePointerRanges::parse(lines)?;
        let inside: Vec<u64> = (0x10..0x40).filter(|svma| ranges.contains(*svma)).collect();
        assert_eq!(inside, (0x14..0x20).collect::<Vec<_>>());
        Ok(())
    }

    #[promise(HybridUnwinding)]
    fn a_line_that_is_no_range_is_refused() {
        assert!(FramePointerRanges::parse("ranges:\n").is_err());
    }
}
