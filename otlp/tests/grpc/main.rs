//! Each event that is handed to a gRPC exporter is counted once, whatever the receiver does.
#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

mod receiver;
mod tls;

use std::collections::HashSet;
use std::time::Duration;

use receiver::{Answer, Receiver};
use sidewinder_otlp::builder::{Frame, Function, Line, SampleAttributes, SampleIdentity};
use sidewinder_otlp::send::{
    Compression, Counts, Exporter, ExporterOptions, ExporterStats, GrpcOptions, Pem, RetryOptions, State,
    TlsOptions,
};
use sidewinder_otlp::{
    FrameType, Kind, Report, ReportBuilder, ReportOptions, Value, conformance, decode, key,
};
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tonic::Code;

const START: u64 = 1_700_000_000_000_000_000;

/// Longer than any test needs.
const PATIENCE: Duration = Duration::from_secs(20);

/// One profile for each resource, of two samples with `events` events in all.
fn report(resources: u64, events: u64) -> Report {
    let mut builder = ReportBuilder::new(ReportOptions::new("0.1.0"));
    for resource in 0..resources {
        let resource = builder.resource(&[(key::SERVICE_NAME, Value::Str(&format!("s{resource}")))]);
        for event in 0..events {
            let name = ["even", "odd"][event as usize % 2];
            let function = builder.function(&Function { name, ..Function::default() });
            let leaf = builder.location(&Frame {
                mapping: None,
                address: 16 + event % 2,
                frame_type: FrameType::Native,
                lines: &[Line::of(function)],
            });
            let identity = SampleIdentity {
                resource,
                kind: Kind::Cpu { samples_per_second: 19 },
                stack: builder.stack(&[leaf]),
                attributes: builder.attributes(&SampleAttributes::default()),
                link: None,
            };
            builder.event(&identity, START + event, 1);
        }
    }
    builder.finish(START..START + 1).unwrap()
}

/// Attempts in quick succession, for a third of a second.
fn impatient() -> RetryOptions {
    RetryOptions {
        initial_interval: Duration::from_millis(10),
        max_interval: Duration::from_millis(20),
        max_elapsed_time: Duration::from_millis(300),
        ..RetryOptions::default()
    }
}

fn options() -> ExporterOptions {
    ExporterOptions { retry: impatient(), ..ExporterOptions::named("otlp_grpc/test") }
}

fn plaintext(endpoint: &str) -> GrpcOptions {
    let tls = TlsOptions { insecure: true, ..TlsOptions::default() };
    GrpcOptions { tls, timeout: Duration::from_millis(300), ..GrpcOptions::to(endpoint) }
}

fn start(options: ExporterOptions, grpc: &GrpcOptions) -> Exporter {
    Exporter::grpc(options, grpc, &Handle::current()).unwrap()
}

