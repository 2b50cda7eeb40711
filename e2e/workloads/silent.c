// Computes, while some of its memory is never given to whoever reads it: userfaultfd(2) has each reader wait for an answer
// that does not come.
// Usage: silent SECONDS context|names
//
// context: the page of a process context (OTEP 4719). names: what leads debuggers to the names of code that it makes, some of
// which it runs.
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "workload.h"

enum { PAGE = 4096 };

// Gives what is there away: from now on nobody gets it.
static int silence(void *start, size_t bytes) {
    // Kept open until the end: with it the promise of an answer would go.
    int faults = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
    struct uffdio_api api = {.api = UFFD_API};
    struct uffdio_register range = {
        .range = {.start = (uintptr_t)start, .len = bytes},
        .mode = UFFDIO_REGISTER_MODE_MISSING,
    };
    if (faults < 0 || ioctl(faults, UFFDIO_API, &api)) return -1;
    if (madvise(start, bytes, MADV_DONTNEED)) return -1;
    return ioctl(faults, UFFDIO_REGISTER, &range);
}

static int silence_context(void) {
    int file = memfd_create("OTEL_CTX", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, PAGE)) return -1;
    void *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    return page == MAP_FAILED ? -1 : silence(page, PAGE);
}

// What debuggers look for (GDB's JIT interface), alone on its pages.
struct descriptor {
    char bytes[PAGE];
} __jit_debug_descriptor __attribute__((aligned(PAGE)));

// mov $500000, %ecx; 1: dec %ecx; jnz 1b; ret
static const unsigned char LOOP[] = {0xb9, 0x20, 0xa1, 0x07, 0x00, 0xff, 0xc9, 0x75, 0xfc, 0xc3};

static uint64_t none(uint64_t value) { return value; }
static void *made = (void *)none;

static int silence_names(void) {
    void *code = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (code == MAP_FAILED) return -1;
    memcpy(code, LOOP, sizeof LOOP);
    if (mprotect(code, PAGE, PROT_READ | PROT_EXEC)) return -1;
    made = code;
    return silence(&__jit_debug_descriptor, PAGE);
}

static NOINLINE uint64_t burn(uint64_t value) {
    ((uint64_t (*)(uint64_t))made)(value);
    return workload_spin(value);
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    if (strcmp(argv[2], "context") ? silence_names() : silence_context()) {
        perror("silent");
        return 1;
    }
    workload_begin();
    uint64_t deadline_ns = workload_deadline_ns(atof(argv[1])), value = 1;
    while (!workload_over(deadline_ns)) value = burn(value);
    if (value == 42) return 3;
    workload_report("\"main\",\"burn\"");
    return 0;
}
