//! Exporting to files.
#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::fs;
use std::time::Duration;

use sidewinder_config::Verbosity;
use sidewinder_kind::Kind;
use sidewinder_otlp::builder::{SampleAttributes, SampleIdentity};
use sidewinder_otlp::send::{Exporter, ExporterOptions};
use sidewinder_otlp::{Report, ReportBuilder, ReportOptions, decode};
use sidewinder_profile::{Dictionary, LinkIndex};

/// Longer than any test needs.
const PATIENCE: Duration = Duration::from_secs(20);
const START: u64 = 1_700_000_000_000_000_000;

fn report(events: u64) -> Report {
    let mut dictionary = Dictionary::default();
    let mut builder = ReportBuilder::new(ReportOptions::new("0.1.0"));
    let identity = SampleIdentity {
        resource: dictionary.add_attributes([]),
        profile_type: builder.kind(Kind::Cpu { samples_per_second: 19 }),
        stack: dictionary.add_stack(&[]),
        attributes: SampleAttributes::default().add_to(&mut dictionary),
        link: LinkIndex::default(),
    };
    for event in 0..events {
        builder.event(&identity, START + event, 1);
    }
    builder.finish(&mut dictionary, START..START + 1).unwrap()
}

#[test]
fn reports_are_read_back_one_by_one_from_a_file_that_replaces_what_was_there() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("out.proto");
    for _ in 0..2 {
        let exporter = Exporter::file(ExporterOptions::new("file"), &path).unwrap();
        exporter.enqueue(report(1));
        exporter.enqueue(report(3));
        let counts = exporter.shutdown(PATIENCE);
        assert_eq!((counts.delivered.events, counts.total().events), (4, 4));
        let written = fs::read(&path).unwrap();
        let messages: Vec<_> = decode::file_messages(&written).collect::<Result<_, _>>().unwrap();
        let events = messages.iter().flat_map(|message| decode::decode_profiles_data(message).unwrap());
        assert_eq!(events.map(|profile| profile.events().count()).collect::<Vec<_>>(), [1, 3]);
    }
}

#[test]
fn what_a_full_disk_refuses_is_counted_as_lost() {
    // Every write to it fails for lack of space.
    let exporter = Exporter::file(ExporterOptions::new("file"), "/dev/full".as_ref()).unwrap();
    exporter.enqueue(report(3));
    let counts = exporter.shutdown(PATIENCE);
    assert_eq!((counts.dropped_write_failed.events, counts.total().events), (3, 3));
}

#[test]
fn a_file_that_cannot_be_opened_is_named_at_once() {
    let error = Exporter::file(ExporterOptions::new("file"), "/nowhere/out".as_ref()).unwrap_err();
    assert_eq!(error.to_string(), "cannot open \"/nowhere/out\"");
}

#[test]
fn a_pipe_that_nobody_reads_is_told_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pipe");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &path,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    let error = Exporter::file(ExporterOptions::new("file"), &path).unwrap_err();
    assert_eq!(error.to_string(), format!("cannot open {path:?}"));
}

#[test]
fn a_file_that_is_replaced_keeps_its_permissions_and_nothing_is_left_beside_it() {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("out.proto");
    fs::write(&path, "before").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o604)).unwrap();
    Exporter::file(ExporterOptions::new("file"), &path).unwrap().shutdown(PATIENCE);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o604);
    assert_eq!((fs::read(&path).unwrap().len(), fs::read_dir(directory.path()).unwrap().count()), (0, 1));
}

#[test]
fn a_report_in_the_log_counts_as_delivered() {
    let exporter = Exporter::debug(ExporterOptions::new("debug"), Verbosity::Detailed).unwrap();
    exporter.enqueue(report(3));
    assert_eq!(exporter.shutdown(PATIENCE).delivered.events, 3);
}
