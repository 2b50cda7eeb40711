//! Three locks of Rust, each with threads that hold it for a known time and then wait for it again, in a function of its own;
//! and threads that wait in conditions and are parked, which are futexes too. As `convoys.c`.
//!
//! Usage: convoys std|parking_lot SECONDS

use std::fs::File;
use std::hint::black_box;
use std::os::unix::fs::FileExt as _;
use std::process::exit;
use std::sync::Condvar;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use nix::time::{ClockId, clock_gettime};

/// How often and for how long a function has waited.
#[derive(Default)]
struct Waited {
    waits: i64,
    waited_ns: i64,
}

/// A lock of either library, which guards what its own waits were.
enum Lock {
    Std(std::sync::Mutex<Waited>),
    ParkingLot(parking_lot::Mutex<Waited>),
}

impl Lock {
    /// Waits for the lock, and has `inside` run while it is held.
    #[inline(never)]
    fn wait_for(&self, inside: impl FnOnce(&mut Waited)) {
        match self {
            Self::Std(lock) => inside(&mut lock.lock().unwrap_or_else(|_| exit(1))),
            Self::ParkingLot(lock) => inside(&mut lock.lock()),
        }
        black_box(());
    }

    fn address(&self) -> usize {
        match self {
            Self::Std(lock) => std::ptr::from_ref(lock).addr(),
            // The mutex has its lock first or last, and rustc decides where.
            Self::ParkingLot(lock) => std::ptr::from_ref(lock).addr(),
        }
    }
}

type Wait = fn(&Lock, &mut dyn FnMut(&mut Waited));

#[inline(never)]
fn wait_for_red(lock: &Lock, inside: &mut dyn FnMut(&mut Waited)) {
    lock.wait_for(inside);
    black_box(());
}

#[inline(never)]
fn wait_for_green(lock: &Lock, inside: &mut dyn FnMut(&mut Waited)) {
    lock.wait_for(inside);
    black_box(());
}

#[inline(never)]
fn wait_for_blue(lock: &Lock, inside: &mut dyn FnMut(&mut Waited)) {
    lock.wait_for(inside);
    black_box(());
}

struct Convoy {
    function: &'static str,
    wait: Wait,
    threads: u32,
    hold: Duration,
    think: Duration,
}

const CONVOYS: [Convoy; 3] = [
    Convoy {
        function: "wait_for_red",
        wait: wait_for_red,
        threads: 4,
        hold: Duration::from_micros(6_000),
        think: Duration::from_micros(9_000),
    },
    Convoy {
        function: "wait_for_green",
        wait: wait_for_green,
        threads: 3,
        hold: Duration::from_micros(3_000),
        think: Duration::from_micros(5_000),
    },
    Convoy {
        function: "wait_for_blue",
        wait: wait_for_blue,
        threads: 2,
        hold: Duration::from_micros(2_000),
        think: Duration::from_micros(4_000),
    },
];

/// The accounts of this thread: when, on a CPU, waiting for one, and how often it gave it up.
struct Accounts {
    now: Instant,
    on_cpu_ns: i64,
    runnable_ns: i64,
    switches: i64,
}

impl Accounts {
    /// Allocates nothing: the heap has locks, too.
    fn read(schedstat: &File) -> Self {
        let mut text = [0; 96];
        let (Ok(usage), Ok(on_cpu), Ok(bytes)) = (
            getrusage(UsageWho::RUSAGE_THREAD),
            clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID),
            schedstat.read_at(&mut text, 0),
        ) else {
            exit(1)
        };
        let text = text.get(..bytes).and_then(|text| std::str::from_utf8(text).ok()).unwrap_or_default();
        let runnable_ns = text.split(' ').nth(1).and_then(|number| number.parse().ok()).unwrap_or(0);
        Self {
            now: Instant::now(),
            on_cpu_ns: on_cpu.tv_sec() * 1_000_000_000 + on_cpu.tv_nsec(),
            runnable_ns,
            switches: usage.voluntary_context_switches(),
        }
    }
}

fn run(convoy: &Convoy, lock: &Lock, end: Instant) {
    let Ok(schedstat) = File::open("/proc/thread-self/schedstat") else { exit(1) };
    while Instant::now() < end {
        let before = Accounts::read(&schedstat);
        (convoy.wait)(lock, &mut |waited| {
            let after = Accounts::read(&schedstat);
            let switches = after.switches - before.switches;
            if switches > 0 {
                let took_ns = i64::try_from((after.now - before.now).as_nanos()).unwrap_or(i64::MAX);
                let ran_ns = after.on_cpu_ns - before.on_cpu_ns + after.runnable_ns - before.runnable_ns;
                waited.waits += switches;
                waited.waited_ns += took_ns - ran_ns;
            }
            thread::sleep(convoy.hold);
        });
        thread::sleep(convoy.think);
    }
}

/// Waits in a condition that is notified twice and then no more: its futex then has the value of a lock with waiters.
#[inline(never)]
fn wait_for_a_condition(end: Instant) {
    let (condition, mutex) = (Condvar::new(), std::sync::Mutex::new(()));
    condition.notify_one();
    condition.notify_one();
    let Ok(mut guard) = mutex.lock() else { exit(1) };
    while Instant::now() < end {
        let Ok((again, _)) = condition.wait_timeout(guard, Duration::from_millis(5)) else { exit(1) };
        guard = again;
    }
}

#[inline(never)]
fn wait_parked(end: Instant) {
    while Instant::now() < end {
        thread::park_timeout(Duration::from_millis(5));
    }
}

fn main() {
    let arguments: Vec<_> = std::env::args().collect();
    let [_, library, seconds] = &*arguments else { exit(2) };
    let lock = || match &**library {
        "std" => Lock::Std(std::sync::Mutex::default()),
        _ => Lock::ParkingLot(parking_lot::Mutex::default()),
    };
    let locks = [lock(), lock(), lock()];
    let end = Instant::now() + Duration::from_secs_f64(seconds.parse().unwrap_or(1.0));
    thread::scope(|threads| {
        for (convoy, lock) in CONVOYS.iter().zip(&locks) {
            for _ in 0..convoy.threads {
                threads.spawn(move || run(convoy, lock, end));
            }
        }
        threads.spawn(move || wait_for_a_condition(end));
        threads.spawn(move || wait_parked(end));
    });
    let rows: Vec<_> = CONVOYS.iter().zip(&locks).map(|(convoy, lock)| row(convoy, lock)).collect();
    println!("{{\"locks\":[{}]}}", rows.join(","));
}

fn row(convoy: &Convoy, lock: &Lock) -> String {
    let mut said = (0, 0);
    lock.wait_for(|waited| said = (waited.waits, waited.waited_ns));
    let (function, address) = (convoy.function, lock.address());
    format!(
        "{{\"function\":\"{function}\",\"waits\":{},\"waited_ns\":{},\"address\":\"{address:x}\"}}",
        said.0, said.1
    )
}