/// Waits until nothing is queued any more.
async fn settled(exporter: &Exporter) -> ExporterStats {
    let waiting = async {
        while exporter.stats().counts.queued.events > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.expect("still queued");
    exporter.stats()
}

/// All of the report's events are in `state`.
#[track_caller]
fn assert_all(counts: &Counts, state: State, report: &Report) {
    assert_eq!(counts.get(state), report.tally(), "{counts:?}");
    assert_eq!(counts.total(), report.tally(), "{counts:?}");
}

/// What becomes of one report when a receiver answers like that.
async fn outcome(answers: Vec<Answer>) -> (Counts, Report, Receiver, ExporterStats) {
    let receiver = Receiver::start(answers).await;
    let exporter = start(options(), &plaintext(&receiver.endpoint));
    let report = report(3, 5);
    exporter.enqueue(report.clone());
    assert_eq!(exporter.stats().counts.total(), report.tally());
    let stats = settled(&exporter).await;
    (stats.counts, report, receiver, stats)
}

#[tokio::test]
async fn what_is_sent_arrives_byte_for_byte_and_conforms() {
    for compression in [Compression::None, Compression::Gzip, Compression::Zstd] {
        let receiver = Receiver::start([]).await;
        let grpc = GrpcOptions { compression, ..plaintext(&receiver.endpoint) };
        let exporter = start(options(), &grpc);
        let report = report(2, 9);
        exporter.enqueue(report.clone());
        assert_all(&settled(&exporter).await.counts, State::Delivered, &report);
        let received = receiver.received();
        assert_eq!(received[0].message, report.as_bytes());
        assert_eq!(conformance::check(&received[0].message), []);
        let encoding = received[0].headers.get("grpc-encoding").map(|value| value.to_str().unwrap());
        let expected = match compression {
            Compression::None => None,
            Compression::Gzip => Some("gzip"),
            Compression::Zstd => Some("zstd"),
        };
        assert_eq!(encoding, expected);
    }
}

#[tokio::test]
async fn an_answer_may_be_compressed_as_the_request_was() {
    for compression in [Compression::Gzip, Compression::Zstd] {
        let receiver = Receiver::start([Answer::AcceptInKind]).await;
        let exporter = start(options(), &GrpcOptions { compression, ..plaintext(&receiver.endpoint) });
        let report = report(1, 1);
        exporter.enqueue(report.clone());
        assert_all(&settled(&exporter).await.counts, State::Delivered, &report);
    }
}

#[tokio::test]
async fn the_version_of_the_signal_is_sent_once_above_the_users_headers() {
    let receiver = Receiver::start([]).await;
    let headers = [
        ("Authorization", "Bearer secret"),
        ("OTLP-Profiles-Development-Version", "7"),
        ("x", "1"),
        ("x", "2"),
    ];
    let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let grpc = GrpcOptions { headers, ..plaintext(&receiver.endpoint) };
    assert!(!format!("{grpc:?}").contains("secret"));
    let exporter = start(options(), &grpc);
    exporter.enqueue(report(1, 1));
    settled(&exporter).await;
    let headers = &receiver.received()[0].headers;
    let all = |name: &str| headers.get_all(name).iter().cloned().collect::<Vec<_>>();
    assert_eq!(all("otlp-profiles-development-version"), ["1"]);
    assert_eq!(all("authorization"), ["Bearer secret"]);
    assert_eq!(all("x"), ["1", "2"]);
    assert!(headers["user-agent"].to_str().unwrap().starts_with("sidewinder/"));
}

#[tokio::test]
async fn a_retryable_refusal_is_tried_again_with_identical_bytes() {
    for code in [
        Code::Cancelled,
        Code::DeadlineExceeded,
        Code::Aborted,
        Code::OutOfRange,
        Code::Unavailable,
        Code::DataLoss,
    ] {
        let answers = vec![Answer::Refuse(code, "later"), Answer::RefuseLate(code)];
        let (counts, report, receiver, _) = outcome(answers).await;
        assert_all(&counts, State::Delivered, &report);
        let received = receiver.received();
        assert_eq!(received.len(), 3, "{code:?}");
        assert!(received.iter().all(|attempt| attempt.message == report.as_bytes()));
    }
}

#[tokio::test]
async fn any_other_refusal_is_final() {
    for code in [
        Code::Unknown,
        Code::InvalidArgument,
        Code::NotFound,
        Code::AlreadyExists,
        Code::PermissionDenied,
        Code::ResourceExhausted,
        Code::FailedPrecondition,
        Code::Unimplemented,
        Code::Internal,
        Code::Unauthenticated,
    ] {
        for answer in [Answer::Refuse(code, "no"), Answer::RefuseLate(code)] {
            let (counts, report, receiver, _) = outcome(vec![answer]).await;
            assert_all(&counts, State::Rejected, &report);
            assert_eq!(receiver.received().len(), 1, "{code:?}");
        }
    }
}

#[tokio::test]
async fn an_exhausted_receiver_is_tried_again_when_it_says_after_which_time() {
    let delay = Duration::from_millis(150);
    let begun = std::time::Instant::now();
    let (counts, report, receiver, _) =
        outcome(vec![Answer::RefuseFor(Code::ResourceExhausted, delay)]).await;
    assert_all(&counts, State::Delivered, &report);
    assert_eq!(receiver.received().len(), 2);
    assert!(begun.elapsed() >= delay);
}

#[tokio::test]
async fn a_wait_beyond_the_last_attempt_ends_it_at_once() {
    let delay = Duration::from_secs(3600);
    let (counts, report, receiver, _) = outcome(vec![Answer::RefuseFor(Code::Unavailable, delay)]).await;
    assert_all(&counts, State::DroppedRetriesExhausted, &report);
    assert_eq!(receiver.received().len(), 1);
}

#[tokio::test]
async fn a_receiver_of_another_version_is_told_apart() {
    let message = "invalid or unsupported otlp-profiles-development-version: supported version is 2";
    let (counts, report, receiver, _) = outcome(vec![Answer::Refuse(Code::InvalidArgument, message)]).await;
    assert_all(&counts, State::Incompatible, &report);
    assert_eq!(receiver.received().len(), 1);
}

#[tokio::test]
async fn a_partial_success_is_recorded_and_never_retried() {
    for (rejected, state) in [
        (0, State::Delivered),
        (2, State::PartiallyRejected),
        (3, State::Rejected),
        (i64::MAX, State::Rejected),
        (-1, State::Unknown),
    ] {
        let (counts, report, receiver, stats) = outcome(vec![Answer::Partial(rejected, "too\nmany")]).await;
        assert_all(&counts, state, &report);
        assert_eq!(receiver.received().len(), 1);
        let recorded = stats.last_partial_success.unwrap();
        assert_eq!((recorded.rejected_profiles, recorded.message.as_str()), (rejected, "too\\nmany"));
    }
}

#[tokio::test]
async fn a_receiver_that_never_answers_may_have_the_events() {
    let (counts, report, receiver, _) = outcome(vec![Answer::Silence; 100]).await;
    assert_all(&counts, State::Unknown, &report);
    assert!(!receiver.received().is_empty());
}

#[tokio::test]
async fn a_request_that_was_not_answered_is_sent_again() {
    let receiver = Receiver::start([Answer::Silence]).await;
    let retry = RetryOptions { max_elapsed_time: PATIENCE, ..impatient() };
    let exporter = start(ExporterOptions { retry, ..options() }, &plaintext(&receiver.endpoint));
    let report = report(1, 3);
    exporter.enqueue(report.clone());
    assert_all(&settled(&exporter).await.counts, State::Delivered, &report);
    let received = receiver.received();
    assert_eq!(received.len(), 2);
    assert_eq!(received[0].message, received[1].message);
}

#[tokio::test]
async fn an_answer_that_makes_no_sense_leaves_the_events_unknown() {
    for answer in [
        Answer::Garbage,
        Answer::Announce(u32::MAX),
        Answer::Announce((4 << 20) + 1),
        Answer::Announce(100),
        Answer::Bomb,
        Answer::CutOff,
        Answer::StatusOnly,
    ] {
        let (counts, report, receiver, _) = outcome(vec![answer.clone()]).await;
        assert_all(&counts, State::Unknown, &report);
        assert_eq!(receiver.received().len(), 1, "{answer:?}");
    }
}

#[tokio::test]
async fn a_proxys_status_is_understood() {
    let (counts, report, receiver, _) = outcome(vec![Answer::Http(503)]).await;
    assert_all(&counts, State::Delivered, &report);
    assert_eq!(receiver.received().len(), 2);
    let (counts, report, ..) = outcome(vec![Answer::Http(403)]).await;
    assert_all(&counts, State::Rejected, &report);
}

/// A port where nobody listens.
async fn dead_port() -> String {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string()
}

#[tokio::test]
async fn a_dead_port_loses_nothing_that_could_have_arrived() {
    let exporter = start(options(), &plaintext(&dead_port().await));
    let report = report(1, 3);
    exporter.enqueue(report.clone());
    assert_all(&settled(&exporter).await.counts, State::DroppedRetriesExhausted, &report);
}

#[tokio::test]
async fn a_single_attempt_is_made_where_retries_are_switched_off() {
    let receiver = Receiver::start([Answer::Refuse(Code::Unavailable, "later")]).await;
    let retry = RetryOptions { enabled: false, ..impatient() };
    let exporter = start(ExporterOptions { retry, ..options() }, &plaintext(&receiver.endpoint));
    let report = report(1, 3);
    exporter.enqueue(report.clone());
    assert_all(&settled(&exporter).await.counts, State::DroppedRetriesExhausted, &report);
    assert_eq!(receiver.received().len(), 1);
}

#[tokio::test]
async fn a_receiver_that_comes_back_gets_what_was_queued() {
    let address = dead_port().await;
    let retry = RetryOptions { max_elapsed_time: Duration::ZERO, ..impatient() };
    let exporter = start(ExporterOptions { retry, ..options() }, &plaintext(&address));
    let report = report(1, 3);
    exporter.enqueue(report.clone());
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(exporter.stats().counts.queued, report.tally());
    let receiver = Receiver::at(&address, []).await;
    assert_all(&settled(&exporter).await.counts, State::Delivered, &report);
    assert_eq!(receiver.received().len(), 1);
}

#[tokio::test]
async fn a_connection_that_breaks_under_a_request_is_made_again() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let exporter = start(options(), &plaintext(&address));
    let report = report(1, 3);
    exporter.enqueue(report.clone());
    let (connection, _) = listener.accept().await.unwrap();
    drop((connection, listener));
    let receiver = Receiver::at(&address, []).await;
    assert_all(&settled(&exporter).await.counts, State::Delivered, &report);
    assert_eq!(receiver.received().len(), 1);
}

