// Code of which neither a table nor its instructions tell where its frame is, since it takes its stack pointer from memory: only
// frame pointers are left, and lead past a caller where the code doesn't set them up.
//
// `skips` and `misses` leave their caller's frame pointer alone; what that leads to was called before their caller was. Of
// `skips` that caller lies below, within what could be one function, of `misses` above. `keeps` sets its frame pointer up.
#include "workload.h"

// Loses its stack pointer, and spins.
#define LOST                     \
    "mov %rsp, lost_sp(%rip)\n"  \
    "mov lost_sp(%rip), %rsp\n"  \
    "mov $1000000, %ecx\n"       \
    "0: dec %ecx\n"              \
    "jnz 0b\n"
#define CALLS(name, callee)                                                                        \
    ".globl " name "\n.type " name ", @function\n" name ":\n"                                      \
    "push %rbp\nmov %rsp, %rbp\ncall " callee "\nnop\npop %rbp\nret\n.size " name ", . - " name "\n"
#define FUNCTION(name, body) \
    ".globl " name "\n.type " name ", @function\n" name ":\n" body "ret\n.size " name ", . - " name "\n"

__asm__(".lcomm lost_sp, 8\n.text\n"
        FUNCTION("misses", LOST)
        CALLS("above", "misses")
        CALLS("below", "skips")
        FUNCTION("skips", LOST)
        CALLS("around", "keeps")
        FUNCTION("keeps", "push %rbp\nmov %rsp, %rbp\n" LOST "pop %rbp\n"));

void above(void);
void below(void);
void around(void);

int main(int argc, char **argv) {
    workload_begin();
    uint64_t deadline_ns = workload_deadline_ns(argc > 1 ? atof(argv[1]) : 1);
    while (!workload_over(deadline_ns)) {
        above();
        below();
        around();
    }
    workload_report("\"main\"");
    return 0;
}
