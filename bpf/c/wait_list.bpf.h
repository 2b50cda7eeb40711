/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/*
 * Waits in progress: an iterator over all tasks in the receiver's PID namespace, which the receiver runs when sampling begins,
 * once per report, and when it ends. So a thread that sleeps for long is charged before it wakes up.
 *
 * A wait with a sample is reported with its length so far. One without, because it had begun before sampling or was not
 * drawn, gets a sample from now on, with certainty: it is reported with the registers and kernel frames for that, and the
 * program at the thread's next switch sends its end. Both ways together keep sums unbiased: a drawn wait counts for the
 * inverse of its probability up to here, and every wait counts once from here on.
 *
 * The threads run meanwhile. The time of the report is read first: what the thread's own CPU writes later has a later time.
 */
#ifndef SIDEWINDER_WAIT_LIST_BPF_H
#define SIDEWINDER_WAIT_LIST_BPF_H

#include "arch.bpf.h"
#include "fields.bpf.h"
#include "lock.bpf.h"
#include "maps.bpf.h"
#include "off_cpu.bpf.h"
#include "scope.bpf.h"
#include "task.bpf.h"
#include <bpf/bpf_core_read.h>

/* Whether a thread in this state waits, rather than that it runs, begins, ends or is woken up. */
static __always_inline bool is_waiting(struct task_struct *task, __u32 state)
{
	if (!state || state & (TASK_DEAD | TASK_WAKING | TASK_NEW))
		return false;
	return !bpf_core_field_exists(struct task_struct, on_cpu) || !sw_task(task, on_cpu);
}

/* Whether a thread waits, or is runnable and waits for a CPU, as far as that is sampled. */
static __always_inline bool is_off_cpu(struct task_struct *task, __u32 state)
{
	if (samples_runnable && !state && bpf_core_field_exists(struct task_struct, on_cpu))
		return !sw_task(task, on_cpu);
	return is_waiting(task, state);
}

/* Reports the length of a wait so far. */
static __always_inline void list_progress(struct sw_iter_task *ctx, struct sw_wait_end *progress, struct sw_wait *wait,
					  bool is_woken, __u64 start_ns, __u64 time_ns, __u64 on_cpu_ns,
					  __u64 runnable_ns)
{
	*progress = (struct sw_wait_end){
		.type = SW_RECORD_WAIT_PROGRESS,
		.futex_use = wait->futex_use,
		.is_woken = is_woken,
		.tid = wait->tid,
		.lock = wait->lock,
		.start_ns = start_ns,
		.time_ns = time_ns,
		.off_cpu_ns = off_cpu_since(wait, start_ns, time_ns, on_cpu_ns, runnable_ns),
		.runnable_ns = runnable_ns - wait->runnable_ns,
		.walk_ns = wait->walk_ns,
		.waker_ns = READ_ONCE(wait->waker_ns),
		.waker_tid = READ_ONCE(wait->waker_tid),
	};
	bpf_seq_write(ctx->meta->seq, progress, sizeof(*progress));
}

/* Reports a wait without a sample, with all that can be read of its stack without waiting. Returns whether there was room. */
static __always_inline bool list_found(struct sw_iter_task *ctx, struct task_struct *task,
				       struct sw_wait_list_scratch *scratch, __u32 pid, __u32 state, __u64 time_ns)
{
	struct sw_found_wait *found = &scratch->found;
	long bytes = 0;

	found->type = SW_RECORD_WAIT_FOUND;
	found->flags = SW_SAMPLE_IN_KERNEL | wait_flags(state, system_call_of(task));
	found->pid = pid;
	found->tid = thread_id(task);
	found->cpu = bpf_core_field_exists(struct task_struct, wake_cpu) ? sw_task(task, wake_cpu) : 0;
	found->time_ns = time_ns;
	found->timeslices = sw_has_run_delay() ? sw_task(task, sched_info.pcount) : 0;
	bpf_probe_read_kernel(found->comm, sizeof(found->comm), task->comm);
	if (is_kernel_thread(sw_task(task, flags)) ||
	    !registers_of_waiting(found->registers, task, scratch->registers, sizeof(scratch->registers)))
		found->registers[SW_REG_SP] = 0;
	if (kernel_frames)
		bytes = bpf_get_task_stack(task, found->kernel, sizeof(found->kernel), 0);
	found->kernel_frames = bytes > 0 ? bytes / sizeof(__u64) : 0;
	return !bpf_seq_write(ctx->meta->seq, found, sizeof(*found));
}

