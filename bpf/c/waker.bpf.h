/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/*
 * Wakers: the stack of the thread that ends a sampled wait in a futex, which for a lock is the one that releases it.
 *
 * The program runs at each wake-up of the node, in the task that wakes, and only if the receiver was asked for it. Threads that wait
 * are in `waits`, so all of them are in scope; their waker may not be. The wait's length, which is the value of the
 * sample, is known to the receiver when the wait's end arrives, and that refers to this sample.
 *
 * An interrupt, as of a timeout, wakes threads in whatever task it interrupts. So only a task that is in a system call that wakes
 * waiters of a futex is a waker. (One that is interrupted in such a call is taken for the waker of what the interrupt wakes.)
 */
#ifndef SIDEWINDER_WAKER_BPF_H
#define SIDEWINDER_WAKER_BPF_H

#include "arch.bpf.h"
#include "entry.bpf.h"
#include "lock.bpf.h"
#include "maps.bpf.h"
#include "sample.bpf.h"
#include "task.bpf.h"
#include "unwind.bpf.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

/* The sampled wait in a futex of a thread that is being woken up; null: it is in none. */
static __always_inline struct sw_wait *wait_in_futex(struct sw_cpu *cpu, struct task_struct *woken)
{
	__u32 key = sw_task(woken, pid);
	struct sw_wait *wait = bpf_map_lookup_elem(&waits, &key);

	if (!wait || wait->futex_use == SW_FUTEX_NONE || wait->thread_start_ns != sw_task(woken, start_boottime))
		return 0;
	/* Of one that has not left its CPU yet, this is the wait before. */
	if (bpf_core_field_exists(struct task_struct, on_cpu) && sw_task(woken, on_cpu))
		return 0;
	if (!wait->is_sampled || wait->time_ns < READ_ONCE(cpu->waits_since_ns))
		return 0;
	return wait->probability || READ_ONCE(wait->found_ns) >= wait->time_ns ? wait : 0;
}

/* Whether the current task is in a system call that wakes waiters of a futex. */
static __always_inline bool releases_futex(struct task_struct *task)
{
	__u32 operation, value;
	__u64 futex;

	if (!sw_task(task, mm) || is_kernel_thread(sw_task(task, flags)))
		return false;
	if (is_futex_wake_call(system_call_number()))
		return true;
	return futex_arguments(&futex, &operation, &value) && !is_futex_wait(FUTEX_OPERATION(operation));
}

/*
 * Begins the sample of a waker, like begin_interrupt. Inlined, unlike for other kinds: a call would add a
 * frame between the kernel's stack and the tracepoint.
 */
static __always_inline struct sw_slot *begin_waker(void *ctx, struct sw_cpu *cpu, struct sw_wait *wait, bool *walks)
{
	struct task_struct *task = current_task();
	__u32 pid, task_flags, otherwise = SW_OUTCOME_NO_RELEASE;
	struct sw_slot *slot;
	__u64 time_ns;

	if (!releases_futex(task))
		goto none;
	pid = sampled_process(cpu, task, &task_flags, &time_ns, &otherwise);
	if (!pid)
		goto none;
	slot = begin_sample(SW_SAMPLE_WAKER, pid, true, time_ns);
	otherwise = SW_OUTCOME_BUSY;
	if (!slot)
		goto none;
	WRITE_ONCE(wait->waker_tid, slot->tid);
	WRITE_ONCE(wait->waker_ns, time_ns);
	if (kernel_frames)
		walk_kernel_stack(ctx, slot, SW_TRACEPOINT_FRAMES);
	*walks = enter_user(slot, task, registers_of_task(slot));
	return slot;
none:
	count_unsampled(cpu, SW_SAMPLE_WAKER, otherwise);
	return 0;
}

SEC("tp_btf/sched_waking")
int BPF_PROG(sample_waker, struct task_struct *woken)
{
	struct sw_cpu *cpu = this_cpu();
	struct sw_wait *wait;
	struct sw_slot *slot;
	bool walks;

	if (!cpu || READ_ONCE(cpu->hooks_paused))
		return 0;
	wait = wait_in_futex(cpu, woken);
	if (!wait)
		return 0;
	slot = begin_waker(ctx, cpu, wait, &walks);
	if (!slot)
		return 0;
	if (walks)
		walk_by_loop(slot);
	if (end_interrupt(slot, cpu) == SW_OUTCOME_RING_FULL)
		WRITE_ONCE(wait->waker_ns, 0);
	return 0;
}

#endif
