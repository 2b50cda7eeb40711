//! Whatever a server answers is a row as in [`super::faults`].

use std::time::{Duration, SystemTime};

use anyhow::Result;
use sidewinder_config::Retry;
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::received::Received;
use sidewinder_otlp::send::{Exporter, ExporterOptions, State};
use tonic::Code;

use super::grpc_receiver::{Answer, Receiver, partial_success};
use super::http_receiver::{HttpReceiver, Reply};
use super::ledger::{Row, Source};
use super::{EVENTS, PATIENCE, Protocol, Way, assert_balanced, feed, options, settle};

/// A runtime for servers of our own.
pub(super) fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?)
}

/// One request at a time, so that the first answers are for the first report.
fn one_by_one() -> ExporterOptions {
    let retry = Retry { max_elapsed_time: Some(Duration::from_secs(10)), ..options().retry };
    ExporterOptions { retry, consumers: 1, ..options() }
}

/// Sends a few reports to a server that has `received` afterwards what it has not refused.
fn assert_ends(
    fault: &str,
    received: impl FnOnce() -> Vec<Vec<u8>>,
    exporter: &Exporter,
    expected: Expected,
) -> Result<()> {
    let mut source = Source::default();
    feed(exporter, &mut source, 8);
    settle(exporter)?;
    let counts = exporter.shutdown(PATIENCE);
    let row = Row::new(fault, &source, counts, &Received::from_requests(received())?);
    assert_balanced(&row);
    assert!(expected.is_met(&row), "{row:?}");
    Ok(())
}

/// How the events of the first report end; all others are delivered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Expected {
    Delivered,
    FirstIs(State),
}

impl Expected {
    fn is_met(self, row: &Row) -> bool {
        let delivered = row.counts.delivered.events;
        match self {
            Self::Delivered => delivered == row.before && row.arrived == row.before,
            Self::FirstIs(state) => {
                row.counts.get(state).events == EVENTS && delivered == row.before - EVENTS
            }
        }
    }
}

#[promise(Delivery)]
fn whatever_a_grpc_server_answers_is_accounted_for() -> Result<()> {
    let runtime = runtime()?;
    let soon = Duration::from_millis(200);
    let too_large = "grpc: received message larger than max (9 vs. 1)";
    let version = "unsupported otlp-profiles-development-version: 1";
    let rows: Vec<(&str, Vec<Answer>, Expected)> = vec![
        (
            "UNAVAILABLE with RetryInfo",
            vec![Answer::RefuseFor(Code::Unavailable, soon); 3],
            Expected::Delivered,
        ),
        ("UNAVAILABLE", vec![Answer::Refuse(Code::Unavailable, "later"); 3], Expected::Delivered),
        (
            "RESOURCE_EXHAUSTED with RetryInfo",
            vec![Answer::RefuseFor(Code::ResourceExhausted, soon)],
            Expected::Delivered,
        ),
        (
            "RESOURCE_EXHAUSTED without",
            vec![Answer::Refuse(Code::ResourceExhausted, "busy")],
            Expected::FirstIs(State::Rejected),
        ),
        (
            "RESOURCE_EXHAUSTED, too large",
            vec![Answer::Refuse(Code::ResourceExhausted, too_large)],
            Expected::Delivered,
        ),
        (
            "INVALID_ARGUMENT",
            vec![Answer::Refuse(Code::InvalidArgument, "no")],
            Expected::FirstIs(State::Rejected),
        ),
        (
            "another version",
            vec![Answer::Refuse(Code::InvalidArgument, version)],
            Expected::FirstIs(State::Incompatible),
        ),
        (
            "partial success, 1 profile",
            vec![Answer::Partial(1, "no")],
            Expected::FirstIs(State::PartiallyRejected),
        ),
        ("garbage", vec![Answer::Garbage], Expected::FirstIs(State::Unknown)),
        ("4 GiB announced", vec![Answer::Announce(u32::MAX)], Expected::FirstIs(State::Unknown)),
        ("64 MiB in a few bytes", vec![Answer::Bomb], Expected::FirstIs(State::Unknown)),
        ("an answer cut off", vec![Answer::CutOff], Expected::FirstIs(State::Unknown)),
        ("silence", vec![Answer::Silence; 1], Expected::Delivered),
        ("a proxy's 503", vec![Answer::Http(503)], Expected::Delivered),
    ];
    eprintln!("{}", Row::HEAD);
    for (fault, answers, expected) in rows {
        let receiver = runtime.block_on(Receiver::start(answers));
        let exporter = Way::plain(Protocol::Grpc, receiver.endpoint.clone()).open(one_by_one())?;
        let taken = || {
            let taken = receiver.received().into_iter().filter(|request| request.is_taken);
            taken.map(|request| request.message.to_vec()).collect()
        };
        assert_ends(&format!("gRPC: {fault}"), taken, &exporter, expected)?;
    }
    Ok(())
}

#[promise(Delivery)]
fn whatever_an_http_server_answers_is_accounted_for() -> Result<()> {
    let runtime = runtime()?;
    let date = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(3));
    let ok = |body: Vec<u8>| Reply::Status(200, Vec::new(), body);
    let rows: Vec<(&str, Vec<Reply>, Expected)> = vec![
        ("429, Retry-After in seconds", vec![Reply::retry_after(429, "1")], Expected::Delivered),
        ("429, Retry-After as a date", vec![Reply::retry_after(429, &date)], Expected::Delivered),
        ("503", vec![Reply::status(503); 3], Expected::Delivered),
        ("502", vec![Reply::status(502); 2], Expected::Delivered),
        ("413", vec![Reply::status(413)], Expected::Delivered),
        ("400", vec![Reply::status(400)], Expected::FirstIs(State::Rejected)),
        ("a redirect", vec![Reply::status(307)], Expected::FirstIs(State::Rejected)),
        (
            "partial success, 2 profiles",
            vec![ok(partial_success(2, "no"))],
            Expected::FirstIs(State::PartiallyRejected),
        ),
        ("garbage in the body", vec![ok(b"\xff\xff".to_vec())], Expected::FirstIs(State::Unknown)),
        ("no HTTP at all", vec![Reply::Raw(b"\0\0\0".to_vec())], Expected::Delivered),
        ("the end of the connection", vec![Reply::Raw(Vec::new()); 2], Expected::Delivered),
        ("half-closed", vec![Reply::HalfClose], Expected::Delivered),
        ("silence", vec![Reply::Silence], Expected::Delivered),
    ];
    eprintln!("{}", Row::HEAD);
    for (fault, replies, expected) in rows {
        let receiver = runtime.block_on(HttpReceiver::start(replies));
        let base = receiver.url.trim_end_matches("/v1development/profiles").to_owned();
        let exporter = Way::plain(Protocol::Http, base).open(one_by_one())?;
        let taken = || {
            let taken = receiver.received().into_iter().filter(|request| request.is_taken);
            taken.map(|request| request.message).collect()
        };
        assert_ends(&format!("HTTP: {fault}"), taken, &exporter, expected)?;
    }
    Ok(())
}
