/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/* Registers: the only code that differs between architectures. */
#ifndef SIDEWINDER_REGS_BPF_H
#define SIDEWINDER_REGS_BPF_H

#include "maps.bpf.h"
#include <linux/bpf_perf_event.h>
#include <bpf/bpf_core_read.h>

#if defined(__TARGET_ARCH_x86)

#define SW_USER_CS_64 0x33
#define SW_USER_CS_32 0x23
#define SW_REG_FP 6
#define SW_REG_SP 7
#define SW_REG_PC 16

static __always_inline bool interrupted_user_mode(struct bpf_perf_event_data *ctx)
{
	return ctx->regs.cs & 3;
}

/* Field names differ between the interrupt's registers (UAPI) and a task's (the kernel's own). */
#define SW_COPY_REGISTERS(to, from, AX, DX, CX, BX, SI, DI, BP, SP, IP)                                       \
	do {                                                                                                  \
		(to)[0] = (from)->AX;                                                                         \
		(to)[1] = (from)->DX;                                                                         \
		(to)[2] = (from)->CX;                                                                         \
		(to)[3] = (from)->BX;                                                                         \
		(to)[4] = (from)->SI;                                                                         \
		(to)[5] = (from)->DI;                                                                         \
		(to)[6] = (from)->BP;                                                                         \
		(to)[7] = (from)->SP;                                                                         \
		(to)[8] = (from)->r8;                                                                         \
		(to)[9] = (from)->r9;                                                                         \
		(to)[10] = (from)->r10;                                                                       \
		(to)[11] = (from)->r11;                                                                       \
		(to)[12] = (from)->r12;                                                                       \
		(to)[13] = (from)->r13;                                                                       \
		(to)[14] = (from)->r14;                                                                       \
		(to)[15] = (from)->r15;                                                                       \
		(to)[16] = (from)->IP;                                                                        \
	} while (0)

/* Both return the code segment, which tells a 64-bit task from others; 0: these are no registers of a user. */
static __always_inline __u64 registers_of_interrupt(__u64 *to, struct pt_regs *regs)
{
	SW_COPY_REGISTERS(to, regs, rax, rdx, rcx, rbx, rsi, rdi, rbp, rsp, rip);
	return regs->cs;
}

/* Not inlined: compilers fold the loads of both into one by a pointer to either, which the verifier refuses. */
static __noinline __u64 registers_of_task(__u64 *to)
{
	struct pt_regs___kernel *regs = (void *)bpf_task_pt_regs(bpf_get_current_task_btf());

	SW_COPY_REGISTERS(to, regs, ax, dx, cx, bx, si, di, bp, sp, ip);
	return regs->cs & 0xffff;
}

#else
#error "regs.bpf.h: no registers for this architecture yet"
#endif

#endif
