/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/*
 * Interrupts of the CPU clock and of counters: page faults, switches, cycles. The kernel counts a fault in its handler, with
 * interrupts of the CPU clock enabled, and in the task's context: the registers are as they were at the instruction that caused it.
 */
#ifndef SIDEWINDER_INTERRUPT_BPF_H
#define SIDEWINDER_INTERRUPT_BPF_H

#include "arch.bpf.h"
#include "entry.bpf.h"
#include "maps.bpf.h"
#include "sample.bpf.h"
#include "sampler.bpf.h"
#include <linux/bpf_perf_event.h>
#include <bpf/bpf_core_read.h>

/* Walks the kernel part of the interrupted task's stack, and prepares the walk of the user part like enter_user. */
static __always_inline bool enter_interrupted(struct bpf_perf_event_data *ctx, struct sw_slot *slot,
					      struct task_struct *task, __u32 task_flags)
{
	sw_abi abi;

	if (slot->in_kernel && kernel_frames)
		walk_kernel_stack(ctx, slot, 0);
	if (is_kernel_thread(task_flags))
		return stop(slot, SW_OUTCOME_KERNEL_THREAD);
	if (!sw_task(task, mm))
		return stop(slot, SW_OUTCOME_EXITING);
	abi = slot->in_kernel ? registers_of_task(slot) : registers_of_interrupt(slot->registers, &ctx->regs);
	return enter_user(slot, task, abi);
}

/*
 * Begins the sample of an interrupt: returns its slot, and in *walks whether to walk its user stack. Null if there is no
 * sample; the interrupt's outcome is then already counted.
 */
static __noinline struct sw_slot *begin_interrupt(struct bpf_perf_event_data *ctx, struct sw_cpu *cpu, __u32 kind,
						  bool *walks)
{
	struct task_struct *task = current_task();
	__u32 pid, task_flags, otherwise;
	struct sw_slot *slot;
	__u64 time_ns;

	pid = sampled_process(cpu, task, &task_flags, &time_ns, &otherwise);
	if (!pid)
		goto none;
	slot = begin_sample(kind, pid, !interrupted_user_mode(ctx), time_ns);
	otherwise = SW_OUTCOME_BUSY;
	if (!slot)
		goto none;
	*walks = enter_interrupted(ctx, slot, task, task_flags);
	return slot;
none:
	count_unsampled(cpu, kind, otherwise);
	return 0;
}

SW_SAMPLER("perf_event", cpu, struct bpf_perf_event_data, SW_SAMPLE_CPU,
	   begin_interrupt(ctx, cpu, SW_SAMPLE_CPU, &walks), end_interrupt(slot, cpu), cpu_walks, 0)

/*
 * The index of the counter that interrupts, among the counters of the run. The receiver has it in wakeup_events of the event's
 * attributes, which the kernel keeps, and uses only for events that have a ring. It may change the type that it was given.
 */
static __always_inline __u32 interrupting_counter(struct bpf_perf_event_data *ctx)
{
	/* What the kernel passes. The verifier translates accesses through bpf_perf_event_data to accesses of it. */
	struct bpf_perf_event_data_kern *event_data = (void *)ctx;

	if (!has_several_counters)
		return 0;
	/* Without a branch, which would double the paths that the verifier follows. */
	return BPF_CORE_READ(event_data, event, attr.wakeup_events) & (SW_COUNTERS_MAX - 1);
}

static __always_inline __u32 counter_kind(struct bpf_perf_event_data *ctx)
{
	return SW_SAMPLE_COUNTER + interrupting_counter(ctx);
}

static __always_inline struct sw_slot *begin_count(struct bpf_perf_event_data *ctx, struct sw_cpu *cpu, bool *walks)
{
	struct sw_slot *slot = begin_interrupt(ctx, cpu, counter_kind(ctx), walks);

	if (slot)
		slot->value = ctx->sample_period;
	return slot;
}

SW_SAMPLER("perf_event", counter, struct bpf_perf_event_data, counter_kind(ctx), begin_count(ctx, cpu, &walks),
	   end_interrupt(slot, cpu), counter_walks, 0)

#endif
