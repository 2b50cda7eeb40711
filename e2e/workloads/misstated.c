// Computes in a function whose unwind information forgets a push: it says that the return address is where the saved
// register is.
// Usage: misstated SECONDS
#include "workload.h"

uint64_t forgetful(uint64_t rounds);

__asm__(".text\n"
        ".globl forgetful\n"
        ".type forgetful, @function\n"
        "forgetful:\n"
        "    .cfi_startproc\n"
        "    push %rbx\n"
        "    mov %rdi, %rbx\n"
        "1:  imul $31, %rax, %rax\n"
        "    dec %rbx\n"
        "    jnz 1b\n"
        "    pop %rbx\n"
        "    ret\n"
        "    .cfi_endproc\n"
        ".size forgetful, . - forgetful\n");

static NOINLINE uint64_t caller(uint64_t rounds) {
    uint64_t value = forgetful(rounds);
    AFTER_CALL(value);
    return value + 1;
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    workload_begin();
    uint64_t deadline_ns = workload_deadline_ns(atof(argv[1]));
    while (!workload_over(deadline_ns)) {
        uint64_t value = caller(1000000);
        AFTER_CALL(value);
    }
    workload_report("\"main\",\"caller\",\"forgetful\"");
    return 0;
}
