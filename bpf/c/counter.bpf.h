/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/*
 * Interrupts of counters: page faults, switches, cycles. What they have in common with those of the CPU clock is in
 * sample.bpf.c. The kernel counts a fault in its handler, with interrupts of the CPU clock enabled, and in the task's
 * context: the registers are those of the instruction that caused it.
 */
#ifndef SIDEWINDER_COUNTER_BPF_H
#define SIDEWINDER_COUNTER_BPF_H

#include "maps.bpf.h"
#include <bpf/bpf_core_read.h>

/*
 * The index of the counter that interrupts among those of the run. The receiver has it in wakeup_events of the event's
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

static __always_inline struct sw_slot *begin_count(struct bpf_perf_event_data *ctx, struct sw_cpu *cpu, __u32 kind,
						   bool *walks)
{
	struct sw_slot *slot = begin_interrupt(ctx, cpu, kind, walks);

	if (slot)
		slot->value = ctx->sample_period;
	return slot;
}

SEC("perf_event")
int sample_counter(struct bpf_perf_event_data *ctx)
{
	__u32 kind = SW_SAMPLE_COUNTER + interrupting_counter(ctx);
	struct sw_cpu *cpu = this_cpu();
	struct sw_slot *slot;
	bool walks;

	if (!cpu)
		return 0;
	slot = begin_count(ctx, cpu, kind, &walks);
	if (!slot)
		return 0;
	if (walks)
		walk_by_loop(slot);
	end_interrupt(slot, cpu, kind);
	return 0;
}

SEC("perf_event")
int sample_counter_by_calls(struct bpf_perf_event_data *ctx)
{
	__u32 kind = SW_SAMPLE_COUNTER + interrupting_counter(ctx);
	struct sw_cpu *cpu = this_cpu();
	struct sw_slot *slot;
	bool walks;

	if (!cpu)
		return 0;
	slot = begin_count(ctx, cpu, kind, &walks);
	if (!slot)
		return 0;
	if (walks)
		bpf_tail_call(ctx, &counter_walks, 0);
	end_interrupt(slot, cpu, kind);
	return 0;
}

SEC("perf_event")
int walk_counter_by_calls(struct bpf_perf_event_data *ctx)
{
	__u32 kind = SW_SAMPLE_COUNTER + interrupting_counter(ctx);
	struct sw_cpu *cpu = this_cpu();
	struct sw_slot *slot;
	__u32 number;

	slot = claimed_slot(kind, &number);
	if (!cpu || !slot)
		return 0;
	if (walk_by_calls(number))
		bpf_tail_call(ctx, &counter_walks, 0);
	end_interrupt(slot, cpu, kind);
	return 0;
}

#endif
