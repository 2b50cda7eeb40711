/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/* Programs at fork, exec and exit: changes that later interrupts must take into account before the receiver sees them. */
#ifndef SIDEWINDER_PROCESS_BPF_H
#define SIDEWINDER_PROCESS_BPF_H

#include "scope.bpf.h"
#include "table.bpf.h"
#include <bpf/bpf_tracing.h>

/* Invalidates the mappings that the receiver published for this pid: they belong to the program before the exec. */
static __always_inline void forget_mappings(__u32 pid)
{
	__u32 place = process_place(pid);

	for (__u32 i = 0; i < SW_PROCESS_PROBES; i++) {
		__u32 number = (place + i) & process_mask;
		struct sw_process *process = bpf_map_lookup_elem(&processes, &number);

		if (process && READ_ONCE(process->pid) == pid) {
			WRITE_ONCE(process->exec_ns, bpf_ktime_get_ns());
			return;
		}
	}
}

/* Reports a container that the receiver doesn't know yet; repeated at each exec until it is known. */
static __always_inline void tell_newcomer(struct sw_cpu *cpu, __u32 pid)
{
	struct sw_newcomer newcomer = {
		.type = SW_RECORD_NEWCOMER,
		.pid = pid,
		.container = bpf_get_current_ancestor_cgroup_id(pod_level + 1),
	};
	void *ring = this_ring();

	if (ring && READ_ONCE(cpu->tells_newcomers) && !bpf_map_lookup_elem(&containers, &newcomer.container))
		bpf_ringbuf_output(ring, &newcomer, sizeof(newcomer), BPF_RB_FORCE_WAKEUP);
}

/* Adds the children of a listed process to `listed`. Runs in the parent. */
SEC("tp_btf/sched_process_fork")
int BPF_PROG(process_fork, struct task_struct *parent, struct task_struct *child)
{
	struct sw_cpu *cpu = this_cpu();
	__u64 start_ns;
	__u32 pid;

	if (!cpu || !in_pod() || !is_listed(cpu, parent, process_id(parent)))
		return 0;
	pid = process_id(child);
	if (!pid || pid != thread_id(child))
		return 0;
	start_ns = process_start_ns(child);
	if (!bpf_map_update_elem(&listed, &pid, &start_ns, BPF_ANY))
		return 0;
	sw_count(cpu->scope_list_full, 1);
	if (start_ns >= loaded_ns)
		WRITE_ONCE(scope_gaps.young, 1);
	else
		WRITE_ONCE(scope_gaps.any, 1);
	return 0;
}

/* Lists a process that was to be listed from this exec on. */
static __always_inline void list_from_exec(struct task_struct *task)
{
	__u32 pid = in_pod() ? process_id(task) : 0;
	__u64 *listed_ns = bpf_map_lookup_elem(&listed, &pid);
	__u64 from_ns = listed_ns ? *listed_ns & ~SW_LISTED_FROM_EXEC : 0;

	if (listed_ns && is_start_time(process_start_ns(task), from_ns))
		WRITE_ONCE(*listed_ns, from_ns);
}

/*
 * Lists a process that executes a listed program: the receiver has decided by its path. It decides again for each process, and
 * keeps no sample until then.
 */
static __always_inline void list_by_program(struct sw_cpu *cpu, struct task_struct *task)
{
	__u32 pid = in_pod() ? process_id(task) : 0;
	struct file *file = pid && sw_has_exe_file() ? BPF_CORE_READ(task, mm, exe_file) : 0;
	__u64 start_ns = process_start_ns(task);
	struct sw_program program = {};

	if (!file)
		return;
	program.mount = (__u64)BPF_CORE_READ(file, f_path.mnt);
	program.entry = (__u64)BPF_CORE_READ(file, f_path.dentry);
	program.inode = BPF_CORE_READ(file, f_inode, i_ino);
	program.device = BPF_CORE_READ(file, f_inode, i_sb, s_dev);
	bpf_map_update_elem(&executed_programs, &pid, &program, BPF_ANY);
	if (!bpf_map_lookup_elem(&listed_programs, &program) || is_in_list(pid, start_ns))
		return;
	if (bpf_map_update_elem(&listed, &pid, &start_ns, BPF_ANY))
		sw_count(cpu->scope_list_full, 1);
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(process_exec, struct task_struct *task)
{
	struct sw_cpu *cpu = this_cpu();
	__u32 pid;

	list_from_exec(task);
	if (lists_programs && cpu)
		list_by_program(cpu, task);
	pid = cpu ? process_in_scope(cpu, task) : 0;
	if (!pid)
		return 0;
	forget_mappings(pid);
	if (pod_level)
		tell_newcomer(cpu, pid);
	return 0;
}

/*
 * A thread of a listed process begins to exit: the last point at which every process still has its ids in PID namespaces.
 * The process stays listed, since it can be interrupted until it is freed.
 */
SEC("tp_btf/sched_process_exit")
int BPF_PROG(process_exit, struct task_struct *task)
{
	__u32 pid = process_id(task), tgid = sw_task(task, tgid);

	if (pid && bpf_map_lookup_elem(&listed, &pid))
		bpf_map_update_elem(&exiting, &tgid, &pid, BPF_ANY);
	return 0;
}

/*
 * Removes a freed process from `listed`, unless its id already belongs to another process. A leader is freed after all its
 * threads, when nothing can interrupt them any more. It then no longer has ids in PID namespaces, only its thread group id.
 */
SEC("tp_btf/sched_process_free")
int BPF_PROG(process_free, struct task_struct *task)
{
	__u32 tgid = sw_task(task, tgid), pid = tgid;
	__u64 *start_ns;

	/* After an exec by another thread, the former leader is freed as a thread that isn't the leader. */
	if ((__u32)sw_task(task, pid) != tgid)
		return 0;
	if (pid_namespace_inode) {
		__u32 *number = bpf_map_lookup_elem(&exiting, &tgid);

		if (!number)
			return 0;
		pid = *number;
		bpf_map_delete_elem(&exiting, &tgid);
	}
	start_ns = bpf_map_lookup_elem(&listed, &pid);
	if (start_ns && is_start_time(process_start_ns(task), *start_ns & ~SW_LISTED_FROM_EXEC))
		bpf_map_delete_elem(&listed, &pid);
	return 0;
}

#endif
