//! `switches SECONDS THREADS MICROSECONDS`: threads that are in another span each few microseconds.
//!
//! No pause, and neither `tracing` nor a log, which would cost more than the spans: the last byte of a span's id tells the
//! function that runs in it. It starts to work when it is sent a line.

use std::io::BufRead as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sidewinder_example_service::publish::{self, Current};
use sidewinder_example_service::work;

/// The last byte of the ids of spans, their route, and the function that runs in them.
type Route = (u8, &'static str, fn(u64));

/// By turns.
const ROUTES: [Route; 3] =
    [(1, "/cart", work::cart), (2, "/search", work::search), (3, "/checkout", work::checkout)];
/// Spans until a clock is looked at.
const SPANS: usize = 1000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [seconds, threads, microseconds] = &arguments[..] else {
        return Err("usage: switches SECONDS THREADS MICROSECONDS".into());
    };
    publish::process_context()?;
    let rounds = work::rounds_in(Duration::from_micros(microseconds.parse()?));
    std::io::stdin().lock().read_line(&mut String::new())?;
    let end = Instant::now() + Duration::from_secs_f64(seconds.parse()?);
    std::thread::scope(|scope| {
        for _ in 0..threads.parse()? {
            scope.spawn(|| switch_until(end, rounds));
        }
        Ok(())
    })
}

fn switch_until(end: Instant, rounds: u64) {
    while Instant::now() < end {
        for (number, route, compute) in ROUTES.into_iter().cycle().take(SPANS) {
            in_span(number, route, || compute(rounds));
            work::admit(rounds);
        }
    }
}

fn in_span(last_byte: u8, route: &str, run: impl FnOnce()) {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
    let span_id = (number << 8 | u64::from(last_byte)).to_be_bytes();
    let mut trace_id = [0xee; 16];
    trace_id[8..].copy_from_slice(&span_id);
    Current { trace_id, span_id, flags: 1, route: route.into() }.publish();
    run();
    publish::take_back();
}
