// Maps the code of files and runs it, whatever else they contain.
//
// maps_code MAPPINGS FILE...: each file's page at CODE_OFFSET is mapped MAPPINGS times, and one process per file runs the
// first of these pages.
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { PAGE = 4096, CODE_OFFSET = 4096 };

static void run(const char *path, long mappings) {
    int file = open(path, O_RDONLY);
    void (*code)(void) = NULL;
    for (long made = 0; made < mappings; made++) {
        // The same page again and again: the kernel merges only what continues in the file as well.
        void *page = mmap(NULL, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, CODE_OFFSET);
        if (page == MAP_FAILED) break;
        if (!code) *(void **)&code = page;
    }
    if (!code) exit(1);
    code();
}

int main(int count, char **arguments) {
    if (count < 3) return 2;
    nice(10); // whoever reads what they have comes first
    for (int at = 3; at < count; at++) {
        if (fork() == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            run(arguments[at], atol(arguments[1]));
        }
    }
    run(arguments[2], atol(arguments[1]));
    return 1;
}
