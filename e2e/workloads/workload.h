// What every C and C++ workload does at its start and its end.
//
// A workload prints `ready` with its process id, waits for a line on standard input when WORKLOAD_GATE is
// set (so that a profiler can be attached before the first instruction that counts), works, and ends with one
// line of JSON: its process id, its thread ids, the CPU time it took since the gate, how many rounds of work that
// were, and the functions that its stacks go through, outermost first.
#pragma once

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))

// Keeps a call from being the last thing its function does, and its frame from being merged with another.
#define AFTER_CALL(value) __asm__ volatile("" : "+r"(value)::"memory")

static uint64_t workload_cpu_at_gate_ns;
static __thread uint64_t workload_rounds; // of the calling thread

static inline uint64_t workload_clock_ns(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

// The second number of a thread's schedstat: for how long it has waited for a CPU.
static inline uint64_t workload_runnable_ns(int schedstat) {
    char text[96];
    unsigned long long on_cpu, runnable;
    ssize_t bytes = pread(schedstat, text, sizeof text - 1, 0);
    if (bytes <= 0) exit(1);
    text[bytes] = 0;
    if (sscanf(text, "%llu %llu", &on_cpu, &runnable) != 2) exit(1);
    return runnable;
}

static inline void workload_begin(void) {
    printf("{\"ready\":%d}\n", (int)getpid());
    fflush(stdout);
    if (getenv("WORKLOAD_GATE")) {
        char line[16];
        if (!fgets(line, sizeof line, stdin)) exit(1);
    }
    workload_cpu_at_gate_ns = workload_clock_ns(CLOCK_PROCESS_CPUTIME_ID);
}

static inline uint64_t workload_deadline_ns(double seconds) {
    return workload_clock_ns(CLOCK_MONOTONIC) + (uint64_t)(seconds * 1e9);
}

// Asked once before each round of work.
static inline int workload_over(uint64_t deadline_ns) {
    workload_rounds++;
    return workload_clock_ns(CLOCK_MONOTONIC) >= deadline_ns;
}

// The report up to the chain's opening bracket; the caller prints the names and `workload_report_end`.
static inline void workload_report_begin(const int *tids, int tid_count) {
    uint64_t cpu_ns = workload_clock_ns(CLOCK_PROCESS_CPUTIME_ID) - workload_cpu_at_gate_ns;
    printf("{\"pid\":%d,\"cpu_ns\":%llu,\"rounds\":%llu,\"tids\":[", (int)getpid(), (unsigned long long)cpu_ns,
           (unsigned long long)workload_rounds);
    for (int i = 0; i < tid_count; i++) printf("%s%d", i ? "," : "", tids[i]);
    printf("],\"chain\":[");
}

static inline void workload_report_end(void) {
    printf("]}\n");
    fflush(stdout);
}

// A report for workloads whose chain is a handful of names, written as JSON by the caller: "\"main\",\"burn\"".
static inline void workload_report(const char *chain) {
    int pid = (int)getpid();
    workload_report_begin(&pid, 1);
    fputs(chain, stdout);
    workload_report_end();
}

// About a million additions that no compiler removes: roughly half a millisecond.
static inline uint64_t workload_spin(uint64_t value) {
    for (int i = 0; i < 1000000; i++) {
        value += (uint64_t)i;
        AFTER_CALL(value);
    }
    return value;
}
