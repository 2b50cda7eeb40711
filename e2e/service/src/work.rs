//! What the service does: functions that compute, so that a stack tells which one it was in.

use std::hint::black_box;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

macro_rules! functions {
    ($($name:ident = $salt:literal,)*) => { $(
        /// Computes for so many rounds.
        #[inline(never)]
        pub fn $name(rounds: u64) {
            let mut value = $salt;
            for round in 0..rounds {
                value = black_box(value ^ round).wrapping_mul(6_364_136_223_846_793_005);
            }
            black_box(value);
        }
    )* };
}

functions! {
    cart = 3_u64,
    search = 5,
    checkout = 7,
    query = 11,
    lookup = 17,
    admit = 13,
}

/// About as many rounds as take so long here and now.
pub fn rounds_in(time: Duration) -> u64 {
    const TRIED: u64 = 4_000_000;
    let before = thread_cpu_ns();
    admit(TRIED);
    let took = (thread_cpu_ns() - before).max(1);
    (u128::from(TRIED) * time.as_nanos() / u128::from(took)).max(1) as u64
}

/// CPU time of this thread.
pub fn thread_cpu_ns() -> u64 {
    ns(ClockId::ThreadCPUTime)
}

/// The time of a clock.
pub fn ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
