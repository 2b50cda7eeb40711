/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/* x86-64: what the receiver sees, too. */
#ifndef SIDEWINDER_ARCH_X86_64_H
#define SIDEWINDER_ARCH_X86_64_H

/* Registers have DWARF's numbers: 0 to 15, and behind those the pc (System V ABI for AMD64, figure 3.36). */
#define SW_REGISTERS 17
#define SW_REG_PC 16
#define SW_REG_SP 7 /* rsp */
#define SW_REG_FP 6 /* rbp */
/* The one besides rbp that callers need to find their own frames, and that called functions preserve: rbx. */
#define SW_REG_CALLEE_SAVED 3
#define SW_REG_SYSCALL_RESULT 0 /* rax */

#define SW_RED_ZONE_BYTES 128 /* below the stack pointer, System V ABI for AMD64, section 3.2.2 */
#define SW_STACK_ALIGNMENT_BYTES 16 /* of the stack pointer before a call, section 3.2.2 */
#define SW_LINKAGE_ENTRY_BYTES 16 /* of a procedure linkage table that is bound lazily, section 5.2 */

#define SW_PAGE_SHIFT 12 /* of the smallest page; larger ones are multiples of it */

/* TLS variant II: the thread pointer is fsbase, and the second word from there leads to the vector. */
#define SW_TLS_VECTOR_OFFSET 8

/*
 * All CPUs see the stores of each in its order, and loads in order; only a load may pass an older store. A locked instruction,
 * as which an addition to memory is compiled, lets nothing pass (Intel SDM, volume 3, section 9.2).
 */
#define SW_TOTAL_STORE_ORDER 1

#endif
