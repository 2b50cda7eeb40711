// Touches new memory in two functions, one of them three times as much as the other, and says how many page faults the kernel
// counted in each.
// Usage: faults ROUNDS PAGES PAUSE_US
//
// A line for each function: its name, its minor and its major faults. It pauses after each 100 pages, so that each fault can
// have an event.
#define _GNU_SOURCE
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "workload.h"

enum { PAGE_BYTES = 4096, PAGES_PER_PAUSE = 100, START_US = 500000 };

static struct rusage usage(void) {
    struct rusage now;
    getrusage(RUSAGE_SELF, &now);
    return now;
}

struct grown {
    long minor, major;
};

static inline __attribute__((always_inline)) void touch(struct grown *grown, long pages, useconds_t pause_us) {
    // Memory of its own for each call; small pages, so that each has a fault.
    char *memory = mmap(NULL, pages * PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || madvise(memory, pages * PAGE_BYTES, MADV_NOHUGEPAGE)) _exit(1);
    struct rusage before = usage();
    for (long page = 0; page < pages; page++) {
        if (pause_us && page % PAGES_PER_PAUSE == 0) usleep(pause_us);
        ((volatile char *)memory)[page * PAGE_BYTES] = 1;
    }
    struct rusage after = usage();
    grown->minor += after.ru_minflt - before.ru_minflt;
    grown->major += after.ru_majflt - before.ru_majflt;
    munmap(memory, pages * PAGE_BYTES);
}

static NOINLINE void grow_small(struct grown *grown, long pages, useconds_t pause_us) {
    touch(grown, pages, pause_us);
}

static NOINLINE void grow_large(struct grown *grown, long pages, useconds_t pause_us) {
    touch(grown, 3 * pages, pause_us);
}

int main(int count, char **arguments) {
    if (count < 4) return 2;
    long rounds = atol(arguments[1]), pages = atol(arguments[2]);
    useconds_t pause_us = atol(arguments[3]);
    struct grown small = {0}, large = {0};
    // By then a profiler that started it knows its file.
    if (pause_us) usleep(START_US);
    for (long round = 0; round < rounds; round++) {
        grow_small(&small, pages, pause_us);
        grow_large(&large, pages, pause_us);
    }
    printf("grow_small %ld %ld\ngrow_large %ld %ld\n", small.minor, small.major, large.minor, large.major);
    return 0;
}
