//! A queue on disk outlives its exporter.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use sidewinder_config::Retry;
use sidewinder_otlp::send::{Exporter, ExporterError, ExporterOptions, StorageError, StorageOptions};

use super::receiver::{Answer, Receiver};
use super::{PATIENCE, dead_port, impatient, options, plaintext, report, settled, shut_down, start};

fn storage(directory: &Path) -> StorageOptions {
    StorageOptions {
        directory: directory.to_owned(),
        create_with_mode: None,
        max_bytes: 1 << 20,
        fsync: true,
    }
}

/// Never gives up.
fn on_disk(storage: StorageOptions) -> ExporterOptions {
    let retry = Retry { max_elapsed_time: None, ..impatient() };
    ExporterOptions { storage: Some(storage), retry, ..options() }
}

/// Waits until all reports are written.
async fn saved(exporter: &Exporter, bytes: u64) {
    let waiting = async {
        while exporter.stats().queue_bytes < bytes {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.expect("not written");
}

fn segments(directory: &Path) -> Vec<std::path::PathBuf> {
    let folder = fs::read_dir(directory).unwrap().next().unwrap().unwrap().path();
    let mut paths: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "log"));
    paths
}

#[tokio::test]
async fn what_could_not_be_sent_is_sent_by_the_next_process() {
    let directory = tempfile::tempdir().unwrap();
    let exporter = start(on_disk(storage(directory.path())), &plaintext(&dead_port().await));
    for _ in 0..20 {
        exporter.enqueue(report(2, 3));
    }
    let (counts, _) = shut_down(exporter, Duration::from_millis(50)).await;
    assert_eq!((counts.queued.events, counts.total().events), (120, 120));

    let receiver = Receiver::start([]).await;
    let exporter = start(on_disk(storage(directory.path())), &plaintext(&receiver.endpoint));
    let counts = settled(&exporter).await.counts;
    assert_eq!((counts.delivered.events, counts.total().events), (120, 120));
    assert_eq!(receiver.received().len(), 20);
    shut_down(exporter, PATIENCE).await;
    assert_eq!(segments(directory.path()), Vec::<std::path::PathBuf>::new());
}

#[tokio::test]
async fn a_request_that_an_earlier_process_may_have_sent_ends_as_unknown_where_it_fails() {
    let directory = tempfile::tempdir().unwrap();
    let dead = plaintext(&dead_port().await);
    let exporter = start(on_disk(storage(directory.path())), &dead);
    exporter.enqueue(report(1, 3));
    shut_down(exporter, Duration::from_millis(50)).await;
    let exporter = start(ExporterOptions { retry: impatient(), ..on_disk(storage(directory.path())) }, &dead);
    assert_eq!(settled(&exporter).await.counts.unknown.events, 3);
}

#[tokio::test]
async fn the_cap_holds_before_the_write_and_what_does_not_fit_is_counted() {
    let directory = tempfile::tempdir().unwrap();
    let one = report(1, 200);
    let record_bytes = one.as_bytes().len() as u64 + 60;
    let max_bytes = 5 * record_bytes + 10;
    let exporter = start(
        on_disk(StorageOptions { max_bytes, ..storage(directory.path()) }),
        &plaintext(&dead_port().await),
    );
    for _ in 0..9 {
        exporter.enqueue(one.clone());
    }
    let (counts, exporter) = shut_down(exporter, Duration::from_millis(50)).await;
    assert_eq!((counts.queued.events, counts.dropped_queue_full.events), (1000, 800));
    let on_disk: u64 = segments(directory.path()).iter().map(|path| path.metadata().unwrap().len()).sum();
    assert_eq!((on_disk, exporter.stats().queue_bytes), (5 * record_bytes, 5 * record_bytes));
}

