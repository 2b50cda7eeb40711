// What is read of CPython 3.14, in a program whose evaluation loop consists of tail calls. The compiler has put a copy of the
// loop's function into another one, which makes the most frequent of its calls directly, and goes on behind it.
typedef unsigned long u64;

__attribute__((section(".PyRuntime"))) u64 _PyRuntime[400] = {
    0x7970677562656478ul, // xdebugpy
    0x030e06f0,
    0,
    [22] = 328, 0, 8, 16, 0x48, 0x98, 0xa0, 0xf8, 0x20,
    [31] = 88, 8, 0, 0x38, 80, 0x4a,
    [39] = 208, 0x70, 0x78, 0x80, 0x88, 0x44, 0x34, 0x60, 0x68, 0xd0,
    [74] = 40, 16, 32, 64, 32, 16, 40,
};
const u64 Py_Version = 0x030e06f0;
static __thread void *state;
void *_PyThreadState_GetCurrent(void) { return state; }
void set(void *to) { state = to; }

static void handler(void) {}
void (*const table[256])(void) = { handler };

__asm__(
    ".globl _PyEval_EvalFrameDefault\n"
    ".type _PyEval_EvalFrameDefault, @function\n"
    "_PyEval_EvalFrameDefault:\n"
    ".cfi_startproc\n"
    "  push %rbx\n"
    ".cfi_def_cfa_offset 16\n"
    "  mov %r12, 0x48(%r14)\n"
    "  call *table(,%rax,8)\n"
    "  pop %rbx\n"
    ".cfi_def_cfa_offset 8\n"
    "  ret\n"
    ".cfi_endproc\n"
    ".size _PyEval_EvalFrameDefault, . - _PyEval_EvalFrameDefault\n"

    ".skip 256\n"
    ".cfi_startproc\n"
    "copy:\n"
    "  push %rbx\n"
    ".cfi_def_cfa_offset 16\n"
    "  mov %r12, 0x48(%rdi)\n" // of another structure, long before
    "  call set\n"
    "  mov %r12, 0x48(%r14)\n"
    "  test %eax, %eax\n"      // 2 bytes
    "  jne .Ltraced\n"         // 6
    ".Lgo:\n"
    "  cmpq $handler, table(,%rax,8)\n" // 12
    "  jne .Lother\n"          // 2
    "  call handler\n"         // 5: 27 in all
    ".Lreturned:\n"
    "  call set\n"
    "  pop %rbx\n"
    "  ret\n"
    ".Lother:\n"
    "  call *table(,%rax,8)\n" // 7
    "  jmp .Lreturned\n"
    ".cfi_endproc\n"

    ".skip 256\n"
    ".cfi_startproc\n"
    ".cfi_def_cfa_offset 16\n"
    ".Ltraced:\n"
    "  call set\n"             // 5
    "  jmp .Lgo\n"             // 5
    ".cfi_endproc\n"
    ".skip 256\n"
);
void _start(void) {}
