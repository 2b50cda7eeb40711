// One function that calls itself DEPTH times: every frame has the same size and the same rule.
// Usage: rec SECONDS DEPTH
#include "workload.h"

static NOINLINE uint64_t burn(uint64_t value) { return workload_spin(value); }

static NOINLINE uint64_t recurse(int left, uint64_t value) {
    uint64_t deeper = left ? recurse(left - 1, value + 1) : burn(value);
    AFTER_CALL(deeper);
    return deeper + (uint64_t)left;
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    int depth = atoi(argv[2]);
    workload_begin();
    uint64_t deadline_ns = workload_deadline_ns(atof(argv[1]));
    uint64_t value = 1;
    while (!workload_over(deadline_ns)) value = recurse(depth - 1, value);
    int pid = (int)getpid();
    workload_report_begin(&pid, 1);
    printf("\"main\"");
    for (int i = 0; i < depth; i++) printf(",\"recurse\"");
    printf(",\"burn\"");
    workload_report_end();
    return value == 42;
}
