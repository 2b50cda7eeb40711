/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/* The scope check. Every program does it before it reads any memory of a task's process. */
#ifndef SIDEWINDER_SCOPE_BPF_H
#define SIDEWINDER_SCOPE_BPF_H

#include "task.bpf.h"

/*
 * Whether the current task runs in the receiver's pod. A task that only joined the pod's PID namespace does not: it stays in
 * its original cgroup.
 */
static __always_inline bool in_pod(void)
{
	return !pod_level || bpf_get_current_ancestor_cgroup_id(pod_level) == pod_cgroup;
}

/*
 * Whether the process of this id is the one that was listed: a later process with the same id has a different start time.
 * The receiver knows start times only to a clock tick, so they may differ by less than that.
 */
static __always_inline bool is_in_list(__u32 pid, __u64 start_ns)
{
	__u64 *from_ns = bpf_map_lookup_elem(&listed, &pid);

	return from_ns && is_start_time(start_ns, *from_ns);
}

/* As is_in_list, for the current task's process. */
static __always_inline bool is_listed(struct sw_cpu *cpu, struct task_struct *task, __u32 pid)
{
	__u64 start_ns = process_start_ns(task);

	if (READ_ONCE(cpu->listed_pid) == pid && READ_ONCE(cpu->listed_start_ns) == start_ns)
		return true;
	if (!is_in_list(pid, start_ns))
		return false;
	/*
	 * A program that interrupts this one may overwrite half of the pair. The mixed pair still identifies a listed
	 * process, or none.
	 */
	WRITE_ONCE(cpu->listed_pid, pid);
	WRITE_ONCE(cpu->listed_start_ns, start_ns);
	return true;
}

/*
 * Whether a process that isn't listed may be missing because the list was full. A process that set only `young` started
 * after the programs were loaded, and so did its descendants.
 */
static __always_inline bool may_lack_in_list(struct task_struct *task)
{
	return READ_ONCE(scope_gaps.any) || (READ_ONCE(scope_gaps.young) && process_start_ns(task) >= loaded_ns);
}

/* The id of the current task's process in the receiver's PID namespace if it is in scope; 0 otherwise. */
static __always_inline __u32 process_in_scope(struct sw_cpu *cpu, struct task_struct *task)
{
	__u32 pid = in_pod() ? process_id(task) : 0;

	if (!pid || scope_mode == SW_SCOPE_ALL)
		return pid;
	if (is_listed(cpu, task, pid))
		return scope_mode == SW_SCOPE_LISTED ? pid : 0;
	return scope_mode == SW_SCOPE_UNLISTED && !may_lack_in_list(task) ? pid : 0;
}

/* As process_in_scope, for a task that need not be the current one. */
static __always_inline __u32 task_process_in_scope(struct task_struct *task)
{
	__u32 pid = is_task_in_pod(task) ? process_id(task) : 0;

	if (!pid || scope_mode == SW_SCOPE_ALL)
		return pid;
	if (is_in_list(pid, process_start_ns(task)))
		return scope_mode == SW_SCOPE_LISTED ? pid : 0;
	return scope_mode == SW_SCOPE_UNLISTED && !may_lack_in_list(task) ? pid : 0;
}

/* Whether the task's process is younger than the configured age. */
static __always_inline bool is_too_young(struct task_struct *task, __u64 time_ns)
{
	return min_process_age_ns && time_ns < sw_task(task, group_leader, start_time) + min_process_age_ns;
}

#endif
