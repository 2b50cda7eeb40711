//! A program of two routes whose threads say by labels which span they are in. It prints each span that it has handled.

use std::hash::{BuildHasher as _, RandomState};
use std::hint::black_box;
use std::time::{Duration, Instant};

use custom_labels::with_labels;

/// Runs something with the ids of a span, in hexadecimal digits, as labels of the thread.
fn in_span(trace_id: &str, route: &str, run: impl FnOnce()) {
    let span_id = random_digits();
    with_labels([("trace_id", trace_id), ("span_id", &*span_id), ("http.route", route)], run);
    println!("{trace_id} {span_id} {route}");
}

/// Sixteen of them.
fn random_digits() -> String {
    format!("{:016x}", RandomState::new().hash_one(0))
}

macro_rules! functions {
    ($($name:ident = $salt:literal,)*) => { $(
        #[inline(never)]
        fn $name() {
            let mut value: u64 = $salt;
            for round in 0..2_000_000_u64 {
                value = black_box(value ^ round).wrapping_mul(6_364_136_223_846_793_005);
            }
            black_box(value);
        }
    )* };
}

functions! {
    cart = 3,
    query = 5,
    outside = 7,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let seconds = std::env::args().nth(1).map_or(Ok(10), |seconds| seconds.parse())?;
    let end = Instant::now() + Duration::from_secs(seconds);
    let serve = move || {
        while Instant::now() < end {
            let trace_id = random_digits() + &random_digits();
            in_span(&trace_id, "/cart", || {
                cart();
                in_span(&trace_id, "/query", query);
                cart();
            });
            outside();
        }
    };
    let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(serve)).collect();
    for thread in threads {
        // A thread that panicked has said so.
        let _ = thread.join();
    }
    Ok(())
}
