/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/*
 * Beginning a sample, and ending it: its stack and its record are sent, and its outcome is counted.
 *
 * What begins and ends a sample isn't inlined: verifiers add up the stack of a program and of all functions on the way to a
 * deeper one, each rounded up to 32 bytes, and refuse more than 512. A program keeps little while it walks.
 */
#ifndef SIDEWINDER_SAMPLE_BPF_H
#define SIDEWINDER_SAMPLE_BPF_H

#include "current_frame.bpf.h"
#include "scope.bpf.h"
#include "slot.bpf.h"
#include "snapshot.bpf.h"
#include "stack.bpf.h"
#include "task.bpf.h"

static __always_inline void write_sample(struct sw_sample *sample, struct sw_slot *slot, struct sw_cpu *cpu,
					 __u32 flags)
{
	*sample = (struct sw_sample){
		.type = SW_RECORD_SAMPLE,
		.kind = slot->kind,
		.outcome = slot->outcome,
		.epoch = READ_ONCE(cpu->epoch),
		.time_ns = slot->time_ns,
		.stack = slot->hash,
		.pid = slot->pid,
		.tid = slot->tid,
		.cpu = bpf_get_smp_processor_id(),
		.flags = flags,
		.value = slot->value,
	};
	copy_name(sample->comm, current_task());
}

/* Sends the stack in the slot, and the sample that refers to it. Returns the outcome to count. */
static __always_inline __u32 send_sample(struct sw_slot *slot, struct sw_cpu *cpu)
{
	void *ring = this_ring();
	__u32 outcome = slot->outcome, context_bytes = slot->context_bytes;
	__u32 flags = slot->wait_flags | (slot->in_kernel ? SW_SAMPLE_IN_KERNEL : 0);
	struct sw_sample *sample;
	__u64 wakeup_flags;

	if (!ring || outcome == SW_OUTCOME_RING_FULL || !end_stack(slot, outcome))
		return SW_OUTCOME_RING_FULL;
	if (came_too_early(outcome) && send_snapshot(slot->kind))
		flags |= SW_SAMPLE_HAS_SNAPSHOT;
	if (context_bytes) {
		write_sample(&slot->sample, slot, cpu, flags | slot->context_flag);
		return send(ring, &slot->sample, sizeof(*sample) + context_bytes,
			    sizeof(*sample) + sizeof(slot->context)) ? outcome : SW_OUTCOME_RING_FULL;
	}
	/* Written in place, which takes a quarter less time than copying. */
	wakeup_flags = wakeup_of(ring, sizeof(*sample));
	sample = bpf_ringbuf_reserve(ring, sizeof(*sample), 0);
	if (!sample)
		return SW_OUTCOME_RING_FULL;
	write_sample(sample, slot, cpu, flags);
	bpf_ringbuf_submit(sample, wakeup_flags);
	return outcome;
}

/* Claims a slot and prepares it for a sample; null if no slot is free. */
static __always_inline struct sw_slot *begin_sample(__u8 kind, __u32 pid, bool in_kernel, __u64 time_ns)
{
	struct sw_slot *slot = claim_slot(kind);

	if (!slot)
		return 0;
	slot->pid = pid;
	slot->tid = thread_id(current_task());
	slot->in_kernel = in_kernel;
	slot->time_ns = time_ns;
	slot->value = 1;
	slot->wait_flags = 0;
	start_stack(slot);
	return slot;
}

/* The binary logarithm of a depth below 65,536, rounded down. */
static __always_inline __u32 depth_class(__u32 depth)
{
	__u32 class = (depth > 0xff) << 3;

	depth >>= class;
	class |= (depth > 0xf) << 2;
	depth >>= class & 4;
	class |= (depth > 3) << 1;
	depth >>= class & 2;
	return class | (depth > 1);
}

/* Ends the stack at its current frame and sends the sample. Returns the outcome to count. */
static __always_inline __u32 end_sample(struct sw_slot *slot, struct sw_cpu *cpu)
{
	__u32 outcome = send_sample(slot, cpu), depth = depth_class(slot->depth);

	if (slot->depth && depth < SW_DEPTHS)
		slot->head.stack_depths[depth]++;
	return outcome;
}

/* Ends the sample of an interrupt, counts its outcome and returns it. */
static __noinline __u32 end_interrupt(struct sw_slot *slot, struct sw_cpu *cpu)
{
	__u32 outcome = end_sample(slot, cpu), kind = slot->kind;

	if (outcome < SW_OUTCOME_COUNT) {
		/* Older verifiers lose the bounds of values that the compiler spills to the stack. */
		outcome &= SW_OUTCOME_PLACES - 1;
		kind &= SW_SAMPLE_KINDS - 1;
		barrier_var(outcome);
		barrier_var(kind);
		slot->head.outcomes[kind][outcome]++;
	}
	release_slot(slot);
	return outcome;
}

/*
 * The process of the current task, by its id in the receiver's PID namespace, if the task is to be sampled. Else 0, and in
 * *otherwise the outcome. Sets *task_flags and *time_ns, the current time, of a task that is sampled.
 */
static __always_inline __u32 sampled_process(struct sw_cpu *cpu, struct task_struct *task, __u32 *task_flags,
					     __u64 *time_ns, __u32 *otherwise)
{
	__u32 pid;

	*otherwise = SW_OUTCOME_IDLE;
	if (sw_task(task, pid) == 0)
		return 0;
	*otherwise = SW_OUTCOME_OUT_OF_SCOPE;
	pid = process_in_scope(cpu, task);
	if (!pid)
		return 0;
	*otherwise = SW_OUTCOME_KERNEL_THREAD;
	*task_flags = sw_task(task, flags);
	if ((*task_flags & PF_KTHREAD) && !kernel_threads)
		return 0;
	*time_ns = bpf_ktime_get_ns();
	*otherwise = SW_OUTCOME_YOUNG_PROCESS;
	return is_too_young(task, *time_ns) ? 0 : pid;
}

/* Counts the outcome of an interrupt, or of a hit of another hook, that got no slot. */
static __always_inline void count_unsampled(struct sw_cpu *cpu, __u32 kind, __u32 outcome)
{
	kind &= SW_SAMPLE_KINDS - 1;
	barrier_var(kind);
	sw_count(cpu->outcomes[kind][outcome], 1);
}

#endif
