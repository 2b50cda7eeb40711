// A call chain that is known in full: main, climb, then DEPTH rungs, then burn.
//
// Nine rungs of ten are distinct functions that call the next one; the tenth calls itself once before it goes
// on, so that recursion through distinct functions and through one function both occur. No call is a tail call.
// Usage: ladder SECONDS DEPTH
#include "workload.h"

extern "C" {
// The frame stays in use to the end: without it, compilers drop even a frame pointer that they were told to keep.
NOINLINE uint64_t burn(uint64_t value) {
    volatile uint64_t frame[2];
    frame[0] = workload_spin(value);
    return frame[0] + 1;
}
uint64_t rung_0(int left, uint64_t value);
}

#define RUNG(n, next)                                                       \
    extern "C" NOINLINE uint64_t rung_##n(int left, uint64_t value) {       \
        volatile uint64_t frame[(n) + 2];                                   \
        frame[0] = value + (n);                                             \
        uint64_t deeper = left ? next(left - 1, frame[0]) : burn(frame[0]); \
        AFTER_CALL(deeper);                                                 \
        frame[1] = deeper;                                                  \
        return frame[1] ^ (n);                                              \
    }

// The last rung stands on itself: an odd `left` is its second frame.
extern "C" NOINLINE uint64_t rung_8(int left, uint64_t value) {
    volatile uint64_t frame[4];
    frame[0] = value;
    uint64_t deeper = !left ? burn(frame[0]) : (left & 1) ? rung_8(left - 1, frame[0]) : rung_0(left - 1, frame[0]);
    AFTER_CALL(deeper);
    frame[1] = deeper;
    return frame[1] + 8;
}

RUNG(7, rung_8)
RUNG(6, rung_7)
RUNG(5, rung_6)
RUNG(4, rung_5)
RUNG(3, rung_4)
RUNG(2, rung_3)
RUNG(1, rung_2)
RUNG(0, rung_1)

extern "C" NOINLINE uint64_t climb(int depth, uint64_t value) {
    uint64_t top = rung_0(depth - 1, value);
    AFTER_CALL(top);
    return top + 1;
}

// The names of the rungs in the order in which `climb(depth)` calls them.
static void print_chain(int depth) {
    printf("\"main\",\"climb\"");
    int rung = 0;
    for (int left = depth - 1; left >= 0; left--) {
        printf(",\"rung_%d\"", rung);
        if (rung < 8) rung++;
        else if (!(left & 1)) rung = 0;
    }
    printf(",\"burn\"");
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    int depth = atoi(argv[2]);
    workload_begin();
    uint64_t deadline_ns = workload_deadline_ns(atof(argv[1]));
    uint64_t value = 1;
    while (!workload_over(deadline_ns)) value = climb(depth, value);
    int pid = (int)getpid();
    workload_report_begin(&pid, 1);
    print_chain(depth);
    workload_report_end();
    return value == 42;
}
