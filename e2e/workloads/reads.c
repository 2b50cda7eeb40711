// Reads from a file that costs the kernel much and the program nothing: most samples find the thread in the kernel.
// Usage: reads SECONDS [BYTES of each; 0: calls that do next to nothing instead]
#include <fcntl.h>
#include <sys/syscall.h>

#include "workload.h"

static char buffer[1 << 16];

static size_t bytes = sizeof buffer;

static NOINLINE uint64_t fetch(int file) {
    uint64_t sum = 0;
    for (int i = 0; i < 100; i++) sum += (uint64_t)(bytes ? read(file, buffer, bytes) : syscall(SYS_getpid));
    AFTER_CALL(sum);
    return sum;
}

static NOINLINE uint64_t repeat(int file) {
    uint64_t sum = fetch(file);
    AFTER_CALL(sum);
    return sum + 1;
}

int main(int argc, char **argv) {
    if (argc < 2 || argc > 3) return 2;
    if (argc == 3) bytes = (size_t)atol(argv[2]);
    if (bytes > sizeof buffer) return 2;
    int file = open("/dev/zero", O_RDONLY);
    if (file < 0) return 1;
    workload_begin();
    uint64_t deadline_ns = workload_deadline_ns(atof(argv[1]));
    uint64_t sum = 0;
    while (!workload_over(deadline_ns)) sum += repeat(file);
    workload_report("\"main\",\"repeat\",\"fetch\"");
    return sum == 42;
}
