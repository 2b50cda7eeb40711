// A process that lives for about five milliseconds of CPU time and says nothing.
// Usage: brief [CPU-MILLISECONDS]
#include "workload.h"

static NOINLINE uint64_t burn(uint64_t value) {
    for (int i = 0; i < 20000; i++) {
        value += (uint64_t)i;
        AFTER_CALL(value);
    }
    return value;
}

int main(int argc, char **argv) {
    uint64_t budget_ns = (uint64_t)((argc > 1 ? atof(argv[1]) : 5.0) * 1e6);
    uint64_t value = 1;
    while (workload_clock_ns(CLOCK_PROCESS_CPUTIME_ID) < budget_ns) value = burn(value);
    return value == 42;
}
