//! For the tests: when each thread was in which span, by `CLOCK_MONOTONIC`. Two layers write it down, one on either side of the
//! layer that publishes; nothing of it is needed by who publishes.

use std::cell::RefCell;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::sync::{Mutex, PoisonError};

use rustix::time::ClockId;
use tracing::Subscriber;
use tracing::span::Id;
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;

use crate::publish::Current;
use crate::work::{ns, thread_cpu_ns};

/// The file to write to. Without it there are no such layers.
const VARIABLE: &str = "SPAN_LOG";

/// A stay of a thread in a span.
#[derive(Default)]
struct Stay {
    span: u64,
    route: Box<str>,
    /// Before and after it was published, and before and after that was taken back.
    times_ns: [u64; 4],
    /// CPU time of the thread at the two inner ones.
    cpu_ns: [u64; 2],
}

#[derive(Default)]
struct Stays {
    /// The innermost last.
    open: Vec<Stay>,
    closed: Vec<Stay>,
}

impl Drop for Stays {
    fn drop(&mut self) {
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        let stays = self.closed.drain(..).map(|stay| (thread, stay));
        ALL.lock().unwrap_or_else(PoisonError::into_inner).extend(stays);
    }
}

static ALL: Mutex<Vec<(i32, Stay)>> = Mutex::new(Vec::new());

thread_local! {
    static STAYS: RefCell<Stays> = RefCell::default();
}

/// The layer below the one that publishes.
pub fn before() -> Option<Before> {
    std::env::var_os(VARIABLE).map(|_| Before)
}

/// The layer above the one that publishes.
pub fn after() -> Option<After> {
    std::env::var_os(VARIABLE).map(|_| After)
}

/// Takes the time before what a thread publishes changes.
pub struct Before;

/// Takes the time when that has changed.
pub struct After;

impl<S: Subscriber> Layer<S> for Before {
    fn on_enter(&self, _: &Id, _: Context<'_, S>) {
        let stay = Stay { times_ns: [now(), 0, 0, 0], ..Stay::default() };
        STAYS.with_borrow_mut(|stays| stays.open.push(stay));
    }

    fn on_exit(&self, _: &Id, _: Context<'_, S>) {
        STAYS.with_borrow_mut(|stays| {
            if let Some(stay) = stays.open.last_mut() {
                stay.times_ns[2] = now();
                stay.cpu_ns[1] = thread_cpu_ns();
            }
        });
    }
}

impl<S: Subscriber + for<'span> LookupSpan<'span>> Layer<S> for After {
    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        let cpu_ns = thread_cpu_ns();
        let after_ns = now();
        STAYS.with_borrow_mut(|stays| {
            let Some(stay) = stays.open.last_mut() else { return };
            stay.times_ns[1] = after_ns;
            stay.cpu_ns[0] = cpu_ns;
            let Some(span) = context.span(id) else { return };
            if let Some(Current { span_id, route, .. }) = span.extensions().get::<Current>() {
                (stay.span, stay.route) = (u64::from_be_bytes(*span_id), route.clone());
            }
        });
    }

    fn on_exit(&self, _: &Id, _: Context<'_, S>) {
        STAYS.with_borrow_mut(|stays| {
            if let Some(mut stay) = stays.open.pop() {
                stay.times_ns[3] = now();
                stays.closed.push(stay);
            }
        });
    }
}

fn now() -> u64 {
    ns(ClockId::Monotonic)
}

/// Writes a line for each stay of the threads that have ended: thread, span, route, the four times, the CPU time between the
/// inner two. First a line with how far the time of day is ahead.
pub fn write() -> std::io::Result<()> {
    let Some(path) = std::env::var_os(VARIABLE) else { return Ok(()) };
    let mut file = BufWriter::new(File::create(path)?);
    // Between the readings this thread may lose its CPU: the quickest try counts.
    let tries = (0..100).map(|_| {
        let (before, ahead) = (now(), ns(ClockId::Realtime) - now());
        (now() - before, ahead)
    });
    writeln!(file, "{}", tries.min().map_or(0, |(_, ahead)| ahead))?;
    for (thread, Stay { span, route, times_ns: [before, from, to, after], cpu_ns: [cpu_from, cpu_to] }) in
        ALL.lock().unwrap_or_else(PoisonError::into_inner).iter()
    {
        let cpu_ns = cpu_to - cpu_from;
        writeln!(file, "{thread} {span:016x} {route} {before} {from} {to} {after} {cpu_ns}")?;
    }
    file.flush()
}
