/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/* Whether a task may be looked at. Asked before anything of it is read, in every program. */
#ifndef SIDEWINDER_SCOPE_BPF_H
#define SIDEWINDER_SCOPE_BPF_H

#include "task.bpf.h"

/*
 * Whether the current task runs in the receiver's pod. Who only joins the pod's PID namespace does not: it stays in the
 * cgroup that it came from.
 */
static __always_inline bool in_pod(void)
{
	return !pod_level || bpf_get_current_ancestor_cgroup_id(pod_level) == pod_cgroup;
}

/*
 * A process number means the process that had it when it was listed: a later owner of the number started at another
 * time. The receiver knows start times to a clock tick, so that much play is allowed.
 */
static __always_inline bool is_listed(struct sw_cpu *cpu, struct task_struct *task, __u32 pid)
{
	__u64 start_ns = process_start_ns(task), *from_ns;

	if (READ_ONCE(cpu->listed_pid) == pid && READ_ONCE(cpu->listed_start_ns) == start_ns)
		return true;
	from_ns = bpf_map_lookup_elem(&listed, &pid);
	if (!from_ns || start_ns - *from_ns >= SW_START_TIME_TICK_NS)
		return false;
	/* A program that interrupts this one may leave half of its own here: together the halves name one listed, or none. */
	WRITE_ONCE(cpu->listed_pid, pid);
	WRITE_ONCE(cpu->listed_start_ns, start_ns);
	return true;
}

/*
 * Whether a process that isn't listed may be one for which the list had no room. Whoever found none started no earlier than
 * `young` says, and so did all that it forked.
 */
static __always_inline bool may_lack_in_list(struct task_struct *task)
{
	return READ_ONCE(scope_gaps.any) || (READ_ONCE(scope_gaps.young) && process_start_ns(task) >= loaded_ns);
}

/* The process of the current task, by its number in the receiver's PID namespace, if it may be looked at; 0 otherwise. */
static __always_inline __u32 process_in_scope(struct sw_cpu *cpu, struct task_struct *task)
{
	__u32 pid = in_pod() ? process_id(task) : 0;

	if (!pid || scope_mode == SW_SCOPE_ALL)
		return pid;
	if (is_listed(cpu, task, pid))
		return scope_mode == SW_SCOPE_LISTED ? pid : 0;
	return scope_mode == SW_SCOPE_UNLISTED && !may_lack_in_list(task) ? pid : 0;
}

#endif
