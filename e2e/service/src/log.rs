//! When each thread was in which span, by `CLOCK_MONOTONIC`: the truth by which the tests judge.

use std::cell::RefCell;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::sync::{Mutex, PoisonError};

use rustix::time::ClockId;

use crate::publish::Current;
use crate::work::{ns, thread_cpu_ns};

/// A stay in a span.
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

/// The thread enters a span, as it says by `publish`.
pub fn entering(current: &Current, publish: impl FnOnce()) {
    let (span, route) = (u64::from_be_bytes(current.span_id), current.route.clone());
    let before_ns = now();
    publish();
    let cpu_ns = thread_cpu_ns();
    let stay = Stay { span, route, times_ns: [before_ns, now(), 0, 0], cpu_ns: [cpu_ns; 2] };
    STAYS.with_borrow_mut(|stays| stays.open.push(stay));
}

/// The thread leaves the innermost span, as it says by `publish`.
pub fn leaving(publish: impl FnOnce()) {
    STAYS.with_borrow_mut(|stays| {
        let Some(mut stay) = stays.open.pop() else { return publish() };
        stay.times_ns[2] = now();
        stay.cpu_ns[1] = thread_cpu_ns();
        publish();
        stay.times_ns[3] = now();
        stays.closed.push(stay);
    });
}

fn now() -> u64 {
    ns(ClockId::Monotonic)
}

/// Writes a line for each stay: thread, span, route, the four times, the CPU time between the inner two. First a line with how
/// far the time of day is ahead.
pub fn write(path: &str) -> std::io::Result<()> {
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
