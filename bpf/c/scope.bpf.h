/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/* Whether a task may be looked at. Asked before anything of it is read, in every program. */
#ifndef SIDEWINDER_SCOPE_BPF_H
#define SIDEWINDER_SCOPE_BPF_H

#include "task.bpf.h"

/*
 * A process number means the process that had it when it came into scope: a later owner of the number started
 * at another time. The receiver knows start times to a clock tick, so that much play is allowed.
 */
static __always_inline bool in_scope(struct sw_cpu *cpu, struct task_struct *task, __u32 pid)
{
	__u64 *from_ns, start_ns;

	if (!pid)
		return false;
	if (scope_mode == SW_SCOPE_NODE)
		return true;
	start_ns = process_start_ns(task);
	if (cpu->scoped_pid == pid && cpu->scoped_start_ns == start_ns)
		return true;
	from_ns = bpf_map_lookup_elem(&scope, &pid);
	if (!from_ns || start_ns - *from_ns >= SW_START_TIME_TICK_NS)
		return false;
	/* A program that interrupts this one may leave half of its own here: together the halves name one in scope, or none. */
	cpu->scoped_pid = pid;
	cpu->scoped_start_ns = start_ns;
	return true;
}

#endif
