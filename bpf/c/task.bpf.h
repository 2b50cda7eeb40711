/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/* Properties of a task: its ids in the receiver's PID namespace, its name, start time and state. */
#ifndef SIDEWINDER_TASK_BPF_H
#define SIDEWINDER_TASK_BPF_H

#include "fields.bpf.h"
#include "maps.bpf.h"
#include <bpf/bpf_core_read.h>

/*
 * Whether the running kernel has a helper, according to its type information: a constant when the verifier runs, which
 * removes the code that depends on a missing helper.
 */
#define sw_has_helper(name) bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_##name)

static __always_inline struct task_struct *current_task(void)
{
	if (sw_has_helper(get_current_task_btf))
		return (void *)bpf_get_current_task_btf();
	return (void *)bpf_get_current_task();
}

/*
 * A field of a task: a load if tasks are trusted pointers (bpf_get_current_task_btf, since Linux 5.11), otherwise a helper
 * call.
 */
#define sw_task(task, ...)                                                                                    \
	(sw_has_helper(get_current_task_btf) ? ___arrow(task, __VA_ARGS__) : BPF_CORE_READ(task, __VA_ARGS__))

/* As bpf_get_current_pid_tgid(). */
static __always_inline __u64 current_pid_tgid(void)
{
	struct task_struct *task = current_task();

	if (sw_has_helper(get_current_task_btf))
		return (__u64)task->tgid << 32 | (__u32)task->pid;
	return bpf_get_current_pid_tgid();
}

/* Namespaces nest at most this deep (MAX_PID_NS_LEVEL). */
#define SW_PID_NAMESPACES_MAX 32

/*
 * The task's id in the receiver's PID namespace; 0 if it isn't in that namespace. A task has an id in its own namespace, the
 * last level, and in each ancestor of that.
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

static __always_inline __u32 thread_id(struct task_struct *task)
{
	return pid_namespace_inode ? number_in_namespace(task) : (__u32)sw_task(task, pid);
}

static __always_inline __u32 process_id(struct task_struct *task)
{
	return pid_namespace_inode ? number_in_namespace(sw_task(task, group_leader)) : (__u32)sw_task(task, tgid);
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

/* When the task's process started, by CLOCK_BOOTTIME. */
static __always_inline __u64 process_start_ns(struct task_struct *task)
{
	return sw_task(task, group_leader, start_boottime);
}

/*
 * Whether a task with these flags never runs user code. Workers of io_uring and vhost share the memory of the process that
 * they work for, and their registers are a copy of those of the thread that created them.
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