#[tokio::test]
async fn a_queue_belongs_to_one_exporter() {
    let directory = tempfile::tempdir().unwrap();
    let endpoint = plaintext(&dead_port().await);
    let _first = start(on_disk(storage(directory.path())), &endpoint);
    let error = Exporter::grpc(on_disk(storage(directory.path())), &endpoint).unwrap_err();
    assert!(matches!(error, ExporterError::Storage(StorageError::InUse(_))), "{error}");
    let other = ExporterOptions { name: "otlp_grpc/other".to_owned(), ..on_disk(storage(directory.path())) };
    start(other, &endpoint);
}

#[tokio::test]
async fn a_folder_is_only_made_where_that_is_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let absent = directory.path().join("a/b");
    let endpoint = plaintext(&dead_port().await);
    let error = Exporter::grpc(on_disk(storage(&absent)), &endpoint).unwrap_err();
    assert!(error.to_string().starts_with("cannot create"), "{error}");
    let options = on_disk(StorageOptions { create_with_mode: Some(0o750), ..storage(&absent) });
    start(options, &endpoint);
    assert!(absent.is_dir());
}

#[tokio::test]
async fn what_is_damaged_while_it_waits_is_counted_and_the_rest_is_sent() {
    let directory = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(vec![Answer::Refuse(tonic::Code::Unavailable, "later"); 10]).await;
    let options = ExporterOptions { consumers: 1, ..on_disk(storage(directory.path())) };
    let retry = Retry { initial_interval: Duration::from_millis(300), ..options.retry };
    let exporter = start(ExporterOptions { retry, ..options }, &plaintext(&receiver.endpoint));
    let one = report(1, 3);
    for _ in 0..3 {
        exporter.enqueue(one.clone());
    }
    saved(&exporter, 3 * (one.as_bytes().len() as u64 + 60)).await;
    let file = OpenOptions::new().write(true).open(&segments(directory.path())[0]).unwrap();
    file.write_all_at(b"?", file.metadata().unwrap().len() - 1).unwrap();
    let counts = settled(&exporter).await.counts;
    assert_eq!((counts.delivered.events, counts.dropped_storage_damaged.events), (6, 3));
    assert_eq!(counts.total().events, 9);
}

#[tokio::test]
async fn what_waits_in_a_folder_that_is_gone_is_lost_with_the_process_and_what_cant_be_written_at_once() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("queues");
    fs::create_dir(&directory).unwrap();
    let exporter = start(on_disk(storage(&directory)), &plaintext(&dead_port().await));
    let one = report(1, 3);
    let record_bytes = one.as_bytes().len() as u64 + 60;
    exporter.enqueue(one.clone());
    saved(&exporter, record_bytes).await;
    fs::rename(&directory, parent.path().join("elsewhere")).unwrap();
    exporter.enqueue(one);
    let waiting = async {
        while exporter.stats().counts.dropped_write_failed.events == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.expect("not noticed");
    let (counts, _) = shut_down(exporter, Duration::from_millis(50)).await;
    assert_eq!((counts.dropped_write_failed.events, counts.queued.events), (3, 0));
    // The attempts at a dead port reached nobody.
    assert_eq!((counts.dropped_storage_damaged.events, counts.total().events), (3, 6));
}

#[tokio::test]
async fn a_queue_goes_on_in_a_new_folder_and_what_waits_in_the_removed_one_is_sent() {
    let directory = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(vec![Answer::Refuse(tonic::Code::Unavailable, "later"); 20]).await;
    let exporter = start(on_disk(storage(directory.path())), &plaintext(&receiver.endpoint));
    let one = report(1, 3);
    let record_bytes = one.as_bytes().len() as u64 + 60;
    exporter.enqueue(one.clone());
    saved(&exporter, record_bytes).await;
    fs::remove_dir_all(segments(directory.path())[0].parent().unwrap()).unwrap();
    exporter.enqueue(one);
    saved(&exporter, 2 * record_bytes).await;
    assert_eq!(segments(directory.path()).len(), 1);
    let counts = settled(&exporter).await.counts;
    assert_eq!((counts.delivered.events, counts.total().events), (6, 6));
    shut_down(exporter, PATIENCE).await;
    assert_eq!(segments(directory.path()), Vec::<std::path::PathBuf>::new());
}
