// One file that different pods run: the first argument says in which function it computes, which tells whose stack
// one is when nothing else does.
// Usage: tenant app|neighbour SECONDS          computes by itself
//        tenant app|neighbour SECONDS MILLIS   in children that take so much CPU time each, one after the other
//        tenant app|neighbour SECONDS idle     one time in a hundred milliseconds
// A line with a report comes at the end; `cpu_ns` is the time spent within the function.
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "workload.h"

static double child_ns;            // of one child; 0: no children
static int is_idle;
static uint64_t *children_cpu_ns;  // shared with them

static NOINLINE uint64_t burn(uint64_t value) {
    for (int i = 0; i < 20000; i++) {
        value += (uint64_t)i;
        AFTER_CALL(value);
    }
    return value;
}

static NOINLINE uint64_t work(uint64_t deadline_ns) {
    uint64_t value = 1;
    while (!workload_over(deadline_ns)) {
        if (!child_ns) {
            value = burn(value);
            if (is_idle) usleep(100000);
            continue;
        }
        pid_t child = fork();
        if (child < 0) exit(1);
        if (!child) {
            uint64_t spent_ns;
            do {
                value = burn(value);
                spent_ns = workload_clock_ns(CLOCK_PROCESS_CPUTIME_ID);
            } while ((double)spent_ns < child_ns);
            __atomic_fetch_add(children_cpu_ns, spent_ns, __ATOMIC_RELAXED);
            _exit(value == 42);
        }
        int status;
        if (waitpid(child, &status, 0) != child || status) exit(1);
    }
    return value;
}

static NOINLINE uint64_t of_the_app(uint64_t deadline_ns) {
    uint64_t value = work(deadline_ns);
    AFTER_CALL(value);
    return value + 1;
}

static NOINLINE uint64_t of_the_neighbour(uint64_t deadline_ns) {
    uint64_t value = work(deadline_ns);
    AFTER_CALL(value);
    return value + 2;
}

int main(int argc, char **argv) {
    if (argc != 3 && argc != 4) return 2;
    if (argc == 4) child_ns = atof(argv[3]) * 1e6;
    is_idle = argc == 4 && !child_ns;
    children_cpu_ns = mmap(NULL, sizeof *children_cpu_ns, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (children_cpu_ns == MAP_FAILED) return 1;
    workload_begin();
    int is_app = !strcmp(argv[1], "app");
    uint64_t start_ns = workload_clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    uint64_t deadline_ns = workload_deadline_ns(atof(argv[2]));
    uint64_t value = is_app ? of_the_app(deadline_ns) : of_the_neighbour(deadline_ns);
    uint64_t own_ns = workload_clock_ns(CLOCK_PROCESS_CPUTIME_ID) - start_ns;
    printf("{\"pid\":%d,\"cpu_ns\":%llu,\"rounds\":%llu,\"tids\":[],\"chain\":[\"main\",\"%s\",\"work\",\"burn\"]}\n",
           (int)getpid(), (unsigned long long)(own_ns + *children_cpu_ns), (unsigned long long)workload_rounds,
           is_app ? "of_the_app" : "of_the_neighbour");
    return value == 42;
}
