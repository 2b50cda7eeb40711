// Threads that wait, each in another way and in a function of its own; one that waits from the beginning to the end, and
// one that computes. In the end each says how long its waits were and what its accounts say.
// Usage: waits SECONDS [THREADS]
//
// THREADS: the first of them; all but the last, which computes, leave the CPUs to others.
//
// Prints, before the report: {"threads":[{"tid":7,"function":"wait_in_poll","waits":9,"waited_ns":1,"wall_ns":3,
// "on_cpu_ns":1,"runnable_ns":1},...]}. `waited_ns` is the time of the waits by CLOCK_MONOTONIC, without the time for which
// the thread ran or was runnable meanwhile; the last three cover the thread's life.
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <sys/syscall.h>

#include "workload.h"

struct waiter {
    const char *function;
    void (*wait)(uint64_t ns);
    uint64_t least_ns, spread_ns; // of one wait
    int tid;
    uint64_t waits, waited_ns, wall_ns, on_cpu_ns, runnable_ns;
};

static int pipe_ends[2];
static uint64_t deadline_ns;

static struct timespec timespec_of(uint64_t ns) {
    return (struct timespec){(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
}

static NOINLINE void wait_in_nanosleep(uint64_t ns) {
    struct timespec time = timespec_of(ns);
    nanosleep(&time, 0);
    AFTER_CALL(ns);
}

static NOINLINE void wait_in_futex(uint64_t ns) {
    static uint32_t word;
    struct timespec time = timespec_of(ns);
    syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &time, 0, 0);
    AFTER_CALL(ns);
}

static NOINLINE void wait_in_poll(uint64_t ns) {
    struct timespec time = timespec_of(ns);
    ppoll(0, 0, &time, 0);
    AFTER_CALL(ns);
}

static NOINLINE void wait_in_read(uint64_t ns) {
    char byte;
    if (read(pipe_ends[0], &byte, 1) != 1) exit(1);
    AFTER_CALL(ns);
}

static NOINLINE void wait_until_the_end(uint64_t ns) {
    struct timespec time = timespec_of(ns);
    nanosleep(&time, 0);
    AFTER_CALL(ns);
}

static NOINLINE void compute(uint64_t ns) { workload_spin(ns); }

static struct waiter waiters[] = {
    {.function = "wait_in_nanosleep", .wait = wait_in_nanosleep, .least_ns = 200000, .spread_ns = 4000000},
    {.function = "wait_in_futex", .wait = wait_in_futex, .least_ns = 500000, .spread_ns = 9000000},
    {.function = "wait_in_poll", .wait = wait_in_poll, .least_ns = 100000, .spread_ns = 1500000},
    {.function = "wait_in_read", .wait = wait_in_read, .spread_ns = 1},
    {.function = "wait_until_the_end", .wait = wait_until_the_end, .spread_ns = 1},
    {.function = "compute", .wait = compute, .spread_ns = 1},
};
#define WAITERS (int)(sizeof waiters / sizeof waiters[0])

static uint64_t now_ns(void) { return workload_clock_ns(CLOCK_MONOTONIC); }
static uint64_t on_cpu_ns(void) { return workload_clock_ns(CLOCK_THREAD_CPUTIME_ID); }

// Writes to the pipe at random intervals: on the other end is a waiter.
static void *feed(void *nothing) {
    unsigned seed = 7;
    for (;;) {
        struct timespec time = timespec_of(500000 + (uint64_t)rand_r(&seed) % 6000000);
        nanosleep(&time, 0);
        if (write(pipe_ends[1], "x", 1) != 1) exit(1);
    }
    return nothing;
}

static void *run(void *which) {
    struct waiter *waiter = which;
    uint64_t began_ns = now_ns(), on_cpu_before_ns = on_cpu_ns();
    unsigned seed = (unsigned)(waiter - waiters) + 1;
    char path[64];
    waiter->tid = (int)syscall(SYS_gettid);
    snprintf(path, sizeof path, "/proc/self/task/%d/schedstat", waiter->tid);
    int schedstat = open(path, O_RDONLY);
    uint64_t runnable_before_ns = workload_runnable_ns(schedstat);
    while (now_ns() < deadline_ns) {
        uint64_t ns = waiter->least_ns + (uint64_t)rand_r(&seed) % waiter->spread_ns;
        if (waiter->wait == wait_until_the_end) ns = deadline_ns - now_ns();
        uint64_t runnable = workload_runnable_ns(schedstat), start_ns = now_ns(), on_cpu = on_cpu_ns();
        waiter->wait(ns);
        on_cpu = on_cpu_ns() - on_cpu;
        uint64_t took_ns = now_ns() - start_ns;
        waiter->waited_ns += took_ns - on_cpu - (workload_runnable_ns(schedstat) - runnable);
        waiter->waits++;
    }
    waiter->runnable_ns = workload_runnable_ns(schedstat) - runnable_before_ns;
    waiter->on_cpu_ns = on_cpu_ns() - on_cpu_before_ns;
    waiter->wall_ns = now_ns() - began_ns;
    return 0;
}

int main(int argc, char **argv) {
    pthread_t threads[WAITERS], feeder;
    if (argc < 2 || argc > 3) return 2;
    int count = argc == 3 ? atoi(argv[2]) : WAITERS;
    if (count < 1 || count > WAITERS) return 2;
    workload_begin();
    deadline_ns = workload_deadline_ns(atof(argv[1]));
    if (pipe(pipe_ends) || pthread_create(&feeder, 0, feed, 0)) return 1;
    for (int i = 0; i < count; i++)
        if (pthread_create(&threads[i], 0, run, &waiters[i])) return 1;
    for (int i = 0; i < count; i++) pthread_join(threads[i], 0);
    printf("{\"threads\":[");
    for (int i = 0; i < count; i++) {
        struct waiter *waiter = &waiters[i];
        printf("%s{\"tid\":%d,\"function\":\"%s\",\"waits\":%llu,\"waited_ns\":%lld,\"wall_ns\":%llu,\"on_cpu_ns\":%llu,"
               "\"runnable_ns\":%llu}",
               i ? "," : "", waiter->tid, waiter->function, (unsigned long long)waiter->waits,
               (long long)waiter->waited_ns, (unsigned long long)waiter->wall_ns, (unsigned long long)waiter->on_cpu_ns,
               (unsigned long long)waiter->runnable_ns);
    }
    printf("]}\n");
    workload_report("\"run\"");
    return 0;
}
