// Runs PROGRAM COUNT times, one after the other, and reports the CPU time of all of them together: user and
// system, as the kernel accounts it to a parent (getrusage).
// Usage: spawner PROGRAM COUNT [each | ARGUMENT]
// With `each` it runs PROGRAM.0, PROGRAM.1 and so on instead.
#include <spawn.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "workload.h"

extern char **environ;

static uint64_t timeval_ns(struct timeval time) {
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_usec * 1000u;
}

int main(int argc, char **argv) {
    if (argc != 3 && argc != 4) return 2;
    int count = atoi(argv[2]);
    char path[4096];
    int each = argc == 4 && !strcmp(argv[3], "each");
    char *child_argv[] = {path, argc == 4 && !each ? argv[3] : NULL, NULL};
    workload_begin();
    for (int i = 0; i < count; i++) {
        pid_t child;
        int status;
        if (each) snprintf(path, sizeof path, "%s.%d", argv[1], i);
        else snprintf(path, sizeof path, "%s", argv[1]);
        if (posix_spawn(&child, path, NULL, NULL, child_argv, environ)) return 1;
        if (waitpid(child, &status, 0) != child || status) return 1;
    }
    struct rusage children;
    getrusage(RUSAGE_CHILDREN, &children);
    uint64_t cpu_ns = timeval_ns(children.ru_utime) + timeval_ns(children.ru_stime);
    printf("{\"pid\":%d,\"cpu_ns\":%llu,\"tids\":[],\"chain\":[\"main\",\"burn\"]}\n", (int)getpid(),
           (unsigned long long)cpu_ns);
    return 0;
}
