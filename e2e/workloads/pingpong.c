// Two processes that send each other a byte through pipes, again and again: nothing but system calls and switches.
// Usage: pingpong SECONDS
// `rounds` of its report is how often the byte came back.
#include "workload.h"

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    int there[2], back[2];
    char byte = 0;
    if (pipe(there) || pipe(back)) return 1;
    pid_t child = fork();
    if (child < 0) return 1;
    if (!child) {
        close(there[1]);
        while (read(there[0], &byte, 1) == 1 && write(back[1], &byte, 1) == 1);
        _exit(0);
    }
    workload_begin();
    uint64_t deadline_ns = workload_deadline_ns(atof(argv[1]));
    while (!workload_over(deadline_ns))
        if (write(there[1], &byte, 1) != 1 || read(back[0], &byte, 1) != 1) return 1;
    workload_report("\"main\"");
    return 0;
}
