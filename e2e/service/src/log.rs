//! When each thread was in which span, by `CLOCK_MONOTONIC`.

use std::cell::RefCell;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::sync::{Mutex, PoisonError};

use rustix::time::ClockId;

use crate::work::{ns, thread_cpu_ns};

/// A stay in a span: the times before and after it was published, and before and after that was taken back.
#[derive(Clone, Copy, Default)]
pub struct Open {
    span: u64,
    times_ns: [u64; 4],
    /// At the two inner ones.
    cpu_ns: [u64; 2],
}

impl Open {
    /// Just before the span is published.
    pub fn begin(span: u64) -> Self {
        Self { span, times_ns: [now(), 0, 0, 0], cpu_ns: [0; 2] }
    }

    /// Just after.
    pub fn entered(mut self) -> Self {
        self.cpu_ns[0] = thread_cpu_ns();
        self.times_ns[1] = now();
        self
    }

    /// Just before another one is published, or none.
    pub fn leaving(mut self) -> Self {
        self.times_ns[2] = now();
        self.cpu_ns[1] = thread_cpu_ns();
        self
    }

    /// Just after.
    pub fn end(mut self) {
        self.times_ns[3] = now();
        STAYS.with_borrow_mut(|stays| stays.0.push(self));
    }
}

fn now() -> u64 {
    ns(ClockId::Monotonic)
}

struct Stays(Vec<Open>);

impl Drop for Stays {
    fn drop(&mut self) {
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        let stays = self.0.drain(..).map(|stay| (thread, stay));
        ALL.lock().unwrap_or_else(PoisonError::into_inner).extend(stays);
    }
}

static ALL: Mutex<Vec<(i32, Open)>> = Mutex::new(Vec::new());

thread_local! {
    static STAYS: RefCell<Stays> = const { RefCell::new(Stays(Vec::new())) };
}

/// Writes a line for each stay: thread, span, the four times, the CPU time between the inner two. First a line with how far
/// the time of day is ahead.
pub fn write(path: &str) -> std::io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    // Between the readings this thread may lose its CPU: the quickest try counts.
    let tries = (0..100).map(|_| {
        let (before, ahead) = (now(), ns(ClockId::Realtime) - now());
        (now() - before, ahead)
    });
    writeln!(file, "{}", tries.min().map_or(0, |(_, ahead)| ahead))?;
    for (thread, stay) in ALL.lock().unwrap_or_else(PoisonError::into_inner).iter() {
        let [before, from, to, after] = stay.times_ns;
        let cpu_ns = stay.cpu_ns[1] - stay.cpu_ns[0];
        writeln!(file, "{thread} {:016x} {before} {from} {to} {after} {cpu_ns}", stay.span)?;
    }
    file.flush()
}
