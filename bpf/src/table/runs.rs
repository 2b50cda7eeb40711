//! Runs: sequences of closely spaced rows that one row stands for.

use std::array;

use crate::intf::{self, sw_run};

const RUN_ROWS: usize = intf::SW_RUN_ROWS as usize;

/// The largest distance of rows in a run: larger distances don't recur often enough.
const MAX_GAP_BYTES: u32 = 8;

/// The start of a rule's range, in bytes from the segment's start.
#[derive(Clone, Copy, Debug)]
pub(super) struct NumberedRow {
    pub(super) at: u32,
    pub(super) number: u16,
}

impl NumberedRow {
    pub(super) fn bucket(self) -> u32 {
        self.at >> intf::SW_BUCKET_SHIFT
    }

    /// The row in the programs' format, with its offset from the start of its bucket or run.
    pub(super) fn packed(offset: u32, number: u16) -> u16 {
        (offset as u16) << intf::SW_RULE_BITS | number
    }
}

/// As in `sw_run`.
pub(super) type RowRun = [u16; RUN_ROWS];

/// Splits rows into sequences that can be runs. None is empty, and none crosses a bucket boundary.
pub(super) fn row_sequences(rows: &[NumberedRow]) -> impl Iterator<Item = &[NumberedRow]> {
    let mut length = 1;
    rows.chunk_by(move |row, next| {
        let goes_on = length < RUN_ROWS && next.at - row.at <= MAX_GAP_BYTES && next.bucket() == row.bucket();
        length = if goes_on { length + 1 } else { 1 };
        goes_on
    })
}

/// Encodes a sequence as a run.
pub(super) fn run(sequence: &[NumberedRow]) -> RowRun {
    array::from_fn(|i| {
        let row = sequence[i.min(sequence.len() - 1)];
        NumberedRow::packed(row.at - sequence[0].at, row.number)
    })
}

/// The runs that save bytes, sorted; if there are more than `most`, those that save most.
pub(super) fn select_runs(rows: &[NumberedRow], most: usize) -> Vec<RowRun> {
    let mut runs: Vec<RowRun> = row_sequences(rows).filter(|sequence| sequence.len() > 1).map(run).collect();
    runs.sort_unstable();
    let mut chosen: Vec<(usize, RowRun)> =
        runs.chunk_by(RowRun::eq).map(|same| (bytes_saved(&same[0], same.len()), same[0])).collect();
    chosen.retain(|(saved, _)| *saved > 0);
    chosen.sort_unstable_by(|a, b| b.cmp(a));
    chosen.truncate(most);
    let mut runs: Vec<RowRun> = chosen.into_iter().map(|(_, run)| run).collect();
    runs.sort_unstable();
    runs
}

/// How much a run saves if it replaces `count` sequences.
fn bytes_saved(run: &RowRun, uses: usize) -> usize {
    let rows_beyond_first = run.windows(2).filter(|pair| pair[0] != pair[1]).count();
    (rows_beyond_first * 2 * uses).saturating_sub(size_of::<sw_run>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(at: &[u32]) -> Vec<NumberedRow> {
        at.iter().zip(2..).map(|(at, number)| NumberedRow { at: *at, number }).collect()
    }

    /// The offsets at which sequences start.
    fn starts(at: &[u32]) -> Vec<u32> {
        row_sequences(&rows(at)).map(|sequence| sequence[0].at).collect()
    }

    #[test]
    fn a_sequence_ends_with_a_gap_with_its_bucket_and_with_a_run() {
        assert_eq!(starts(&[0, 1, 9, 18]), [0, 18], "a gap");
        assert_eq!(starts(&[120, 126, 128]), [120, 128], "a bucket");
        assert_eq!(starts(&[0, 1, 2, 3, 4, 5, 6, 7, 8]), [0, 8], "a run");
    }

    #[test]
    fn a_run_repeats_its_last_row_to_the_end() {
        let run = run(&rows(&[200, 203]));
        let last = NumberedRow::packed(3, 3);
        assert_eq!(run, [NumberedRow::packed(0, 2), last, last, last, last, last, last, last]);
    }

    #[test]
    fn a_sequence_is_a_run_where_that_saves_bytes() {
        let occurring = |times: u32| -> Vec<NumberedRow> {
            (0..times).flat_map(|i| rows(&[i * 128, i * 128 + 1, i * 128 + 3])).collect()
        };
        // Each occurrence saves 4 bytes, and the run takes 16.
        assert_eq!(select_runs(&occurring(4), 9), Vec::<RowRun>::new());
        assert_eq!(select_runs(&occurring(5), 9), [run(&rows(&[0, 1, 3]))]);
        assert_eq!(select_runs(&occurring(5), 0), Vec::<RowRun>::new(), "no number is left");
    }
}
