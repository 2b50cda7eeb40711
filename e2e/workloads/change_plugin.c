// A library that `changes` computes in. PLUGIN is a or b: the two have the same size of code and other frames.
#include "workload.h"

#define JOIN_(left, right) left##right
#define JOIN(left, right) JOIN_(left, right)

static NOINLINE uint64_t JOIN(burn_, PLUGIN)(uint64_t value, double seconds) {
    char frame[FRAME_BYTES];
    __asm__ volatile("" ::"r"(frame) : "memory");
    uint64_t deadline_ns = workload_deadline_ns(seconds);
    while (workload_clock_ns(CLOCK_MONOTONIC) < deadline_ns)
        for (int i = 0; i < 20000; i++) {
            value += (uint64_t)i;
            AFTER_CALL(value);
        }
    return value;
}

static NOINLINE uint64_t JOIN(run_, PLUGIN)(uint64_t value, double seconds) {
    value = JOIN(burn_, PLUGIN)(value, seconds);
    AFTER_CALL(value);
    return value;
}

__attribute__((visibility("default"))) uint64_t plugin_run(uint64_t value, double seconds) {
    value = JOIN(run_, PLUGIN)(value, seconds) + 1;
    AFTER_CALL(value);
    return value;
}
