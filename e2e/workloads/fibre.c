// A fibre as libraries make them: a stack of its own, whose first frame returns to 0.
// Usage: fibre SECONDS [beside]
// beside: the word is where no call leaves a return address, as what a wrong rule takes for one.
#include <string.h>

#include "workload.h"

enum { STACK_BYTES = 1 << 16 };

static char stack[STACK_BYTES] __attribute__((aligned(16)));
static volatile uint64_t value = 1;
static double seconds;

static NOINLINE uint64_t burn(uint64_t start) { return workload_spin(start); }

static NOINLINE void take_turn(void) {
    uint64_t next = burn(value);
    AFTER_CALL(next);
    value = next;
}

static NOINLINE void fibre(void) {
    uint64_t deadline_ns = workload_deadline_ns(seconds);
    while (!workload_over(deadline_ns)) take_turn();
    workload_report("\"fibre\",\"take_turn\",\"burn\"");
    exit(0);
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    seconds = atof(argv[1]);
    workload_begin();
    uint64_t *base = (uint64_t *)(stack + STACK_BYTES - 64);
    if (argc > 2 && !strcmp(argv[2], "beside")) base--;
    base[-1] = 0;
    base[-2] = (uint64_t)fibre;
    // A called function's frame ends at a multiple of 16, which is where `base` is.
    __asm__ volatile("mov %0, %%rsp\n\txor %%ebp, %%ebp\n\tret" ::"r"(base - 2) : "memory");
    __builtin_unreachable();
}
