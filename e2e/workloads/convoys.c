// Three locks, each with threads that hold it for a known time and then wait for it again, in a function of its own; and
// threads that wait in conditions and semaphores, which are futexes too. In the end each function says how often and for how
// long its threads have waited.
// Usage: convoys mutex|rwlock|pi SECONDS
//        convoys held SECONDS: one lock is held for that time, and a thread waits for it for all of it
//
// Prints, before the report: {"locks":[{"function":"wait_for_red","waits":9,"waited_ns":1,"address":"7f00"},...]}.
// `waits` is the number of times that a thread gave up its CPU while it waited, by getrusage(2); `waited_ns` is the time of the
// waits by CLOCK_MONOTONIC, without the time for which the thread ran or was runnable meanwhile.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <string.h>
#include <sys/resource.h>

#include "workload.h"

#define CONVOYS 3
#define THREADS_MAX 4

enum form { MUTEX, RWLOCK, PI };

struct convoy {
    const char *function;
    void (*wait)(struct convoy *convoy);
    int threads;
    uint64_t hold_us, think_us;
    pthread_mutex_t mutex;
    pthread_rwlock_t rwlock;
    uint64_t waits, waited_ns; // under the lock
};

static enum form form;
static uint64_t deadline_ns;

static NOINLINE void wait_for(struct convoy *convoy) {
    int error = form == RWLOCK ? pthread_rwlock_wrlock(&convoy->rwlock) : pthread_mutex_lock(&convoy->mutex);
    if (error) exit(1);
    AFTER_CALL(convoy);
}

static NOINLINE void leave(struct convoy *convoy) {
    int error = form == RWLOCK ? pthread_rwlock_unlock(&convoy->rwlock) : pthread_mutex_unlock(&convoy->mutex);
    if (error) exit(1);
}

static NOINLINE void wait_for_red(struct convoy *convoy) {
    wait_for(convoy);
    AFTER_CALL(convoy);
}

static NOINLINE void wait_for_green(struct convoy *convoy) {
    wait_for(convoy);
    AFTER_CALL(convoy);
}

static NOINLINE void wait_for_blue(struct convoy *convoy) {
    wait_for(convoy);
    AFTER_CALL(convoy);
}

// With all threads always in the convoy, the waits of a second would be `threads - 1` seconds.
static struct convoy convoys[CONVOYS] = {
    {.function = "wait_for_red", .wait = wait_for_red, .threads = 4, .hold_us = 6000, .think_us = 9000},
    {.function = "wait_for_green", .wait = wait_for_green, .threads = 3, .hold_us = 3000, .think_us = 5000},
    {.function = "wait_for_blue", .wait = wait_for_blue, .threads = 2, .hold_us = 2000, .think_us = 4000},
};

static uint64_t now_ns(void) { return workload_clock_ns(CLOCK_MONOTONIC); }
static uint64_t on_cpu_ns(void) { return workload_clock_ns(CLOCK_THREAD_CPUTIME_ID); }

static uint64_t voluntary_switches(void) {
    struct rusage usage;
    if (getrusage(RUSAGE_THREAD, &usage)) exit(1);
    return (uint64_t)usage.ru_nvcsw;
}

static void *run(void *which) {
    struct convoy *convoy = which;
    int schedstat = open("/proc/thread-self/schedstat", O_RDONLY);
    while (now_ns() < deadline_ns) {
        uint64_t switches = voluntary_switches(), runnable = workload_runnable_ns(schedstat);
        uint64_t start_ns = now_ns(), on_cpu = on_cpu_ns();
        convoy->wait(convoy);
        on_cpu = on_cpu_ns() - on_cpu;
        uint64_t took_ns = now_ns() - start_ns;
        switches = voluntary_switches() - switches;
        convoy->waits += switches;
        if (switches) convoy->waited_ns += took_ns - on_cpu - (workload_runnable_ns(schedstat) - runnable);
        usleep((useconds_t)convoy->hold_us);
        leave(convoy);
        usleep((useconds_t)convoy->think_us);
    }
    return 0;
}

static NOINLINE void *wait_for_a_condition(void *nothing) {
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
    pthread_mutex_lock(&mutex);
    while (now_ns() < deadline_ns) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += 5000000;
        if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
        pthread_cond_timedwait(&condition, &mutex, &until);
    }
    return nothing;
}

static NOINLINE void *wait_for_a_semaphore(void *nothing) {
    sem_t semaphore;
    sem_init(&semaphore, 0, 0);
    while (now_ns() < deadline_ns) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += 5000000;
        if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
        sem_timedwait(&semaphore, &until);
    }
    return nothing;
}

static void *wait_for_held(void *convoy) {
    wait_for_red(convoy);
    leave(convoy);
    return 0;
}

static int hold(double seconds) {
    struct convoy *convoy = &convoys[0];
    pthread_t waiting;
    workload_begin();
    if (pthread_mutex_lock(&convoy->mutex) || pthread_create(&waiting, 0, wait_for_held, convoy)) return 1;
    usleep((useconds_t)(seconds * 1e6));
    leave(convoy);
    pthread_join(waiting, 0);
    workload_report("\"wait_for_held\"");
    return 0;
}

int main(int argc, char **argv) {
    pthread_t threads[CONVOYS * THREADS_MAX], idle[2];
    pthread_mutexattr_t attributes;
    int started = 0;
    if (argc != 3) return 2;
    if (!strcmp(argv[1], "held")) return hold(atof(argv[2]));
    form = !strcmp(argv[1], "rwlock") ? RWLOCK : !strcmp(argv[1], "pi") ? PI : MUTEX;
    workload_begin();
    deadline_ns = workload_deadline_ns(atof(argv[2]));
    pthread_mutexattr_init(&attributes);
    if (form == PI && pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT)) return 1;
    for (int i = 0; i < CONVOYS; i++) {
        struct convoy *convoy = &convoys[i];
        if (pthread_mutex_init(&convoy->mutex, &attributes) || pthread_rwlock_init(&convoy->rwlock, 0)) return 1;
        for (int j = 0; j < convoy->threads; j++)
            if (pthread_create(&threads[started++], 0, run, convoy)) return 1;
    }
    if (pthread_create(&idle[0], 0, wait_for_a_condition, 0) || pthread_create(&idle[1], 0, wait_for_a_semaphore, 0))
        return 1;
    for (int i = 0; i < started; i++) pthread_join(threads[i], 0);
    for (int i = 0; i < 2; i++) pthread_join(idle[i], 0);
    printf("{\"locks\":[");
    for (int i = 0; i < CONVOYS; i++) {
        struct convoy *convoy = &convoys[i];
        void *address = form == RWLOCK ? (void *)&convoy->rwlock : (void *)&convoy->mutex;
        printf("%s{\"function\":\"%s\",\"waits\":%llu,\"waited_ns\":%lld,\"address\":\"%llx\"}", i ? "," : "",
               convoy->function, (unsigned long long)convoy->waits, (long long)convoy->waited_ns,
               (unsigned long long)(uintptr_t)address);
    }
    printf("]}\n");
    workload_report("\"run\"");
    return 0;
}
