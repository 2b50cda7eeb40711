//! Exporting over HTTP, to a receiver with scripted replies.

use std::time::{Duration, Instant, SystemTime};

use sidewinder_config::{BasicAuth, Compression, Credential, Retry, Secret};
use sidewinder_otlp::send::{
    Counts, Exporter, ExporterCredentials, ExporterOptions, ExporterStats, HttpOptions, State,
};
use sidewinder_otlp::{Report, conformance};

use super::http_receiver::{HttpReceiver, Reply};
use super::receiver::partial_success;
use super::{PATIENCE, assert_all, dead_port, impatient, options, report, settled, shut_down};

pub(super) const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

fn to(receiver: &HttpReceiver) -> HttpOptions {
    HttpOptions { timeout: Duration::from_millis(300), ..HttpOptions::new(receiver.url.clone()) }
}

fn start(http: &HttpOptions) -> Exporter {
    Exporter::http(options(), http).unwrap()
}

/// The state of one report when a receiver replies like this.
async fn outcome(replies: Vec<Reply>) -> (Counts, Report, HttpReceiver, ExporterStats) {
    let receiver = HttpReceiver::start(replies).await;
    let exporter = start(&to(&receiver));
    let report = report(3, 5);
    exporter.enqueue(report.clone());
    let stats = settled(&exporter).await;
    (stats.counts, report, receiver, stats)
}

#[tokio::test]
async fn what_is_sent_arrives_byte_for_byte_and_conforms() {
    const REQUESTS: usize = 16;
    for (compression, encoding) in
        [(Compression::None, None), (Compression::Gzip, Some("gzip")), (Compression::Zstd, Some("zstd"))]
    {
        let receiver = HttpReceiver::start([]).await;
        let exporter = start(&HttpOptions { compression, ..to(&receiver) });
        let report = report(2, 9);
        for _ in 0..REQUESTS {
            exporter.enqueue(report.clone());
        }
        settled(&exporter).await;
        let received = receiver.received();
        assert_eq!(received.len(), REQUESTS);
        assert_eq!(received[0].message, report.as_bytes());
        assert_eq!(conformance::check(&received[0].message), []);
        assert!(received[0].head.starts_with("post /v1development/profiles http/1.1\r\n"));
        assert_eq!(received[0].all("content-type"), ["application/x-protobuf"]);
        assert_eq!(received[0].all("content-encoding").first().copied(), encoding);
        // One for each consumer, and sometimes one more: a connection may be returned after it is needed.
        assert!(receiver.connections() <= REQUESTS / 2, "{}", receiver.connections());
    }
}

#[tokio::test]
async fn the_version_of_the_signal_is_sent_once_above_the_users_headers() {
    let receiver = HttpReceiver::start([]).await;
    let headers = [("Otlp-Profiles-Development-Version", "7"), ("x", "1"), ("authorization", "none")];
    let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let text = |text: &str| Credential::Text(Secret::new(text.to_owned()));
    let credentials =
        Some(ExporterCredentials::Basic(BasicAuth { username: text("me"), password: text("pass") }));
    let exporter = start(&HttpOptions { headers, credentials, ..to(&receiver) });
    exporter.enqueue(report(1, 1));
    settled(&exporter).await;
    let received = &receiver.received()[0];
    assert_eq!(received.all("otlp-profiles-development-version"), ["1"]);
    assert_eq!(received.all("x"), ["1"]);
    // In lower case here: bWU6cGFzcw==.
    assert_eq!(received.all("authorization"), ["basic bwu6cgfzcw=="]);
    assert!(received.all("user-agent")[0].starts_with("sidewinder/"));
}

#[tokio::test]
async fn a_retryable_status_is_tried_again_with_identical_bytes() {
    for status in [429, 502, 503, 504] {
        let (counts, report, receiver, _) = outcome(vec![Reply::status(status)]).await;
        assert_all(&counts, State::Delivered, &report);
        let received = receiver.received();
        assert_eq!(received.len(), 2, "{status}");
        assert_eq!(received[0].message, received[1].message);
    }
}

#[tokio::test]
async fn any_other_status_is_final_and_no_redirect_is_followed() {
    for status in [400, 401, 403, 404, 408, 500, 501, 301, 307] {
        let (counts, report, receiver, _) =
            outcome(vec![Reply::Status(status, vec!["location: /other".to_owned()], b"no".to_vec())]).await;
        assert_all(&counts, State::Rejected, &report);
        assert_eq!(receiver.received().len(), 1, "{status}");
    }
}

#[tokio::test]
async fn the_receiver_says_after_which_time_in_both_forms() {
    let begun = Instant::now();
    // A date has a resolution of one second: this one is one to two seconds ahead.
    let date = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(2));
    for value in ["1", date.as_str()] {
        let receiver = HttpReceiver::start([Reply::retry_after(429, value)]).await;
        let retry = Retry { max_elapsed_time: Some(PATIENCE), ..impatient() };
        let exporter = Exporter::http(ExporterOptions { retry, ..options() }, &to(&receiver)).unwrap();
        let report = report(1, 3);
        let begun = Instant::now();
        exporter.enqueue(report.clone());
        assert_all(&settled(&exporter).await.counts, State::Delivered, &report);
        assert_eq!(receiver.received().len(), 2);
        if value == "1" {
            assert!(begun.elapsed() >= Duration::from_secs(1));
        }
    }
    assert!(begun.elapsed() >= Duration::from_secs(1));
}