#[tokio::test]
async fn a_unix_socket_is_an_endpoint() {
    let directory = tempfile::tempdir().unwrap();
    let receiver = Receiver::on_unix_socket(&directory.path().join("otlp.sock"));
    let exporter = start(options(), &plaintext(&receiver.endpoint));
    let report = report(1, 3);
    exporter.enqueue(report.clone());
    assert_all(&settled(&exporter).await.counts, State::Delivered, &report);
}

#[tokio::test]
async fn a_full_queue_refuses_what_is_new_and_keeps_what_it_has() {
    let report = report(1, 3);
    let queue_bytes = 3 * report.as_bytes().len();
    let retry = RetryOptions { max_elapsed_time: Duration::ZERO, ..impatient() };
    let address = dead_port().await;
    let exporter = start(ExporterOptions { queue_bytes, retry, ..options() }, &plaintext(&address));
    for _ in 0..10 {
        exporter.enqueue(report.clone());
    }
    let stats = exporter.stats();
    assert_eq!(stats.queue_bytes, queue_bytes);
    assert_eq!(stats.queue_capacity_bytes, queue_bytes);
    assert_eq!(stats.counts.queued.events, 9);
    assert_eq!(stats.counts.dropped_queue_full.events, 21);
    let _receiver = Receiver::at(&address, []).await;
    let counts = settled(&exporter).await.counts;
    assert_eq!((counts.delivered.events, counts.total().events), (9, 30));
}

