// STACKS different stacks, each as likely as any other: sixteen levels of two functions each, and the bits of
// the stack's number say which of the two is called at each level.
// Usage: distinct SECONDS STACKS
#include "workload.h"

constexpr int LEVELS = 16;

static NOINLINE uint64_t burn(uint64_t value) {
    for (int i = 0; i < 40000; i++) {
        value += static_cast<uint64_t>(i);
        AFTER_CALL(value);
    }
    return value;
}

template <int LEVEL>
struct Fork {
    static uint64_t descend(uint32_t path, uint64_t value) {
        return path & (1u << LEVEL) ? right(path, value) : left(path, value);
    }
    static NOINLINE uint64_t left(uint32_t path, uint64_t value) {
        uint64_t deeper = Fork<LEVEL + 1>::descend(path, value + LEVEL);
        AFTER_CALL(deeper);
        return deeper + 1;
    }
    static NOINLINE uint64_t right(uint32_t path, uint64_t value) {
        uint64_t deeper = Fork<LEVEL + 1>::descend(path, value ^ LEVEL);
        AFTER_CALL(deeper);
        return deeper + 2;
    }
};

template <>
struct Fork<LEVELS> {
    static inline uint64_t descend(uint32_t, uint64_t value) { return burn(value); }
};

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    uint32_t stacks = static_cast<uint32_t>(atoi(argv[2]));
    workload_begin();
    uint64_t deadline_ns = workload_deadline_ns(atof(argv[1]));
    uint64_t random = 1, value = 1;
    while (!workload_over(deadline_ns)) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        value = Fork<0>::descend(static_cast<uint32_t>(random >> 33) % stacks, value);
    }
    workload_report("\"main\"");
    return value == 42;
}
