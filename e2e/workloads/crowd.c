// Much of one thing.
// Usage: crowd busy N SECONDS      N processes that compute
//        crowd idle N SECONDS      one process that computes, and N that sleep, each of which ran exec
//        crowd execs N SECONDS     one process that computes for 1 ms and ends, N times a second or as often as can be
//        crowd mappings N SECONDS  one process that computes, with N executable mappings of one file
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "workload.h"

extern char **environ;

static char self[PATH_MAX];

static NOINLINE uint64_t burn(uint64_t value) {
    for (int i = 0; i < 20000; i++) {
        value += (uint64_t)i;
        AFTER_CALL(value);
    }
    return value;
}

static NOINLINE void compute(double seconds) {
    static uint64_t value = 1;
    for (uint64_t deadline_ns = workload_deadline_ns(seconds); !workload_over(deadline_ns);) value = burn(value);
    AFTER_CALL(value);
}

static pid_t spawn(const char *mode, const char *seconds) {
    char *arguments[] = {self, (char *)mode, "1", (char *)seconds, NULL};
    pid_t child;
    if (posix_spawn(&child, self, NULL, NULL, arguments, environ)) exit(1);
    return child;
}

static void busy(int count, double seconds) {
    for (int i = 1; i < count; i++)
        if (fork() == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            compute(seconds);
            _exit(0);
        }
    compute(seconds);
    while (wait(NULL) > 0);
}

static void idle(int count, const char *seconds) {
    for (int i = 0; i < count; i++) spawn("sleep", seconds);
    compute(atof(seconds));
    while (wait(NULL) > 0);
}

static void execs(int a_second, double seconds) {
    uint64_t start_ns = workload_clock_ns(CLOCK_MONOTONIC), done = 0;
    uint64_t deadline_ns = workload_deadline_ns(seconds);
    while (!workload_over(deadline_ns)) {
        uint64_t due = (workload_clock_ns(CLOCK_MONOTONIC) - start_ns) * (uint64_t)a_second / 1000000000u;
        if (done > due) usleep(500);
        else if (waitpid(spawn("compute", "0.001"), NULL, 0) > 0) done++;
    }
    fprintf(stderr, "%llu execs\n", (unsigned long long)done);
}

static void mappings(int count, double seconds) {
    int file = open(self, O_RDONLY | O_CLOEXEC);
    for (int i = 0; i < count; i++)
        if (mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0) == MAP_FAILED) exit(3);
    compute(seconds);
}

int main(int argc, char **argv) {
    if (argc != 4 || readlink("/proc/self/exe", self, sizeof self - 1) < 0) return 2;
    const char *mode = argv[1];
    int count = atoi(argv[2]);
    double seconds = atof(argv[3]);
    if (!strcmp(mode, "sleep")) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        usleep((useconds_t)(seconds * 1e6));
    } else if (!strcmp(mode, "compute")) compute(seconds);
    else if (!strcmp(mode, "busy")) busy(count, seconds);
    else if (!strcmp(mode, "idle")) idle(count, argv[3]);
    else if (!strcmp(mode, "execs")) execs(count, seconds);
    else if (!strcmp(mode, "mappings")) mappings(count, seconds);
    else return 2;
    return 0;
}
