//! Two callers of a function in Rust, as `sales.cc`.

use std::hint::black_box;
use std::time::Duration;

mod cart {
    #[inline(never)]
    pub fn add(total: &mut i64, price: i64) -> i64 {
        *total += price;
        std::hint::black_box(price * 2)
    }
}

#[inline(never)]
fn sell_small(total: &mut i64, price: i64) -> i64 {
    cart::add(total, price) + 1
}

#[inline(never)]
fn sell_large(total: &mut i64, price: i64) -> i64 {
    cart::add(total, 10 * price) + 2
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<i64>().unwrap());
    let (calls, pause_us) = (arguments.next().unwrap(), arguments.next().unwrap());
    let (mut counts, mut sums, mut total) = ([0; 2], [0; 2], 0);
    std::thread::sleep(Duration::from_millis(500));
    for call in 0..calls {
        let (is_large, price) = (call % 4 == 0, call % 100);
        let sell = if is_large { sell_large } else { sell_small };
        black_box(sell(&mut total, price));
        counts[usize::from(is_large)] += 1;
        sums[usize::from(is_large)] += if is_large { 10 * price } else { price };
        if pause_us > 0 && call % 50 == 49 {
            std::thread::sleep(Duration::from_micros(pause_us as u64));
        }
    }
    println!("sell_small {} {}", counts[0], sums[0]);
    println!("sell_large {} {}", counts[1], sums[1]);
}
