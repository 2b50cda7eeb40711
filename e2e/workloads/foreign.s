# A 32-bit program that computes for about a second.
.globl _start
_start:
    mov $2000000000, %ecx
1:  dec %ecx
    jnz 1b
    mov $1, %eax
    xor %ebx, %ebx
    int $0x80
.section .note.GNU-stack, "", @progbits
