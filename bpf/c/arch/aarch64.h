/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/* arm64: constants that the receiver shares. */
#ifndef SIDEWINDER_ARCH_AARCH64_H
#define SIDEWINDER_ARCH_AARCH64_H

/* Registers have their DWARF numbers, x0 to x30 and sp; 32 is the pc (DWARF for the Arm 64-bit Architecture, section 4.1). */
#define SW_REGISTERS 33
#define SW_REG_PC 32
#define SW_REG_SP 31
#define SW_REG_FP 29 /* x29 */
/*
 * x30, the link register: a call leaves the return address there. It is known where a thread was interrupted, and above
 * signal frames; in other callers, the call that they made has overwritten it.
 */
#define SW_REG_LINK 30
#define SW_REG_CALLEE_SAVED SW_REG_LINK
#define SW_REG_SYSCALL_RESULT 0 /* x0 */
/* x28: the g that a thread runs, for Go's runtime, which also keeps it in thread-local storage where there is cgo (save_g). */
#define SW_REG_GOROUTINE 28

/* The ABI has no red zone, but Go keeps the frame pointer in the word below the stack pointer. */
#define SW_RED_ZONE_BYTES 16
#define SW_STACK_ALIGNMENT_BYTES 16 /* of the stack pointer (AAPCS64, section 6.4.5.1) */
#define SW_LINKAGE_ENTRY_BYTES 16 /* no rule depends on it: linkage entries don't touch the stack */

#define SW_HAS_V8 0 /* whether code that V8 generates is understood */

/* HotSpot's interpreter: where the bytecode is in the interrupted method, and the return address at its entry. */
#define SW_REG_BYTECODE 22 /* x22 */
#define SW_REG_RETURN_ADDRESS SW_REG_LINK
/* From where an interpreted method removes its frame: */
#define SW_REG_SENDER_SP_AT_RETURN 9 /* x9 */
#define SW_REG_RETURN_ADDRESS_AT_RETURN SW_REG_LINK

#define SW_PAGE_SHIFT 12 /* of the smallest page; larger ones are multiples of it */

/* TLS variant I: where glibc and musl keep the pointer to the dynamic thread vector, from the thread pointer. */
#define SW_TLS_VECTOR_OFFSET 0
#define SW_TLS_MUSL_VECTOR_OFFSET (-8)

/* CPUs may see each other's accesses in any order. */
#define SW_TOTAL_STORE_ORDER 0

#endif
