//! A request that crashes its receiver is given up.

use std::time::Duration;

use sidewinder_config::Retry;
use sidewinder_otlp::send::ExporterOptions;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::http_receiver::{HttpReceiver, Reply};
use super::{impatient, options, report, settled};

/// A proxy in front of a receiver, which closes a connection that sends too much.
struct Fragile {
    url: String,
    _tasks: JoinSet<()>,
}

impl Fragile {
    /// Closes each connection that sends more than `max_bytes`.
    async fn before(receiver: &HttpReceiver, max_bytes: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let behind = receiver.url.split('/').nth(2).unwrap().to_owned();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (client, _) = listener.accept().await.unwrap();
                let behind = behind.clone();
                connections.spawn(async move {
                    let server = tokio::net::TcpStream::connect(behind).await.unwrap();
                    let (mut from_client, mut to_client) = client.into_split();
                    let (mut from_server, mut to_server) = server.into_split();
                    let answers =
                        tokio::spawn(async move { tokio::io::copy(&mut from_server, &mut to_client).await });
                    let mut bytes = [0; 4096];
                    loop {
                        let count =
                            tokio::io::AsyncReadExt::read(&mut from_client, &mut bytes).await.unwrap_or(0);
                        if count == 0 || count > max_bytes {
                            answers.abort();
                            return;
                        }
                        let _ = tokio::io::AsyncWriteExt::write_all(&mut to_server, &bytes[..count]).await;
                    }
                });
            }
        });
        Self { url: format!("http://127.0.0.1:{port}/v1development/profiles"), _tasks: tasks }
    }
}

#[tokio::test]
async fn others_pass_a_request_that_is_never_answered_and_it_ends_as_unknown() {
    let receiver = HttpReceiver::start([]).await;
    let fragile = Fragile::before(&receiver, 2500).await;
    // Without an end, and with one consumer: only isolation lets other requests through.
    let retry = Retry { max_elapsed_time: None, ..impatient() };
    let options = ExporterOptions { retry, consumers: 1, ..options() };
    let http = sidewinder_otlp::send::HttpOptions {
        compression: sidewinder_config::Compression::None,
        ..sidewinder_otlp::send::HttpOptions::new(fragile.url.clone())
    };
    let exporter = sidewinder_otlp::send::Exporter::http(options, &http).unwrap();
    let poison = report(8, 100);
    assert!(poison.as_bytes().len() > 4096);
    exporter.enqueue(poison.clone());
    let feed = async {
        loop {
            exporter.enqueue(report(1, 1));
            tokio::time::sleep(Duration::from_millis(20)).await;
            let counts = exporter.stats().counts;
            if counts.unknown.events > 0 {
                return;
            }
        }
    };
    tokio::time::timeout(super::PATIENCE, feed).await.expect("the request is sent for ever");
    let counts = settled(&exporter).await.counts;
    assert_eq!(counts.unknown, poison.tally());
    assert_eq!(counts.delivered.events + poison.tally().events, counts.total().events);
    assert!(counts.delivered.events > 3);
}

#[tokio::test]
async fn a_receiver_that_answers_nobody_convicts_no_request() {
    let receiver = HttpReceiver::start(vec![Reply::Raw(Vec::new()); 40]).await;
    let retry = Retry { max_elapsed_time: None, ..impatient() };
    let http = sidewinder_otlp::send::HttpOptions::new(receiver.url.clone());
    let exporter =
        sidewinder_otlp::send::Exporter::http(ExporterOptions { retry, ..options() }, &http).unwrap();
    for _ in 0..3 {
        exporter.enqueue(report(1, 2));
    }
    let counts = settled(&exporter).await.counts;
    assert_eq!((counts.delivered.events, counts.total().events), (6, 6));
}
