//! Counters, in each mode of walking.

use sidewinder_kind::{Counter, CounterRate, SampledCounter};

use super::*;

/// Touches new memory at the end of a chain of calls.
const TOUCHING: &str = r#"
#include <sys/mman.h>
#include <unistd.h>
enum { BYTES = 400 * 4096 };
volatile unsigned long sink;
__attribute__((noinline)) unsigned long touch(volatile char *memory) {
    for (long at = 0; at < BYTES; at += 4096) memory[at] = 1;
    sink++; return sink; }
__attribute__((noinline)) unsigned long first(volatile char *memory) { unsigned long x = touch(memory); sink = x; return x + 1; }
int main(void) {
    char *memory = mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(memory, BYTES, MADV_NOHUGEPAGE);
    for (;;) { sink = first(memory); madvise(memory, BYTES, MADV_DONTNEED); usleep(2000); } }
"#;

const COUNTERS: [SampledCounter; 2] = [
    SampledCounter { counter: Counter::PageFaults, rate: CounterRate::Period(8) },
    SampledCounter { counter: Counter::MinorFaults, rate: CounterRate::Period(24) },
];

/// Each event has the period of its own counter, and the stack of the fault.
#[test]
fn events_of_several_counters_have_their_own_period_and_the_stack_of_their_fault() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let burner = Burner::start_with(TOUCHING);
    for walk in WalkMode::supported() {
        let [first, second] = COUNTERS.map(Kind::Counter);
        let kinds = KindSet::new(first).with(second);
        let options = SamplingOptions { kinds, walk: Some(*walk), ..options(burner.child.id(), 97, 8 << 20) };
        let mut storage = Storage::uninit();
        let Some(mut sampler) = sampler(&mut storage, options) else { return };
        sampler.start().unwrap();
        let mut messages = poll_until(&mut sampler, 2_000);
        messages.append(&mut stop(&mut sampler));
        for (index, kind) in [first, second].into_iter().enumerate() {
            let period = kind.descriptor().period.map(|period| period.amount);
            let of_kind = |message: &Message| match message {
                Message::Event(event) if event.kind == kind => Some((event.value, event.outcome)),
                _ => None,
            };
            let events: Vec<_> = messages.iter().filter_map(of_kind).collect();
            assert!(events.len() > 100, "{walk:?}: {} events of {kind:?}", events.len());
            assert!(events.iter().all(|(value, _)| Some(*value) == period), "{walk:?}: {kind:?}");
            let outcomes: Vec<_> = events.iter().map(|(_, outcome)| *outcome).collect();
            let complete = histogram(&outcomes).get(&Outcome::Complete).copied().unwrap_or(0);
            assert!(complete * 100 >= events.len() * 98, "{walk:?}: {:?}", histogram(&outcomes));

            let profile =
                profile_of(SampleKind::Counter(u8::try_from(index).unwrap()), messages.clone(), &sampler);
            let calls = |stack| {
                let names = profile.frames_of(stack).map(|frame| frame.name().into_owned());
                names.filter(|name| ["touch", "first", "main"].contains(&&**name)).collect::<Vec<_>>()
            };
            let stacks = profile.stack_counts();
            let of_chain = stacks.filter(|(stack, _)| calls(*stack) == ["touch", "first", "main"]);
            let touched: u64 = of_chain.map(|(_, count)| count).sum();
            let total = profile.total_count();
            assert!(touched * 100 >= total * 97, "{walk:?}: {touched} of {total} in the chain");
        }
    }
}
