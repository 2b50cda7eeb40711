// Lines whose shares of the CPU time are known: of ten parts, `work` has six at the line of its first loop, which is inlined, two
// at that of its second, and two in what it calls.
#include "workload.h"

// Each round takes equally long, wherever it is: its multiplications wait for each other. How long a round of two instructions
// takes depends on its address, on some processors.
#define MULTIPLY "imul %%rax, %%rax\n"
#define LOOP(count) __asm__ volatile("0: " MULTIPLY MULTIPLY MULTIPLY MULTIPLY "dec %0\njnz 0b" : "+r"(count) : : "rax")

static inline __attribute__((always_inline)) void burn(uint64_t count) {
    LOOP(count);
}

NOINLINE static uint64_t called(uint64_t count) {
    LOOP(count);
    return count;
}

NOINLINE static void work(uint64_t part) {
    burn(6 * part);
    uint64_t count = 2 * part;
    LOOP(count);
    count = called(2 * part);
    AFTER_CALL(count);
}

int main(int argc, char **argv) {
    workload_begin();
    uint64_t deadline_ns = workload_deadline_ns(argc > 1 ? atof(argv[1]) : 1);
    while (!workload_over(deadline_ns)) {
        // Some microseconds. Rounds about as long as a sampling period have nearly the same part of each sampled again and again.
        work(200);
    }
    workload_report("\"main\",\"work\"");
    return 0;
}
