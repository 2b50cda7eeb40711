// Two processes that send each other a byte through pipes, again and again: nothing but system calls and switches. They
// share one CPU, so that each byte is a switch between them and no CPU falls asleep meanwhile.
// Usage: pingpong SECONDS [ROUNDS]
// With ROUNDS, each adds up so many numbers in each turn.
// `rounds` of its report is how often the byte came back. Before it comes `{"round_trip_ns":N}`, the median of batches of a
// millisecond or so: what else runs on its CPU now and then doesn't change it.
#define _GNU_SOURCE
#include "workload.h"

#include <sched.h>

enum { BATCH_ROUNDS = 250, BATCHES_MAX = 1 << 16 };

static uint64_t batches_ns[BATCHES_MAX];

static int ascending(const void *left, const void *right) {
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

static NOINLINE void add_up(long rounds) {
    uint64_t sum = 0;
    for (long i = 0; i < rounds; i++) {
        sum += (uint64_t)i;
        AFTER_CALL(sum);
    }
}

int main(int argc, char **argv) {
    if (argc < 2 || argc > 3) return 2;
    long rounds = argc > 2 ? atol(argv[2]) : 0;
    cpu_set_t here;
    CPU_ZERO(&here);
    CPU_SET(sched_getcpu(), &here);
    if (sched_setaffinity(0, sizeof here, &here)) return 1;
    int there[2], back[2];
    char byte = 0;
    if (pipe(there) || pipe(back)) return 1;
    pid_t child = fork();
    if (child < 0) return 1;
    if (!child) {
        close(there[1]);
        while (read(there[0], &byte, 1) == 1 && write(back[1], &byte, 1) == 1) add_up(rounds);
        _exit(0);
    }
    workload_begin();
    uint64_t deadline_ns = workload_deadline_ns(atof(argv[1])), begin_ns = workload_clock_ns(CLOCK_MONOTONIC);
    int batches = 0;
    while (begin_ns < deadline_ns && batches < BATCHES_MAX) {
        for (int i = 0; i < BATCH_ROUNDS; i++) {
            add_up(rounds);
            if (write(there[1], &byte, 1) != 1 || read(back[0], &byte, 1) != 1) return 1;
        }
        workload_rounds += BATCH_ROUNDS;
        uint64_t end_ns = workload_clock_ns(CLOCK_MONOTONIC);
        batches_ns[batches++] = end_ns - begin_ns;
        begin_ns = end_ns;
    }
    qsort(batches_ns, batches, sizeof *batches_ns, ascending);
    printf("{\"round_trip_ns\":%llu}\n", (unsigned long long)batches_ns[batches / 2] / BATCH_ROUNDS);
    workload_report("\"main\"");
    return 0;
}
