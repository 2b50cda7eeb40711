/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/* What we ask of a task: who it is in the receiver's eyes, and when it started. */
#ifndef SIDEWINDER_TASK_BPF_H
#define SIDEWINDER_TASK_BPF_H

#include "maps.bpf.h"
#include <bpf/bpf_core_read.h>

/* Namespaces nest at most this deep (MAX_PID_NS_LEVEL). */
#define SW_PID_NAMESPACES_MAX 32

/*
 * The task's number in the receiver's PID namespace; 0 where that namespace does not know it. A task has a number in
 * its own namespace, the last, and in each of its ancestors.
 */
static __always_inline __u32 number_in_namespace(struct task_struct *task)
{
	struct pid *pid = BPF_CORE_READ(task, thread_pid);
	__u32 level = pid ? BPF_CORE_READ(pid, level) : 0;

	for (int i = 0; pid && i < SW_PID_NAMESPACES_MAX; i++) {
		struct upid upid = {};

		bpf_core_read(&upid, sizeof(upid), &pid->numbers[level & (SW_PID_NAMESPACES_MAX - 1)]);
		if (BPF_CORE_READ(upid.ns, ns.inum) == pid_namespace_inode)
			return upid.nr;
		if (!level--)
			break;
	}
	return 0;
}

/*
 * Tasks are trusted pointers here (bpf_get_current_task_btf, arguments of tp_btf), so their fields are loads, not calls.
 */
static __always_inline __u32 thread_id(struct task_struct *task)
{
	return pid_namespace_inode ? number_in_namespace(task) : (__u32)task->pid;
}

static __always_inline __u32 process_id(struct task_struct *task)
{
	return pid_namespace_inode ? number_in_namespace(task->group_leader) : (__u32)task->tgid;
}

/* When the task's process started, by CLOCK_BOOTTIME. */
static __always_inline __u64 process_start_ns(struct task_struct *task)
{
	return task->group_leader->start_boottime;
}

#endif