#[tokio::test]
async fn a_large_report_is_sent_in_pieces_and_what_cannot_be_cut_is_counted() {
    let receiver = Receiver::start([]).await;
    let max_request_bytes = 400;
    let exporter = start(ExporterOptions { max_request_bytes, ..options() }, &plaintext(&receiver.endpoint));
    let large = report(4, 60);
    exporter.enqueue(large.clone());
    let counts = settled(&exporter).await.counts;
    assert_eq!(counts.delivered.events, large.tally().events);
    let received = receiver.received();
    assert!(received.len() > 4);
    let mut events = 0;
    let mut ids = HashSet::new();
    for piece in &received {
        assert!(piece.message.len() <= max_request_bytes);
        assert_eq!(conformance::check(&piece.message), []);
        for profile in decode::profiles_data(&piece.message).unwrap() {
            assert!(ids.insert(profile.profile_id.clone()));
            events += profile.events().count() as u64;
        }
    }
    assert_eq!(events, large.tally().events);

    let exporter =
        start(ExporterOptions { max_request_bytes: 50, ..options() }, &plaintext(&receiver.endpoint));
    exporter.enqueue(report(1, 2));
    assert_eq!(exporter.stats().counts.dropped_too_large.events, 2);
    assert_eq!(exporter.stats().counts.total().events, 2);
}

#[tokio::test]
async fn shutdown_sends_what_is_queued() {
    let receiver = Receiver::start([Answer::Refuse(Code::Unavailable, "later")]).await;
    let exporter = start(options(), &plaintext(&receiver.endpoint));
    for _ in 0..20 {
        exporter.enqueue(report(1, 3));
    }
    let counts = exporter.shutdown(PATIENCE).await;
    assert_eq!((counts.delivered.events, counts.total().events), (60, 60));
    exporter.enqueue(report(1, 3));
    assert_eq!(exporter.stats().counts.dropped_shutdown.events, 3);
}

#[tokio::test]
async fn shutdown_ends_in_time_and_counts_what_is_left() {
    let receiver = Receiver::start(vec![Answer::Silence; 100]).await;
    let grpc = GrpcOptions { timeout: PATIENCE, ..plaintext(&receiver.endpoint) };
    let exporter = start(options(), &grpc);
    for _ in 0..5 {
        exporter.enqueue(report(1, 3));
    }
    let begun = std::time::Instant::now();
    let counts = exporter.shutdown(Duration::from_millis(300)).await;
    assert!(begun.elapsed() < Duration::from_secs(5));
    // Both consumers were waiting for an answer.
    assert_eq!((counts.unknown.events, counts.dropped_shutdown.events), (6, 9));
    assert_eq!(counts.total().events, 15);
}

#[tokio::test]
async fn shutdown_while_nobody_listens_loses_nothing_that_could_have_arrived() {
    let retry = RetryOptions { initial_interval: PATIENCE, ..RetryOptions::default() };
    let exporter = start(ExporterOptions { retry, ..options() }, &plaintext(&dead_port().await));
    exporter.enqueue(report(1, 3));
    let counts = exporter.shutdown(Duration::from_millis(200)).await;
    assert_eq!((counts.dropped_shutdown.events, counts.total().events), (3, 3));
}

#[tokio::test]
async fn settings_that_cannot_work_are_refused_at_once() {
    let refused =
        |grpc: &GrpcOptions| Exporter::grpc(options(), grpc, &Handle::current()).unwrap_err().to_string();
    assert_eq!(refused(&plaintext("collector")), "endpoint \"collector\" has no port");
    let headers = vec![("x".to_owned(), "se\ncret".to_owned())];
    let message = refused(&GrpcOptions { headers, ..plaintext("collector:4317") });
    assert_eq!(message, "header \"x\" has a name or a value that cannot be sent");
    let tls = TlsOptions { cert: Some(Pem::File("/dev/null".into())), ..TlsOptions::default() };
    let message = refused(&GrpcOptions { tls, ..GrpcOptions::to("collector:4317") });
    assert_eq!(message, "tls::cert_file and tls::key_file are only of use together");
}
