// Works for about five milliseconds of CPU time on a stack that belongs to no thread, as runtimes do, and says nothing.
// Frame pointers lead from there to the stack that it was entered from.
#include "workload.h"

#include <sys/mman.h>

#define STACK_BYTES 65536

static uint64_t value = 1;

static NOINLINE void burn(void) {
    for (int i = 0; i < 20000; i++) {
        value += (uint64_t)i;
        AFTER_CALL(value);
    }
}

static NOINLINE void aside(void) {
    while (workload_clock_ns(CLOCK_PROCESS_CPUTIME_ID) < 5000000) burn();
}

static NOINLINE void enter(char *stack_end) {
    __asm__ volatile("mov %%rsp, %%rbx\n\tmov %0, %%rsp\n\tcall *%1\n\tmov %%rbx, %%rsp"
                     : "+r"(stack_end)
                     : "r"(aside)
                     : "rbx", "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "memory", "cc");
}

int main(void) {
    char *stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (stack == MAP_FAILED) return 1;
    enter(stack + STACK_BYTES);
    return value == 42;
}
