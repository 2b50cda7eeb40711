// What is read of CPython 3.13, in a file whose evaluation loop the compiler has split into three parts. The parts have no
// symbols; the functions that it calls last have none either, and are not parts of it.
typedef unsigned long u64;

__attribute__((section(".PyRuntime"))) u64 _PyRuntime[300] = {
    0x7970677562656478ul, // xdebugpy
    0x030d00f0,
    0,
    [19] = 328, 0, 8, 16, 0x48, 0x98, 0xa0, 0xf8, 0x20,
    [28] = 80, 8, 0, 0x38, 72, 0x46,
    [34] = 208, 0x70, 0x78, 0x80, 0x88, 0x44, 0x34, 0x60, 0x68, 0xc8,
    [64] = 40, 16, 32, 64, 32, 16, 40,
};
const u64 Py_Version = 0x030d00f0;
static __thread void *state;
void *_PyThreadState_GetCurrent(void) { return state; }
void set(void *to) { state = to; }

__asm__(
    ".globl _PyEval_EvalFrameDefault\n"
    ".type _PyEval_EvalFrameDefault, @function\n"
    "_PyEval_EvalFrameDefault:\n"
    ".cfi_startproc\n"
    "  push %rbx\n"
    ".cfi_def_cfa_offset 16\n"
    "  cmp $1, %edi\n"
    "  jne .Lcold\n"
    "  pop %rbx\n"
    ".cfi_def_cfa_offset 8\n"
    "  je .Lcalled\n"
    "  jmp .Lcalled_last\n"
    ".cfi_endproc\n"
    ".size _PyEval_EvalFrameDefault, . - _PyEval_EvalFrameDefault\n"

    ".skip 256\n"
    ".cfi_startproc\n"
    ".cfi_def_cfa_offset 16\n"
    ".Lcold:\n"
    "  test %edi, %edi\n"
    "  jne .Lcolder\n"
    "  pop %rbx\n"
    ".cfi_def_cfa_offset 8\n"
    "  ret\n"
    ".cfi_endproc\n"

    ".skip 256\n"
    ".cfi_startproc\n"
    ".cfi_def_cfa_offset 16\n"
    "  ud2\n"
    ".Lcolder:\n"
    "  pop %rbx\n"
    ".cfi_def_cfa_offset 8\n"
    "  ret\n"
    ".cfi_endproc\n"

    ".skip 256\n"
    ".cfi_startproc\n"
    ".Lcalled:\n"
    "  ret\n"
    ".cfi_endproc\n"
    ".skip 256\n"
    ".cfi_startproc\n"
    ".Lcalled_last:\n"
    "  push %rbx\n"
    ".cfi_def_cfa_offset 16\n"
    "  pop %rbx\n"
    ".cfi_def_cfa_offset 8\n"
    "  ret\n"
    ".cfi_endproc\n");