/* Marks a wait as sampled from `time_ns` on; `new_wait` is used if the thread has not left its CPU since the start. */
static __always_inline void note_found(struct sw_wait *wait, struct sw_wait *new_wait, struct task_struct *task,
				       __u32 pid, __u64 time_ns, __u64 on_cpu_ns, __u64 runnable_ns)
{
	__u32 key = sw_task(task, pid);

	if (wait) {
		WRITE_ONCE(wait->found_ns, time_ns);
		return;
	}
	new_wait->thread_start_ns = sw_task(task, start_boottime);
	new_wait->mean_ns = 1ull << SW_CERTAIN_WAIT_SHIFT;
	new_wait->random = bpf_get_prandom_u32();
	new_wait->time_ns = time_ns;
	new_wait->found_ns = time_ns;
	new_wait->on_cpu_ns = on_cpu_ns;
	new_wait->runnable_ns = runnable_ns;
	new_wait->pid = pid;
	new_wait->tid = thread_id(task);
	new_wait->is_sampled = true;
	/* Its own CPU may just have added it. */
	bpf_map_update_elem(&waits, &key, new_wait, BPF_NOEXIST);
}

SEC("iter/task")
int list_waits(struct sw_iter_task *ctx)
{
	struct task_struct *task = ctx->task;
	__u64 time_ns = bpf_ktime_get_ns(), since_ns, on_cpu_ns, runnable_ns = 0, start_ns = 0, lock;
	struct sw_wait new_wait = {}, *wait;
	struct sw_wait_list_scratch *scratch;
	struct sw_cpu *cpu = this_cpu();
	__u32 pid, key, state, zero = 0;
	bool is_off, waits_on;

	scratch = bpf_map_lookup_elem(&wait_list_scratch, &zero);
	if (!task || !cpu || !scratch)
		return 0;
	key = sw_task(task, pid);
	state = state_of(task);
	is_off = is_off_cpu(task, state);
	wait = bpf_map_lookup_elem(&waits, &key);
	if (!wait && !is_off)
		return 0;
	pid = task_process_in_scope(task);
	if (!pid || ((sw_task(task, flags) & PF_KTHREAD) && !kernel_threads) || is_too_young(task, time_ns))
		return 0;
	on_cpu_ns = sw_task(task, se.sum_exec_runtime);
	if (sw_has_run_delay())
		runnable_ns = sw_task(task, sched_info.run_delay);
	since_ns = READ_ONCE(cpu->waits_since_ns);
	if (wait) {
		lock = wait->lock;
		if (wait->thread_start_ns != sw_task(task, start_boottime) || wait->time_ns > time_ns ||
		    !wait->is_sampled)
			return 0;
		start_ns = READ_ONCE(wait->found_ns);
		if (start_ns < wait->time_ns || start_ns < since_ns)
			start_ns = wait->probability && wait->time_ns >= since_ns ? wait->time_ns : 0;
	} else {
		note_lock_of(&new_wait, task, state);
		lock = new_wait.lock;
	}
	/* A load through a pointer to either would be refused. */
	barrier_var(lock);
	/*
	 * Whether a thread that has left its CPU before still waits as then: one that has run since then is on its way to another
	 * wait. Whether it does so decides for drawn waits and for others alike whether they count once from here on, or as
	 * before up to their end.
	 */
	waits_on = wait && wait->on_cpu_ns == on_cpu_ns && is_waiting(task, state);
	if (wait && start_ns)
		list_progress(ctx, &scratch->progress, wait, !waits_on, start_ns, time_ns, on_cpu_ns, runnable_ns);
	else if (is_off && (!wait || waits_on) && (!only_locks || lock) &&
		 list_found(ctx, task, scratch, pid, state, time_ns))
		note_found(wait, &new_wait, task, pid, time_ns, on_cpu_ns, runnable_ns);
	return 0;
}

#endif
