// Makes new code all the time, and tells in its map of code ("perf map") what each function is called before it runs it.
//
// makes_code
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "loop.h"

// Each function has a page of its own: the first is here.
static char *const FIRST = (char *)0x300000000000;
enum { PAGE = 4096, FUNCTIONS = 4000, FUNCTION_NS = 20000000 };

static long now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000 + now.tv_nsec;
}

int main(void) {
    char path[64];
    snprintf(path, sizeof path, "/tmp/perf-%d.map", getpid());
    FILE *map = fopen(path, "w");
    if (!map) return 1;
    for (int number = 0; number < FUNCTIONS; number++) {
        char *code = FIRST + (long)number * PAGE;
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
        if (mmap(code, PAGE, PROT_READ | PROT_WRITE, flags, -1, 0) != code) return 1;
        memcpy(code, LOOP, sizeof LOOP);
        if (mprotect(code, PAGE, PROT_READ | PROT_EXEC) != 0) return 1;
        fprintf(map, "%lx %zx made_%d\n", (long)code, sizeof LOOP, number);
        fflush(map);
        for (long until = now_ns() + FUNCTION_NS; now_ns() < until;) ((void (*)(void))code)();
    }
    return 0;
}
