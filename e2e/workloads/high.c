// Computes in a copy of its own code and on a stack that are both mapped above 2^48, where kernels for arm64 with 52-bit addresses
// map what asks for it; elsewhere, wherever the kernel maps them.
// Usage: high SECONDS
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#include "workload.h"

#define CODE_AT (1ull << 50)
#define STACK_AT (3ull << 49)
#define STACK_BYTES (1ull << 20)

static uint64_t deadline_ns;
static uint64_t (*outer_copy)(uint64_t);

// These call each other only, relative to their own addresses: they run wherever their segment is mapped.
static NOINLINE uint64_t burn(uint64_t value) { return workload_spin(value); }

static NOINLINE uint64_t inner(uint64_t value) {
    uint64_t next = burn(value + 1);
    AFTER_CALL(next);
    return next + 1;
}

static NOINLINE uint64_t outer(uint64_t value) {
    uint64_t next = inner(value + 1);
    AFTER_CALL(next);
    return next + 1;
}

static NOINLINE uint64_t compute(void) {
    uint64_t value = 1;
    while (!workload_over(deadline_ns)) value = outer_copy(value);
    return value;
}

// Two names, to tell by the stack which it was.
static NOINLINE void *above(void *unused) {
    uint64_t value = compute();
    AFTER_CALL(value);
    return value == 42 ? unused : NULL;
}

static NOINLINE void *below(void *unused) {
    uint64_t value = compute();
    AFTER_CALL(value);
    return value == 43 ? unused : NULL;
}

// Maps the segment that `outer` is in once more; returns its address there.
static uint64_t copy_of_outer(void) {
    unsigned long start, end, offset, wanted = (unsigned long)outer;
    char line[512], permissions[5];
    FILE *maps = fopen("/proc/self/maps", "r");
    int program = open("/proc/self/exe", O_RDONLY);
    if (!maps || program < 0) return 0;
    while (fgets(line, sizeof line, maps)) {
        if (sscanf(line, "%lx-%lx %4s %lx", &start, &end, permissions, &offset) != 4 || wanted < start || wanted >= end)
            continue;
        char *copy = mmap((void *)CODE_AT, end - start, PROT_READ | PROT_EXEC, MAP_PRIVATE, program, (off_t)offset);
        return copy == MAP_FAILED ? 0 : (uint64_t)copy + (wanted - start);
    }
    return 0;
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    uint64_t code = copy_of_outer();
    void *stack = mmap((void *)STACK_AT, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pthread_attr_t attributes;
    pthread_t thread;
    if (!code || stack == MAP_FAILED || pthread_attr_init(&attributes) ||
        pthread_attr_setstack(&attributes, stack, STACK_BYTES))
        return 1;
    outer_copy = (uint64_t(*)(uint64_t))code;
    int is_above = code >> 48 && (uint64_t)stack >> 48;
    workload_begin();
    deadline_ns = workload_deadline_ns(atof(argv[1]));
    if (pthread_create(&thread, &attributes, is_above ? above : below, NULL) || pthread_join(thread, NULL)) return 1;
    workload_report(is_above ? "\"above\",\"compute\",\"outer\",\"inner\",\"burn\""
                             : "\"below\",\"compute\",\"outer\",\"inner\",\"burn\"");
    return 0;
}
