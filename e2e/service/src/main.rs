//! A shop on HTTP whose threads say which span they are in: axum, `tracing` and OpenTelemetry, and two lines of `publish`.
//!
//! `sidewinder-example-service [ADDRESS]` listens on 127.0.0.1:8080, or on the address given.
//!
//! ```console
//! $ curl localhost:8080/cart                     # or /search, /checkout
//! $ curl -iX POST localhost:8080/reports/60      # a job of 60 seconds; the answer has its trace and span
//! ```
//!
//! Spans go to where `OTEL_EXPORTER_OTLP_ENDPOINT` says, if it is set. `WORK_MICROSECONDS` is for about how long each function
//! computes. The tests have it write down the truth, by `SPAN_LOG` (see `truth`).

use std::error::Error;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{MatchedPath, Path, Request, State};
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use opentelemetry::trace::{TraceContextExt as _, TracerProvider as _};
use sidewinder_example_service::{publish, resource, truth, work};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task;
use tower_http::trace::TraceLayer;
use tracing::{Level, Span, info_span, instrument};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Prices that a page looks up, and how many of them take as long as anything else.
const LOOKUPS: u64 = 8;
const LOOKUPS_IN_ONE: u64 = 20;
/// What the database takes to answer.
const ANSWER_AFTER: Duration = Duration::from_micros(200);
const REPORT_THREADS: usize = 4;

fn main() -> Result<(), Box<dyn Error>> {
    publish::process_context()?;
    let provider = resource::tracer_provider()?;
    tracing_subscriber::registry()
        // What sends spans has spans of its own.
        .with(Targets::new().with_target(env!("CARGO_CRATE_NAME"), Level::INFO))
        .with(truth::before())
        .with(publish::ThreadContexts::default())
        .with(truth::after())
        .with(tracing_opentelemetry::layer().with_tracer(provider.tracer(resource::NAME)))
        .init();
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    // As many worker threads as there are CPUs, or as `TOKIO_WORKER_THREADS` says. At the end of the line all have ended.
    Runtime::new()?.block_on(serve(&address))?;
    truth::write()?;
    provider.shutdown()?;
    Ok(())
}

async fn serve(address: &str) -> Result<(), Box<dyn Error>> {
    let microseconds = std::env::var("WORK_MICROSECONDS").unwrap_or_else(|_| "1000".to_owned());
    let shop = Shop { rounds: work::rounds_in(Duration::from_micros(microseconds.parse()?)) };
    let routes = Router::new()
        .route("/cart", get(cart))
        .route("/search", get(search))
        .route("/checkout", get(checkout))
        .route("/reports/{seconds}", post(report))
        .layer(TraceLayer::new_for_http().make_span_with(span_of))
        .layer(middleware::from_fn_with_state(shop, admit))
        .with_state(shop);
    let mut told_to_end = signal(SignalKind::terminate())?;
    let listener = TcpListener::bind(address).await?;
    println!("http://{}", listener.local_addr()?);
    axum::serve(listener, routes).with_graceful_shutdown(async move { _ = told_to_end.recv().await }).await?;
    Ok(())
}

/// What comes before a request has a span.
async fn admit(State(shop): State<Shop>, request: Request, next: Next) -> Response {
    work::admit(shop.rounds);
    next.run(request).await
}

/// The span that a request is handled in.
fn span_of(request: &Request) -> Span {
    let route = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    info_span!("request", otel.kind = "server", http.request.method = %request.method(), http.route = route)
}

/// What handlers know.
#[derive(Clone, Copy)]
struct Shop {
    /// For how many rounds each function computes.
    rounds: u64,
}

async fn cart(State(shop): State<Shop>) -> StatusCode {
    work::cart(shop.rounds);
    shop.query().await;
    work::cart(shop.rounds);
    StatusCode::NO_CONTENT
}

async fn search(State(shop): State<Shop>) -> StatusCode {
    work::search(shop.rounds);
    for _ in 0..LOOKUPS {
        shop.lookup();
    }
    shop.query().await;
    work::search(shop.rounds);
    StatusCode::NO_CONTENT
}

async fn checkout(State(shop): State<Shop>) -> StatusCode {
    work::checkout(shop.rounds);
    shop.query().await;
    for _ in 0..LOOKUPS {
        shop.lookup();
    }
    work::checkout(shop.rounds);
    StatusCode::NO_CONTENT
}

impl Shop {
    /// Waits, and may go on on another thread.
    #[instrument(skip_all, fields(http.route = "/query"))]
    async fn query(self) {
        tokio::time::sleep(ANSWER_AFTER).await;
        work::query(self.rounds);
    }

    #[instrument(skip_all, fields(http.route = "/lookup"))]
    fn lookup(self) {
        work::lookup(self.rounds / LOOKUPS_IN_ONE);
    }
}

/// Begins a job on threads of its own, all of it within the span of the request, and answers with the ids of that at once.
async fn report(State(shop): State<Shop>, Path(seconds): Path<u32>) -> impl IntoResponse {
    let end = Instant::now() + Duration::from_secs(seconds.into());
    for _ in 0..REPORT_THREADS {
        let span = Span::current();
        task::spawn_blocking(move || span.in_scope(|| work_until(end, shop.rounds)));
    }
    let context = Span::current().context();
    let (span, version) = (context.span().span_context().clone(), "00");
    let ids = format!("{version}-{}-{}-{:02x}", span.trace_id(), span.span_id(), span.trace_flags());
    (StatusCode::ACCEPTED, [("traceresponse", ids)])
}

/// All of it in one span, but for what it asks for.
fn work_until(end: Instant, rounds: u64) {
    while Instant::now() < end {
        work::cart(rounds);
        work::search(rounds);
        work::checkout(rounds);
        info_span!("query", http.route = "/query").in_scope(|| work::query(rounds));
    }
}
