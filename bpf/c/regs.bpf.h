/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/* Registers: the only code that differs between architectures. */
#ifndef SIDEWINDER_REGS_BPF_H
#define SIDEWINDER_REGS_BPF_H

#include "task.bpf.h"
#include <linux/bpf_perf_event.h>

#if defined(__TARGET_ARCH_x86)

/* THREAD_SIZE of Linux 5.10 to 5.14, without KASAN. */
#define SW_KERNEL_STACK_BYTES 16384
#define SW_USER_CS_64 0x33
#define SW_USER_CS_32 0x23
#define SW_REG_AX 0
#define SW_REG_BX 3
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

/*
 * The barrier keeps compilers from folding these loads and those of registers_of_interrupt into one by a pointer to either,
 * which the verifier refuses.
 */
static __always_inline __u64 registers_by_helper(struct sw_slot *slot)
{
	struct pt_regs___kernel *regs = (void *)bpf_task_pt_regs(bpf_get_current_task_btf());
	__u64 code_segment = regs->cs & 0xffff;

	SW_COPY_REGISTERS(slot->registers, regs, ax, dx, cx, bx, si, di, bp, sp, ip);
	barrier();
	return code_segment;
}

/* What lies at the top of a task's kernel stack, by way of the window (before Linux 5.15, which has a helper). */
static __noinline __u64 registers_on_kernel_stack(struct sw_slot *slot)
{
	struct pt_regs___kernel *regs = (void *)slot->window;
	__u64 stack = (__u64)BPF_CORE_READ((struct task_struct *)bpf_get_current_task(), stack);
	__u32 bytes = bpf_core_type_size(struct pt_regs___kernel);

	if (!stack || bytes > SW_STACK_WINDOW_BYTES ||
	    bpf_probe_read_kernel(slot->window, bytes, (void *)(stack + SW_KERNEL_STACK_BYTES - bytes)))
		return 0;
	SW_COPY_REGISTERS(slot->registers, regs, ax, dx, cx, bx, si, di, bp, sp, ip);
	return regs->cs & 0xffff;
}

/* The user registers of the current task, which is in the kernel. */
static __always_inline __u64 registers_of_task(struct sw_slot *slot)
{
	return sw_has_helper(task_pt_regs) ? registers_by_helper(slot) : registers_on_kernel_stack(slot);
}

/* Where the thread's control block is; 0: it can't be told. */
static __always_inline __u64 thread_pointer(void)
{
	struct task_struct *task = current_task();

	if (!sw_has_thread_pointer())
		return 0;
	return sw_task(task, thread.fsbase);
}

#else
#error "regs.bpf.h: no registers for this architecture yet"
#endif

#endif
