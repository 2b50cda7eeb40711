// Throws and catches all the time: most of the time goes to the C++ runtime, which unwinds this stack itself.
// Usage: throws SECONDS DEPTH
#include "workload.h"

static NOINLINE uint64_t fall(int left, uint64_t value) {
    if (left == 0) throw value;
    uint64_t deeper = fall(left - 1, value + 1);
    AFTER_CALL(deeper);
    return deeper + 1;
}

static NOINLINE uint64_t land(int depth, uint64_t value) {
    try {
        return fall(depth, value);
    } catch (uint64_t thrown) {
        return thrown;
    }
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    int depth = atoi(argv[2]);
    workload_begin();
    uint64_t deadline_ns = workload_deadline_ns(atof(argv[1]));
    uint64_t value = 1;
    while (!workload_over(deadline_ns))
        for (int i = 0; i < 100; i++) value = land(depth, value);
    workload_report("\"main\"");
    return value == 42;
}
