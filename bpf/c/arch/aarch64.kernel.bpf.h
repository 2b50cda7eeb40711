/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/* arm64: kernel-internal types, as in kernel.bpf.h. */
#ifndef SIDEWINDER_ARCH_AARCH64_KERNEL_BPF_H
#define SIDEWINDER_ARCH_AARCH64_KERNEL_BPF_H

#include <linux/types.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct thread_struct {
	struct {
		unsigned long tp_value; /* as of when the thread last left a CPU, if it sets tpidr_el0 itself */
	} uw;
};

struct pt_regs___kernel {
	__u64 regs[31];
	__u64 sp;
	__u64 pc;
	__u64 pstate;
	__u64 orig_x0; /* the first argument of a system call, whose result overwrites regs[0] */
	__s32 syscallno;
};

struct thread_info {
	struct {
		__u32 count;
	} preempt;
};

struct task_struct___arm64 {
	struct thread_info thread_info;
};

#pragma clang attribute pop

#define sw_has_thread_pointer() bpf_core_field_exists(struct thread_struct, uw.tp_value)

#endif
