// Two coroutines on stacks of their own, which take turns: their outermost frame is no thread's.
// Usage: coroutines SECONDS
#include <ucontext.h>

#include "workload.h"

enum { STACK_BYTES = 1 << 18, COROUTINES = 2 };

static ucontext_t scheduler, coroutines[COROUTINES];
static char stacks[COROUTINES][STACK_BYTES];
static volatile uint64_t value = 1;

static NOINLINE uint64_t burn(uint64_t start) { return workload_spin(start); }

static NOINLINE void take_turn(int number) {
    uint64_t next = burn(value);
    AFTER_CALL(next);
    value = next;
    swapcontext(&coroutines[number], &scheduler);
}

static NOINLINE void coroutine(int number) {
    for (;;) take_turn(number);
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    workload_begin();
    uint64_t deadline_ns = workload_deadline_ns(atof(argv[1]));
    for (int i = 0; i < COROUTINES; i++) {
        getcontext(&coroutines[i]);
        coroutines[i].uc_stack.ss_sp = stacks[i];
        coroutines[i].uc_stack.ss_size = STACK_BYTES;
        makecontext(&coroutines[i], (void (*)(void))coroutine, 1, i);
    }
    for (int turn = 0; !workload_over(deadline_ns); turn++) swapcontext(&scheduler, &coroutines[turn % COROUTINES]);
    workload_report("\"coroutine\",\"take_turn\",\"burn\"");
    return 0;
}
