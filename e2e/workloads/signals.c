// Computes inside a signal handler, so that almost every stack crosses a signal frame.
// Usage: signals SECONDS
#include <signal.h>

#include "workload.h"

static volatile uint64_t value = 1;

static NOINLINE uint64_t burn(uint64_t start) { return workload_spin(start); }

static NOINLINE void on_signal(int number) {
    uint64_t next = burn(value + (uint64_t)number);
    AFTER_CALL(next);
    value = next;
}

static NOINLINE int interrupt_self(void) {
    int failed = raise(SIGUSR1);
    AFTER_CALL(failed);
    return failed;
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGUSR1, &action, NULL);
    workload_begin();
    uint64_t deadline_ns = workload_deadline_ns(atof(argv[1]));
    while (!workload_over(deadline_ns)) {
        if (interrupt_self()) return 1;
    }
    workload_report("\"main\",\"interrupt_self\",\"on_signal\",\"burn\"");
    return 0;
}
