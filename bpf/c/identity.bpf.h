/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/* Which process a task belongs to: its ids in the receiver's PID namespace, when it started, and whether it is in the pod. */
#ifndef SIDEWINDER_IDENTITY_BPF_H
#define SIDEWINDER_IDENTITY_BPF_H

#include "intf.h"
#include "kernel.bpf.h"
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

/* Set before load, so that the verifier removes code that they disable. */
const volatile __u32 pod_level; /* of the pod's cgroup, where the root is 0; 0: there is no pod */
const volatile __u64 pod_cgroup; /* its id */
const volatile __u32 pid_namespace_inode; /* of the receiver; 0: the initial one, which contains every task */

/*
 * Whether the running kernel has a helper, according to its type information: a constant when the verifier runs, which
 * removes the code that depends on a missing helper.
 */
#define sw_has_helper(name) bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_##name)

/* What the kernel passes to iterators over tasks: bpf_iter__task. */
struct sw_iter_task {
	struct bpf_iter_meta *meta;
	struct task_struct *task; /* NULL at the end */
};

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

/* The id of the task's ancestor cgroup at this level, as bpf_get_current_ancestor_cgroup_id(); 0: there is none. */
static __always_inline __u64 ancestor_cgroup_id(struct task_struct *task, __u32 level)
{
	struct cgroup *cgroup = BPF_CORE_READ(task, cgroups, dfl_cgrp), *ancestor = NULL;
	__u64 id = 0;

	if (level >= SW_CGROUP_LEVELS || (int)level > BPF_CORE_READ(cgroup, level))
		return 0;
	if (bpf_core_field_exists(struct cgroup, ancestors)) {
		bpf_core_read(&ancestor, sizeof(ancestor), &cgroup->ancestors[level]);
		return BPF_CORE_READ(ancestor, kn, id);
	}
	bpf_core_read(&id, sizeof(id), &((struct cgroup___ids *)cgroup)->ancestor_ids[level]);
	return id;
}

/* Whether a task is in the receiver's pod, if there is one. */
static __always_inline bool is_task_in_pod(struct task_struct *task)
{
	return !pod_level || ancestor_cgroup_id(task, pod_level) == pod_cgroup;
}

/* When the task's process started, by CLOCK_BOOTTIME. */
static __always_inline __u64 process_start_ns(struct task_struct *task)
{
	return sw_task(task, group_leader, start_boottime);
}

/* Whether a process with this start time is the one that the receiver knows, whose start it has to a clock tick. */
static __always_inline bool is_start_time(__u64 start_ns, __u64 known_ns)
{
	return start_ns - known_ns < SW_START_TIME_TICK_NS;
}

#endif
