// 512 different functions with frames of about 100 bytes, called in a random order that never repeats:
// every frame of a stack needs a row of its own, and no cache of recent rows helps.
// Usage: div SECONDS DEPTH
#include "workload.h"

using Step = uint64_t (*)(int left, uint64_t random, uint64_t value);
constexpr int FUNCTIONS = 512;
extern const Step steps[FUNCTIONS];

// A full-period generator (Knuth's MMIX constants); its high bits choose the next function.
static inline uint64_t next_random(uint64_t random) {
    return random * 6364136223846793005u + 1442695040888963407u;
}

static NOINLINE uint64_t burn(uint64_t value) {
    for (int i = 0; i < 20000; i++) {
        value += static_cast<uint64_t>(i);
        AFTER_CALL(value);
    }
    return value;
}

// The size of the frame and the constant differ with N, so that no two functions can be folded into one.
template <int N>
NOINLINE uint64_t step(int left, uint64_t random, uint64_t value) {
    volatile uint64_t frame[8 + N % 7];
    frame[N % 8] = value + N;
    random = next_random(random);
    uint64_t deeper = left ? steps[(random >> 33) % FUNCTIONS](left - 1, random, value ^ N) : burn(value);
    AFTER_CALL(deeper);
    return deeper + frame[N % 8] * (N + 1);
}

#define STEPS_1(n) step<n>
#define STEPS_8(n) STEPS_1(n), STEPS_1(n + 1), STEPS_1(n + 2), STEPS_1(n + 3), STEPS_1(n + 4), STEPS_1(n + 5), STEPS_1(n + 6), STEPS_1(n + 7)
#define STEPS_64(n) STEPS_8(n), STEPS_8(n + 8), STEPS_8(n + 16), STEPS_8(n + 24), STEPS_8(n + 32), STEPS_8(n + 40), STEPS_8(n + 48), STEPS_8(n + 56)

const Step steps[FUNCTIONS] = {STEPS_64(0),   STEPS_64(64),  STEPS_64(128), STEPS_64(192),
                               STEPS_64(256), STEPS_64(320), STEPS_64(384), STEPS_64(448)};

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    int depth = atoi(argv[2]);
    workload_begin();
    uint64_t deadline_ns = workload_deadline_ns(atof(argv[1]));
    uint64_t random = 1, value = 1;
    while (!workload_over(deadline_ns)) {
        random = next_random(random);
        value = steps[(random >> 33) % FUNCTIONS](depth - 1, random, value);
    }
    workload_report("\"main\"");
    return value == 42;
}
