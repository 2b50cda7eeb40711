// THREADS threads that compute in two functions by turns, and write down by the clock when each turn was.
// Usage: turns SECONDS THREADS FILE
//
// A line for each turn: thread id, name of the function, CLOCK_REALTIME in nanoseconds before and after it.
#include <pthread.h>
#include <sys/syscall.h>

#include "workload.h"

enum { MAX_THREADS = 16, SPINS = 20 };

static uint64_t deadline_ns;
static int tids[MAX_THREADS];
static FILE *turns;

static NOINLINE uint64_t turn_left(uint64_t value) {
    for (int i = 0; i < SPINS; i++) value = workload_spin(value + 1);
    AFTER_CALL(value);
    return value;
}

static NOINLINE uint64_t turn_right(uint64_t value) {
    for (int i = 0; i < SPINS; i++) value = workload_spin(value + 2);
    AFTER_CALL(value);
    return value;
}

static NOINLINE void *worker(void *slot) {
    *(int *)slot = (int)syscall(SYS_gettid);
    uint64_t value = 1;
    for (int is_left = 1; !workload_over(deadline_ns); is_left = !is_left) {
        uint64_t before_ns = workload_clock_ns(CLOCK_REALTIME);
        value = is_left ? turn_left(value) : turn_right(value);
        uint64_t after_ns = workload_clock_ns(CLOCK_REALTIME);
        fprintf(turns, "%d turn_%s %llu %llu\n", *(int *)slot, is_left ? "left" : "right",
                (unsigned long long)before_ns, (unsigned long long)after_ns);
    }
    return value == 42 ? slot : NULL;
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    int count = atoi(argv[2]);
    if (count < 1 || count > MAX_THREADS || !(turns = fopen(argv[3], "w"))) return 2;
    pthread_t threads[MAX_THREADS];
    workload_begin();
    deadline_ns = workload_deadline_ns(atof(argv[1]));
    for (int i = 0; i < count; i++) {
        if (pthread_create(&threads[i], NULL, worker, &tids[i])) return 1;
    }
    for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
    if (fclose(turns)) return 1;
    workload_report_begin(tids, count);
    printf("\"worker\"");
    workload_report_end();
    return 0;
}
