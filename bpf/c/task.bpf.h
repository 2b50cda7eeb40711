/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/* Properties of a task: its ids, its name and its state. */
#ifndef SIDEWINDER_TASK_BPF_H
#define SIDEWINDER_TASK_BPF_H

#include "fields.bpf.h"
#include "identity.bpf.h"
#include "maps.bpf.h"
#include <bpf/bpf_core_read.h>

/* As bpf_get_current_pid_tgid(). */
static __always_inline __u64 current_pid_tgid(void)
{
	struct task_struct *task = current_task();

	if (sw_has_helper(get_current_task_btf))
		return (__u64)task->tgid << 32 | (__u32)task->pid;
	return bpf_get_current_pid_tgid();
}

/* Copies the name of the current task: SW_COMM_BYTES bytes, as two words. */
static __always_inline void copy_name(char *to, struct task_struct *task)
{
	const __u64 *name = (const void *)task->comm;

	if (sw_has_helper(get_current_task_btf)) {
		((__u64 *)to)[0] = name[0];
		((__u64 *)to)[1] = name[1];
	} else {
		bpf_get_current_comm(to, SW_COMM_BYTES);
	}
}

/*
 * Whether a task with these flags never runs user code. Workers of io_uring and vhost share the memory of the process that
 * they work for, and their registers are a copy of the creating thread's.
 */
static __always_inline bool is_kernel_thread(__u32 task_flags)
{
	return task_flags & (PF_KTHREAD | PF_IO_WORKER | (sw_has_user_workers() ? PF_USER_WORKER : 0));
}

/*
 * Whether the task is inside execve, where it may already have its new memory, but still its old registers. False if the
 * kernel doesn't have the field.
 */
static __always_inline bool in_execve(struct task_struct *task)
{
	if (!sw_has_in_execve())
		return false;
	if (sw_has_helper(get_current_task_btf))
		return BPF_CORE_READ_BITFIELD(task, in_execve);
	return BPF_CORE_READ_BITFIELD_PROBED(task, in_execve);
}

#endif
