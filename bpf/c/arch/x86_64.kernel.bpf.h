/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/* x86-64: kernel-internal types, as in kernel.bpf.h. */
#ifndef SIDEWINDER_ARCH_X86_64_KERNEL_BPF_H
#define SIDEWINDER_ARCH_X86_64_KERNEL_BPF_H

#include <linux/types.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct thread_struct {
	unsigned long fsbase;
};

struct pt_regs___kernel {
	unsigned long r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di;
	unsigned long orig_ax;
	unsigned long ip;
	unsigned long cs;
	unsigned long sp;
};

/* Linux 6.2 to 6.14. */
struct pcpu_hot {
	int preempt_count;
};

#pragma clang attribute pop

#define sw_has_thread_pointer() bpf_core_field_exists(struct thread_struct, fsbase)

/* THREAD_SIZE of Linux 5.10 to 5.14, without KASAN. */
#define SW_KERNEL_STACK_BYTES 16384

#endif
