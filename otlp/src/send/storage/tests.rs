//! Whatever happens to the bytes of a log, intact records are found and losses are counted.

use std::path::Path;

use proptest::collection::vec;
use proptest::prelude::*;
use tempfile::TempDir;

use super::record::MARK_BYTES;
use super::*;

fn options(directory: &Path) -> StorageOptions {
    StorageOptions {
        directory: directory.to_owned(),
        create_with_mode: None,
        max_bytes: 1 << 20,
        fsync: false,
    }
}

fn open(directory: &Path) -> (ReportLog, RecoveredReports) {
    ReportLog::open(&options(directory), "otlp_grpc").unwrap()
}

/// A report of arbitrary bytes, which a log doesn't interpret.
fn report(bytes: &[u8], events: u64) -> Report {
    Report::from_parts(Bytes::copy_from_slice(bytes), Tally { events, samples: 1 }, 1)
}

/// A log of one segment.
struct Written {
    directory: TempDir,
    reports: Vec<Report>,
    /// The start of each record, and the end of the last one.
    starts: Vec<usize>,
    done: Vec<bool>,
}

impl Written {
    fn new(contents: &[(Vec<u8>, u64, bool)]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (mut log, _) = open(directory.path());
        // So that a segment is kept although all its records are done.
        let contents: Vec<_> = contents.iter().cloned().chain([(vec![7; 5], 3, false)]).collect();
        let reports: Vec<_> = contents.iter().map(|(bytes, events, _)| report(bytes, *events)).collect();
        let stored: Vec<_> = reports.iter().map(|report| log.append(report).unwrap()).collect();
        let mut starts: Vec<_> = stored.iter().map(|stored| stored.offset as usize).collect();
        starts.push(log.bytes() as usize);
        let done: Vec<_> = contents.iter().map(|(.., done)| *done).collect();
        for (stored, _) in stored.iter().zip(&done).filter(|(_, done)| **done) {
            log.mark_done(stored);
        }
        Self { directory, reports, starts, done }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("queue_otlp_grpc/0000000000000000.log")
    }

    /// The waiting reports, of those that `keep` selects.
    fn waiting(&self, keep: impl Fn(usize) -> bool) -> Vec<Report> {
        let numbered = self.reports.iter().enumerate();
        numbered.filter(|(at, _)| !self.done[*at] && keep(*at)).map(|(_, report)| report.clone()).collect()
    }
}

fn found(directory: &Path) -> (Vec<Report>, RecoveredReports) {
    let (log, recovered) = open(directory);
    let reports = recovered.waiting.iter().map(|stored| log.read(stored).unwrap().unwrap()).collect();
    (reports, recovered)
}

fn contents() -> impl Strategy<Value = Vec<(Vec<u8>, u64, bool)>> {
    vec((vec(any::<u8>(), 0..120), 1..1000_u64, any::<bool>()), 0..12)
}

proptest! {
    #[test]
    fn what_was_written_is_found_by_the_next_process_without_what_is_done(contents in contents()) {
        let written = Written::new(&contents);
        let (reports, recovered) = found(written.directory.path());
        prop_assert_eq!(reports, written.waiting(|_| true));
        prop_assert_eq!((recovered.lost, recovered.unreadable_bytes), (Tally::default(), 0));
    }

    /// As if the process or the machine crashed during a write.
    #[test]
    fn a_log_that_is_cut_off_anywhere_has_all_records_before(contents in contents(), at in any::<prop::sample::Index>()) {
        let written = Written::new(&contents);
        let whole = fs::read(written.path()).unwrap();
        let end = at.index(whole.len());
        fs::write(written.path(), &whole[..end]).unwrap();
        let (reports, recovered) = found(written.directory.path());
        prop_assert_eq!(reports, written.waiting(|at| written.starts[at + 1] <= end));
        let torn = (0..written.reports.len()).find(|at| written.starts[*at] < end && end < written.starts[at + 1]);
        match torn {
            None => prop_assert_eq!((recovered.lost, recovered.unreadable_bytes), (Tally::default(), 0)),
            Some(at) if end - written.starts[at] < RecordHeader::BYTES => {
                prop_assert_eq!(recovered.unreadable_bytes, (end - written.starts[at]) as u64);
            }
            Some(at) if written.done[at] => prop_assert_eq!(recovered.lost, Tally::default()),
            Some(at) => prop_assert_eq!(recovered.lost, written.reports[at].tally()),
        }
    }

    #[test]
    fn a_flipped_byte_costs_its_own_record_alone_and_is_counted_once(
        contents in contents(),
        at in any::<prop::sample::Index>(),
        flip in 1..=255_u8,
    ) {
        let written = Written::new(&contents);
        let mut bytes = fs::read(written.path()).unwrap();
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        fs::write(written.path(), &bytes).unwrap();
        let hit = written.starts.iter().rposition(|start| *start <= at).unwrap();
        let within = at - written.starts[hit];
        let (reports, recovered) = found(written.directory.path());
        if within < MARK_BYTES {
            // Sent twice rather than not at all.
            prop_assert!(reports.len() >= written.waiting(|_| true).len());
            prop_assert_eq!(recovered.lost, Tally::default());
            return Ok(());
        }
        prop_assert_eq!(reports, written.waiting(|at| at != hit));
        let is_told_by_its_neighbours = hit > 0 && hit + 1 < written.reports.len();
        if within >= RecordHeader::BYTES {
            let expected = if written.done[hit] { Tally::default() } else { written.reports[hit].tally() };
            prop_assert_eq!(recovered.lost, expected);
        } else if is_told_by_its_neighbours {
            prop_assert_eq!(recovered.lost, written.reports[hit].tally());
        } else {
            prop_assert_eq!(recovered.unreadable_bytes, (written.starts[hit + 1] - written.starts[hit]) as u64);
        }
        let (again, recovered) = found(written.directory.path());
        prop_assert_eq!(again, written.waiting(|at| at != hit));
        prop_assert_eq!((recovered.lost, recovered.unreadable_bytes), (Tally::default(), 0));
    }

    #[test]
    fn any_bytes_at_all_are_survived(bytes in vec(any::<u8>(), 0..400)) {
        let written = Written::new(&[]);
        fs::write(written.path(), &bytes).unwrap();
        let (reports, recovered) = found(written.directory.path());
        prop_assert_eq!((reports, recovered.unreadable_bytes), (Vec::new(), bytes.len() as u64));
    }
}

#[test]
fn segments_in_which_all_is_done_are_removed_and_no_write_goes_beyond_the_cap() {
    let directory = tempfile::tempdir().unwrap();
    let (mut log, _) =
        ReportLog::open(&StorageOptions { max_bytes: 64 << 10, ..options(directory.path()) }, "x").unwrap();
    let one = report(&[1; 1000], 1);
    let mut waiting = std::collections::VecDeque::new();
    for _ in 0..500 {
        match log.append(&one) {
            Ok(stored) => waiting.push_back(stored),
            Err(AppendError::Full) => log.mark_done(&waiting.pop_front().unwrap()),
            Err(AppendError::Write(error)) => panic!("{error}"),
        }
        let files = fs::read_dir(directory.path().join("queue_x")).unwrap();
        let bytes: u64 = files.map(|file| file.unwrap().metadata().unwrap().len()).sum();
        assert_eq!(bytes, log.bytes());
        assert!(bytes <= 64 << 10);
    }
    // All segments except the oldest are used.
    assert!(waiting.len() > 50, "{}", waiting.len());
    waiting.iter().for_each(|stored| log.mark_done(stored));
    assert_eq!(log.bytes(), 0);
}
