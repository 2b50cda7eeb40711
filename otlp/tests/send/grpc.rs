//! Exporting over gRPC, to a receiver with scripted replies.

use std::collections::HashSet;
use std::time::Duration;

use sidewinder_config::{BearerTokenAuth, Compression, Credential, Pem, Retry, Secret, TlsClient};
use sidewinder_otlp::send::{
    Exporter, ExporterCredentials, ExporterOptions, GrpcOptions, Resolve, ResolveFuture, Resolver, State,
};
use sidewinder_otlp::{Tally, conformance, decode};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tonic::Code;

use super::receiver::{Answer, Receiver};
use super::{
    PATIENCE, assert_all, dead_port, impatient, options, outcome, plaintext, report, settled, shut_down,
    start,
};

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
        assert_eq!((recorded.rejected_profiles, recorded.message.as_str()), (rejected, "too\\u{a}many"));
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
    let retry = Retry { max_elapsed_time: Some(PATIENCE), ..impatient() };
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
        Answer::Announce((256 << 10) + 1),
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
    let retry = Retry { enabled: false, ..impatient() };
    let exporter = start(ExporterOptions { retry, ..options() }, &plaintext(&receiver.endpoint));
    let report = report(1, 3);
    exporter.enqueue(report.clone());
    assert_all(&settled(&exporter).await.counts, State::DroppedRetriesExhausted, &report);
    assert_eq!(receiver.received().len(), 1);
}

#[tokio::test]
async fn a_receiver_that_comes_back_gets_what_was_queued() {
    let address = dead_port().await;
    let retry = Retry { max_elapsed_time: None, ..impatient() };
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

/// Each attempt ends at once, though its timeout is longer than the test.
#[tokio::test]
async fn endless_frames_end_an_attempt_and_its_connection() {
    // Of the first stream: interim headers with the status 100. Of none: a type that is skipped.
    let interim = [&[0, 0, 5, 1, 4, 0, 0, 0, 1, 8, 3][..], b"100"].concat();
    let unknown = vec![0, 0, 0, 42, 0, 0, 0, 0, 0];
    for frame in [interim, unknown] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = listener.local_addr().unwrap().to_string();
        let (hung_up, hang_ups) = tokio::sync::oneshot::channel();
        tokio::spawn(async move {
            let mut hung_up = Some(hung_up);
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                // Settings, and their acknowledgement.
                stream.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 4, 1, 0, 0, 0, 0]).await.unwrap();
                // Until the request has begun.
                tokio::time::sleep(Duration::from_millis(100)).await;
                let many = frame.repeat(1000);
                while stream.write_all(&many).await.is_ok() {}
                hung_up.take().map(|hung_up| hung_up.send(()));
            }
        });
        let exporter = start(options(), &GrpcOptions { timeout: 2 * PATIENCE, ..plaintext(&endpoint) });
        let report = report(1, 3);
        exporter.enqueue(report.clone());
        let stats = settled(&exporter).await;
        assert_all(&stats.counts, State::Unknown, &report);
        let failure = stats.last_failure.unwrap();
        assert!(failure.contains("frames of HTTP/2"), "{failure}");
        hang_ups.await.unwrap();
    }
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
    let retry = Retry { max_elapsed_time: None, ..impatient() };
    let address = dead_port().await;
    let exporter = start(ExporterOptions { queue_bytes, retry, ..options() }, &plaintext(&address));
    for _ in 0..10 {
        exporter.enqueue(report.clone());
    }
    let stats = exporter.stats();
    assert_eq!(stats.queue_bytes, queue_bytes as u64);
    assert_eq!(stats.queue_capacity_bytes, queue_bytes as u64);
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
        for profile in decode::decode_profiles_data(&piece.message).unwrap() {
            assert!(ids.insert(profile.profile_id.clone()));
            events += profile.events().count() as u64;
        }
    }
    assert_eq!(events, large.tally().events);

    let exporter =
        start(ExporterOptions { max_request_bytes: 50, ..options() }, &plaintext(&receiver.endpoint));
    exporter.enqueue(report(1, 2));
    let counts = settled(&exporter).await.counts;
    assert_eq!((counts.dropped_too_large.events, counts.total().events), (2, 2));
}

#[tokio::test]
async fn shutdown_sends_what_is_queued() {
    let receiver = Receiver::start([Answer::Refuse(Code::Unavailable, "later")]).await;
    let exporter = start(options(), &plaintext(&receiver.endpoint));
    for _ in 0..20 {
        exporter.enqueue(report(1, 3));
    }
    let (counts, exporter) = shut_down(exporter, PATIENCE).await;
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
    let (counts, _) = shut_down(exporter, Duration::from_millis(300)).await;
    assert!(begun.elapsed() < Duration::from_secs(5));
    // Both consumers were waiting for a response.
    assert_eq!((counts.unknown.events, counts.dropped_shutdown.events), (6, 9));
    assert_eq!(counts.total().events, 15);
}

#[tokio::test]
async fn shutdown_while_nobody_listens_loses_nothing_that_could_have_arrived() {
    let retry = Retry { initial_interval: PATIENCE, ..Retry::default() };
    let exporter = start(ExporterOptions { retry, ..options() }, &plaintext(&dead_port().await));
    exporter.enqueue(report(1, 3));
    let (counts, _) = shut_down(exporter, Duration::from_millis(200)).await;
    assert_eq!((counts.dropped_shutdown.events, counts.total().events), (3, 3));
}

