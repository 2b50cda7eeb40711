// Has many children: first COUNT that end at once, then, for SECONDS, one after the other that computes for 20 ms.
// Usage: forks COUNT SECONDS
// A line comes when the COUNT are over.
#include <sys/wait.h>

#include "workload.h"

static NOINLINE uint64_t of_a_late_child(void) {
    uint64_t value = 1;
    while (workload_clock_ns(CLOCK_PROCESS_CPUTIME_ID) < 20000000) {
        for (int i = 0; i < 20000; i++) {
            value += (uint64_t)i;
            AFTER_CALL(value);
        }
    }
    return value;
}

static void wait_for(pid_t child) {
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child || status) exit(1);
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    for (int left = atoi(argv[1]); left > 0; left--) {
        pid_t child = fork();
        if (!child) _exit(0);
        wait_for(child);
    }
    printf("{\"forked\":%s}\n", argv[1]);
    fflush(stdout);
    uint64_t deadline_ns = workload_deadline_ns(atof(argv[2]));
    while (!workload_over(deadline_ns)) {
        pid_t child = fork();
        if (!child) _exit(of_a_late_child() == 42);
        wait_for(child);
    }
    return 0;
}