#[tokio::test]
async fn a_receiver_whose_limit_is_lower_gets_pieces() {
    for reply in
        [Reply::status(413), Reply::Status(400, Vec::new(), b"http: request body too large".to_vec())]
    {
        let (counts, report, receiver, _) = outcome(vec![reply]).await;
        assert_eq!(counts.delivered.events, report.tally().events);
        assert_eq!(counts.total().events, report.tally().events);
        assert!(receiver.received().len() >= 3);
    }
    let (counts, report, ..) = outcome(vec![Reply::status(413); 1000]).await;
    assert_eq!(counts.dropped_too_large.events, report.tally().events);
    assert_eq!(counts.total().events, report.tally().events);
}

#[tokio::test]
async fn a_receiver_of_another_version_is_told_apart() {
    let message = b"unsupported OTLP-Profiles-Development-Version: supported is 2".to_vec();
    let (counts, report, ..) = outcome(vec![Reply::Status(400, Vec::new(), message)]).await;
    assert_all(&counts, State::Incompatible, &report);
}

#[tokio::test]
async fn a_partial_success_is_recorded_and_never_retried() {
    for (rejected, state) in [(0, State::Delivered), (2, State::PartiallyRejected), (3, State::Rejected)] {
        let body = partial_success(rejected, "too many");
        let (counts, report, receiver, stats) = outcome(vec![Reply::Status(200, Vec::new(), body)]).await;
        assert_all(&counts, state, &report);
        assert_eq!(receiver.received().len(), 1);
        assert_eq!(stats.last_partial_success.unwrap().rejected_profiles, rejected);
    }
}

#[tokio::test]
async fn an_answer_that_makes_no_sense_leaves_the_events_unknown() {
    let long = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", 64 << 20).into_bytes();
    for reply in [
        Reply::Status(200, Vec::new(), b"\xff\xff\xff".to_vec()),
        Reply::Status(200, Vec::new(), vec![0; 5 << 20]),
        // Announces more bytes than follow.
        Reply::Raw(long),
    ] {
        let (counts, report, receiver, _) = outcome(vec![reply]).await;
        assert_all(&counts, State::Unknown, &report);
        assert_eq!(receiver.received().len(), 1);
    }
}

#[tokio::test]
async fn what_is_no_http_leaves_the_events_unknown_in_the_end() {
    for reply in [
        Reply::Raw(b"\x16\x03\x01garbage\r\n\r\n".to_vec()),
        Reply::Raw(Vec::new()),
        Reply::HalfClose,
        Reply::Silence,
    ] {
        let (counts, report, receiver, _) = outcome(vec![reply.clone(); 200]).await;
        assert_all(&counts, State::Unknown, &report);
        assert!(!receiver.received().is_empty(), "{reply:?}");
    }
}

/// Each attempt ends at once, though its timeout is longer than the test.
#[tokio::test]
async fn endless_interim_responses_end_an_attempt_and_its_connection() {
    let receiver = HttpReceiver::start(vec![Reply::Endless(CONTINUE); 200]).await;
    let exporter = start(&HttpOptions { timeout: 2 * PATIENCE, ..to(&receiver) });
    let report = report(3, 5);
    exporter.enqueue(report.clone());
    let stats = settled(&exporter).await;
    assert_all(&stats.counts, State::Unknown, &report);
    let failure = stats.last_failure.unwrap();
    assert!(failure.contains("`100 Continue`"), "{failure}");
    while receiver.ended_by_peer() < receiver.connections() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_request_that_was_not_answered_is_sent_again_over_another_connection() {
    let receiver = HttpReceiver::start([Reply::Silence]).await;
    let retry = Retry { max_elapsed_time: Some(PATIENCE), ..impatient() };
    let exporter = Exporter::http(ExporterOptions { retry, ..options() }, &to(&receiver)).unwrap();
    let report = report(1, 3);
    exporter.enqueue(report.clone());
    assert_all(&settled(&exporter).await.counts, State::Delivered, &report);
    assert_eq!((receiver.received().len(), receiver.connections()), (2, 2));
}

#[tokio::test]
async fn a_dead_port_loses_nothing_that_could_have_arrived() {
    let url = format!("http://{}/v1development/profiles", dead_port().await);
    let exporter = start(&HttpOptions::new(url));
    let report = report(1, 3);
    exporter.enqueue(report.clone());
    assert_all(&settled(&exporter).await.counts, State::DroppedRetriesExhausted, &report);
}

#[tokio::test]
async fn shutdown_sends_what_is_queued() {
    let receiver = HttpReceiver::start([Reply::status(503)]).await;
    let exporter = start(&to(&receiver));
    for _ in 0..20 {
        exporter.enqueue(report(1, 3));
    }
    let (counts, _) = shut_down(exporter, PATIENCE).await;
    assert_eq!((counts.delivered.events, counts.total().events), (60, 60));
}

#[test]
fn urls_that_cannot_work_are_refused_at_once() {
    for (url, problem) in [
        ("collector:4318", "does not begin with http:// or https://"),
        ("ftp://collector", "does not begin with http:// or https://"),
        ("/v1development/profiles", "does not begin with http:// or https://"),
    ] {
        let error = Exporter::http(options(), &HttpOptions::new(url)).unwrap_err();
        assert_eq!(error.to_string(), format!("endpoint {url:?} {problem}"));
    }
}