#[tokio::test]
async fn settings_that_cannot_work_are_refused_at_once() {
    let refused = |grpc: &GrpcOptions| {
        let error = Exporter::grpc(options(), grpc).unwrap_err();
        let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        format!("{error}: {cause}").trim_end_matches(": ").to_owned()
    };
    assert_eq!(refused(&plaintext("collector")), "endpoint \"collector\" has no port");
    let headers = vec![("x".to_owned(), "se\ncret".to_owned())];
    let message = refused(&GrpcOptions { headers, ..plaintext("collector:4317") });
    assert_eq!(message, "header \"x\" has a name or a value that cannot be sent");
    let tls = TlsClient { ca: Some(Pem::File("/nowhere/ca.pem".into())), ..TlsClient::default() };
    let message = refused(&GrpcOptions { tls, ..GrpcOptions::new("collector:4317") });
    assert!(message.ends_with("tls::ca_file: cannot read \"/nowhere/ca.pem\""), "{message}");
    let token = Credential::Text(Secret::new("secret".to_owned()));
    let credentials =
        Some(ExporterCredentials::Bearer(BearerTokenAuth { token, ..BearerTokenAuth::default() }));
    let message = refused(&GrpcOptions { credentials, ..plaintext("collector:4317") });
    assert_eq!(message, "credentials are only sent over TLS: remove tls::insecure, or auth");
}

#[tokio::test]
async fn a_receiver_whose_limit_is_lower_gets_pieces() {
    let message = "grpc: received message larger than max (700 vs. 400)";
    let refusal = Answer::Refuse(Code::ResourceExhausted, message);
    let receiver = Receiver::start([refusal.clone(), Answer::Accept, refusal]).await;
    let exporter = start(options(), &plaintext(&receiver.endpoint));
    // Two samples: the second split is within one of them.
    let report = report(1, 400);
    exporter.enqueue(report.clone());
    let counts = settled(&exporter).await.counts;
    assert_eq!(
        (counts.delivered.events, counts.total().events),
        (report.tally().events, report.tally().events)
    );
    let received = receiver.received();
    assert!(received.len() >= 5, "{} requests", received.len());
    let mut arrived = Tally::default();
    for message in [1].into_iter().chain(3..received.len()).map(|at| &received[at].message) {
        for profile in decode::decode_profiles_data(message).unwrap() {
            arrived.events += profile.events().count() as u64;
            // A sample that was split counts twice.
            arrived.samples += profile.samples.len() as u64;
        }
    }
    assert_eq!(arrived.events, report.tally().events);
    assert_eq!((counts.delivered, counts.queued), (arrived, Tally::default()));
}

#[tokio::test]
async fn what_no_receiver_takes_in_any_size_is_counted() {
    let message = "grpc: received message larger than max";
    let (counts, report, ..) = outcome(vec![Answer::Refuse(Code::ResourceExhausted, message); 1000]).await;
    assert_eq!(counts.dropped_too_large.events, report.tally().events);
    assert_eq!(counts.total().events, report.tally().events);
}

/// Resolves only one name, whose address changes.
struct Names(std::sync::Arc<std::sync::Mutex<std::net::SocketAddr>>);

impl Resolve for Names {
    fn resolve(&self, host: &str, _: u16) -> ResolveFuture {
        assert_eq!(host, "collector.test");
        let address = *self.0.lock().unwrap();
        Box::pin(async move { Ok(vec![address]) })
    }
}

#[tokio::test]
async fn a_name_is_looked_up_again_for_the_next_connection() {
    let first = Receiver::start([]).await;
    let address = std::sync::Arc::new(std::sync::Mutex::new(first.endpoint.parse().unwrap()));
    let resolver = Resolver::new(Names(std::sync::Arc::clone(&address)));
    let exporter = start(options(), &GrpcOptions { resolver, ..plaintext("dns:///collector.test:4317") });
    exporter.enqueue(report(1, 3));
    assert_eq!(settled(&exporter).await.counts.delivered.events, 3);
    let second = Receiver::start([]).await;
    *address.lock().unwrap() = second.endpoint.parse().unwrap();
    first.disconnect().await;
    exporter.enqueue(report(1, 3));
    assert_eq!(settled(&exporter).await.counts.delivered.events, 6);
    assert_eq!(second.received().len(), 1);
}

#[tokio::test]
async fn an_attempt_can_wait_for_a_connection() {
    let address = dead_port().await;
    let retry = Retry { enabled: false, ..impatient() };
    let grpc = GrpcOptions { wait_for_ready: true, timeout: PATIENCE, ..plaintext(&address) };
    let exporter = start(ExporterOptions { retry, ..options() }, &grpc);
    let report = report(1, 3);
    exporter.enqueue(report.clone());
    tokio::time::sleep(Duration::from_millis(100)).await;
    let _receiver = Receiver::at(&address, []).await;
    assert_all(&settled(&exporter).await.counts, State::Delivered, &report);
}

#[tokio::test]
async fn the_authority_can_be_another_than_the_endpoint() {
    let receiver = Receiver::start([]).await;
    let authority = Some("profiles.example:443".to_owned());
    let exporter = start(options(), &GrpcOptions { authority, ..plaintext(&receiver.endpoint) });
    exporter.enqueue(report(1, 1));
    settled(&exporter).await;
    assert_eq!(receiver.received()[0].authority.as_deref(), Some("profiles.example:443"));
}
