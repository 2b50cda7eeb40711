// Runs code of its own making at a known place, and writes its perf map only on request.
//
// runs_code [NAME]: the name that the map has for it.
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "loop.h"

static char *const CODE = (char *)0x300000000000;
enum { PAGE = 4096 };

int main(int count, char **arguments) {
    nice(5); // a dozen of them compute at once: whoever reads what they have comes first
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
    if (mmap(CODE, PAGE, PROT_READ | PROT_WRITE, flags, -1, 0) != CODE) return 1;
    memcpy(CODE, LOOP, sizeof LOOP);
    if (mprotect(CODE, PAGE, PROT_READ | PROT_EXEC) != 0) return 1;
    if (count > 1) {
        umask(022);
        char path[64];
        snprintf(path, sizeof path, "/tmp/perf-%d.map", getpid());
        FILE *map = fopen(path, "w");
        if (!map || fprintf(map, "%lx %zx %s\n", (long)CODE, sizeof LOOP, arguments[1]) < 0 || fclose(map)) return 1;
    }
    puts("ready");
    fflush(stdout);
    for (;;) ((void (*)(void))CODE)();
}
