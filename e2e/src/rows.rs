//! The rows that `sidewinder inspect --rows` prints.

use std::path::Path;

use anyhow::{Context as _, Result, bail};

use crate::sidewinder;

/// The rule of a standard frame: what a walk by frame pointers does.
const FRAME_POINTER_RULE: [&str; 3] = ["rbp+16", "cfa-16", "cfa-8"];

/// Where the profiler walks a binary by frame pointers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FramePointerRanges {
    /// Start and end, ascending.
    ranges: Vec<(u64, u64)>,
}

impl FramePointerRanges {
    /// Asks the profiler about a binary.
    ///
    /// # Errors
    /// When it fails, or prints what are no rows.
    pub fn of(binary: &Path) -> Result<Self> {
        let mut command = sidewinder::command()?;
        let output =
            command.arg("inspect").arg(binary).arg("--rows").output().context("cannot run inspect")?;
        if !output.status.success() {
            bail!("inspect ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr));
        }
        Self::parse(std::str::from_utf8(&output.stdout)?)
    }

    fn parse(rows: &str) -> Result<Self> {
        let mut ranges = Vec::new();
        let mut open = None;
        for line in rows.lines() {
            let mut columns = line.split('\t');
            let start = columns.next().unwrap_or_default();
            let start = u64::from_str_radix(start.trim_start_matches("0x"), 16)
                .with_context(|| format!("{line:?} is no row"))?;
            if let Some(from) = open.take() {
                ranges.push((from, start));
            }
            if columns.eq(FRAME_POINTER_RULE) {
                open = Some(start);
            }
        }
        if open.is_some() {
            bail!("the last row is in force for ever");
        }
        Ok(Self { ranges })
    }

    /// Whether the step at `svma` is one by frame pointer.
    #[must_use]
    pub fn contains(&self, svma: u64) -> bool {
        let after = self.ranges.partition_point(|(start, _)| *start <= svma);
        after.checked_sub(1).and_then(|at| self.ranges.get(at)).is_some_and(|(_, end)| svma < *end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_in_force_up_to_the_next_and_only_the_standard_frame_counts() -> Result<()> {
        let rows =
            "0x10\trsp+8\tsame\tcfa-8\n0x14\trbp+16\tcfa-16\tcfa-8\n0x20\trbp+16\tsame\tcfa-8\n0x30\tend\n";
        let ranges = FramePointerRanges::parse(rows)?;
        let inside: Vec<u64> = (0x10..0x40).filter(|svma| ranges.contains(*svma)).collect();
        assert_eq!(inside, (0x14..0x20).collect::<Vec<_>>());
        Ok(())
    }

    #[test]
    fn a_line_that_is_no_row_is_refused() {
        assert!(FramePointerRanges::parse("rows:\n").is_err());
    }
}
