/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/* x86-64: constants that the receiver shares. */
#ifndef SIDEWINDER_ARCH_X86_64_H
#define SIDEWINDER_ARCH_X86_64_H

/* Registers have their DWARF numbers, 0 to 15; 16 is the pc (System V ABI for AMD64, figure 3.36). */
#define SW_REGISTERS 17
#define SW_REG_PC 16
#define SW_REG_SP 7 /* rsp */
#define SW_REG_FP 6 /* rbp */
/* rbx: the callee-saved register, besides rbp, that unwind rules of callers may need. */
#define SW_REG_CALLEE_SAVED 3
#define SW_REG_SYSCALL_RESULT 0 /* rax */

#define SW_RED_ZONE_BYTES 128 /* below the stack pointer, System V ABI for AMD64, section 3.2.2 */
#define SW_STACK_ALIGNMENT_BYTES 16 /* of the stack pointer before a call, section 3.2.2 */
#define SW_LINKAGE_ENTRY_BYTES 16 /* an entry of a lazily bound procedure linkage table, section 5.2 */

#define SW_HAS_V8 1 /* whether code that V8 generates is understood */

/* HotSpot's interpreter: where the bytecode is in the interrupted method. */
#define SW_REG_BYTECODE 13 /* r13 */
#define SW_REG_RETURN_ADDRESS 0 /* rax, at the entries of interpreted methods and in adapters */
/* From where an interpreted method removes its frame: */
#define SW_REG_SENDER_SP_AT_RETURN 3 /* rbx */
#define SW_REG_RETURN_ADDRESS_AT_RETURN 13 /* r13, which had the bytecode's */

/*
 * V8: the called function, at its entry; the data of the instance, at the entry of a WebAssembly function; and, in handlers of
 * bytecodes, the bytecode array and the offset in it.
 */
#define SW_REG_V8_FUNCTION 5 /* rdi */
#define SW_REG_V8_INSTANCE 4 /* rsi */
#define SW_REG_V8_BYTECODE 12 /* r12 */
#define SW_REG_V8_BYTECODE_OFFSET 9 /* r9 */

#define SW_PAGE_SHIFT 12 /* of the smallest page; larger ones are multiples of it */

/* TLS variant II: the thread pointer is fsbase, and the second word there points to the dynamic thread vector. */
#define SW_TLS_VECTOR_OFFSET 8
#define SW_TLS_MUSL_VECTOR_OFFSET 8

/*
 * All CPUs see each CPU's stores in program order, and loads are in order; only a load may pass an older store. Nothing
 * passes a locked instruction, which is what an atomic addition compiles to (Intel SDM, volume 3, section 9.2).
 */
#define SW_TOTAL_STORE_ORDER 1

#endif
