// Calls itself DEPTH times with frames of 40 kB, which no small offset in an unwind table can name.
// Usage: frames SECONDS DEPTH
#include "workload.h"

enum { FRAME_BYTES = 40000 };

static NOINLINE uint64_t burn(uint64_t value) { return workload_spin(value); }

static NOINLINE uint64_t stack_up(int left, uint64_t value) {
    volatile char room[FRAME_BYTES];
    room[value % FRAME_BYTES] = (char)value;
    uint64_t deeper = left ? stack_up(left - 1, value + 1) : burn(value);
    AFTER_CALL(deeper);
    return deeper + (uint64_t)room[value % FRAME_BYTES];
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    int depth = atoi(argv[2]);
    workload_begin();
    uint64_t deadline_ns = workload_deadline_ns(atof(argv[1]));
    uint64_t value = 1;
    while (!workload_over(deadline_ns)) value = stack_up(depth - 1, value);
    int pid = (int)getpid();
    workload_report_begin(&pid, 1);
    printf("\"main\"");
    for (int i = 0; i < depth; i++) printf(",\"stack_up\"");
    printf(",\"burn\"");
    workload_report_end();
    return value == 42;
}
