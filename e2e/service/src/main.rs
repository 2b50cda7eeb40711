//! A service of spans within spans, on threads or in tasks that move between threads.
//!
//! `sidewinder-example-service threads|tasks|switches|job SECONDS THREADS MICROSECONDS LOG`
//!
//! Each span of a route computes for about so long in a function of that route, and then in others within spans of
//! their own. Who reads the log knows the truth of every moment. `switches` enters a span each ten microseconds or so,
//! and writes no log: the function tells the span. `job` is a single span for all threads, whose ids it prints when
//! it starts. Spans go to where `OTEL_EXPORTER_OTLP_ENDPOINT` says, if it is set.

mod log;
mod publish;
mod service;
mod work;

use std::io::BufRead as _;
use std::time::{Duration, Instant};

use opentelemetry::trace::{TraceContextExt as _, TracerProvider as _};
use tracing::{Instrument as _, Level};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use work::{ROUTES, Route, between};

/// Short spans in each request on a thread, and how many of them take as long as any other.
const LOOKUPS: u64 = 8;
const LOOKUPS_IN_ONE: u64 = 20;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [mode, seconds, threads, microseconds, log] = &arguments[..] else {
        return Err("usage: threads|tasks|switches|job SECONDS THREADS MICROSECONDS LOG".into());
    };
    let threads: usize = threads.parse()?;
    publish::process_context()?;
    let provider = service::tracer_provider()?;
    tracing_subscriber::registry()
        // What sends spans has spans of its own.
        .with(Targets::new().with_target(env!("CARGO_CRATE_NAME"), Level::INFO))
        .with(publish::ThreadContexts::default())
        .with(tracing_opentelemetry::layer().with_tracer(provider.tracer(service::NAME)))
        .init();
    let rounds = work::rounds_in(Duration::from_micros(microseconds.parse()?));
    let job = tracing::info_span!("job", http.route = "/job");
    let ids = job.context().span().span_context().clone();
    println!("{} {} {}", std::process::id(), ids.trace_id(), ids.span_id());
    std::io::stdin().lock().read_line(&mut String::new())?;

    let end = Instant::now() + Duration::from_secs_f64(seconds.parse()?);
    match mode.as_str() {
        "threads" => on_threads(threads, move || serve_until(end, rounds)),
        "switches" => on_threads(threads, move || switch_until(end, rounds)),
        "tasks" => in_tasks(threads, end, rounds)?,
        "job" => on_threads(threads, move || job.in_scope(|| work_until(end, rounds))),
        other => return Err(format!("{other}: threads, tasks, switches or job").into()),
    }
    log::write(log)?;
    provider.shutdown()?;
    Ok(())
}

/// Until all of them have ended and handed in their part of the log. (A scope's threads may do that after it.)
fn on_threads(count: usize, run: impl Fn() + Clone + Send + 'static) {
    let threads: Vec<_> = (0..count).map(|_| std::thread::spawn(run.clone())).collect();
    for thread in threads {
        // A thread that panicked has said so.
        let _ = thread.join();
    }
}

fn serve_until(end: Instant, rounds: u64) {
    for route in ROUTES.iter().cycle() {
        if Instant::now() >= end {
            return;
        }
        tracing::info_span!("request", http.route = route.path).in_scope(|| {
            (route.handle)(rounds);
            tracing::info_span!("query", http.route = Route::QUERY.path)
                .in_scope(|| (Route::QUERY.handle)(rounds));
            for _ in 0..LOOKUPS {
                tracing::info_span!("lookup", http.route = Route::LOOKUP.path)
                    .in_scope(|| (Route::LOOKUP.handle)(rounds / LOOKUPS_IN_ONE));
            }
            (route.handle)(rounds);
        });
        between(rounds);
    }
}

/// A part of a long job: all of it in one span, but for what it asks for.
fn work_until(end: Instant, rounds: u64) {
    while Instant::now() < end {
        for route in &ROUTES {
            (route.handle)(rounds);
        }
        tracing::info_span!("query", http.route = Route::QUERY.path)
            .in_scope(|| (Route::QUERY.handle)(rounds));
    }
}

/// Without a pause, and without looking at a clock too often.
fn switch_until(end: Instant, rounds: u64) {
    while Instant::now() < end {
        for route in ROUTES.iter().cycle().take(1000) {
            publish::in_bare_span(route.number, route.path, || (route.handle)(rounds));
            between(rounds);
        }
    }
}

/// Four tasks for each thread, which give way to others within their spans, and go on where there is room.
fn in_tasks(threads: usize, end: Instant, rounds: u64) -> std::io::Result<()> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_time().build()?;
    runtime.block_on(async {
        let tasks: Vec<_> =
            (0..4 * threads).map(|task| tokio::spawn(serve_async(task, end, rounds))).collect();
        for task in tasks {
            // A task that panicked has said so.
            let _ = task.await;
        }
    });
    Ok(())
}

async fn serve_async(task: usize, end: Instant, rounds: u64) {
    for route in ROUTES.iter().cycle().skip(task) {
        if Instant::now() >= end {
            return;
        }
        let query = async {
            tokio::task::yield_now().await;
            (Route::QUERY.handle)(rounds);
        };
        let request = async {
            (route.handle)(rounds);
            tokio::time::sleep(Duration::from_micros(200)).await;
            (route.handle)(rounds);
            query.instrument(tracing::info_span!("query", http.route = Route::QUERY.path)).await;
            (route.handle)(rounds);
        };
        request.instrument(tracing::info_span!("request", http.route = route.path)).await;
        between(rounds);
    }
}
