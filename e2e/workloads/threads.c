// THREADS threads that do nothing but compute, the main thread waiting for them.
// Usage: threads SECONDS THREADS
#include <pthread.h>
#include <sys/syscall.h>

#include "workload.h"

enum { MAX_THREADS = 256 };

static uint64_t deadline_ns;
static int tids[MAX_THREADS];

static NOINLINE uint64_t burn(uint64_t value) { return workload_spin(value); }

static NOINLINE void *worker(void *slot) {
    *(int *)slot = (int)syscall(SYS_gettid);
    uint64_t value = 1;
    while (!workload_over(deadline_ns)) value = burn(value);
    return value == 42 ? slot : NULL;
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    int count = atoi(argv[2]);
    if (count < 1 || count > MAX_THREADS) return 2;
    pthread_t threads[MAX_THREADS];
    workload_begin();
    deadline_ns = workload_deadline_ns(atof(argv[1]));
    for (int i = 0; i < count; i++) {
        if (pthread_create(&threads[i], NULL, worker, &tids[i])) return 1;
    }
    for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
    workload_report_begin(tids, count);
    printf("\"worker\",\"burn\"");
    workload_report_end();
    return 0;
}
