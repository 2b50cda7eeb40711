/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/*
 * Probes at tracepoints of the kernel. Hits are counted, and their budget kept, as in user_probe.bpf.h. The kernel finds a tracepoint by
 * its name, without tracefs, and calls a program (raw_tp) with the arguments as 64-bit words.
 *
 * A tracepoint is hit by every task of the node, so each hit runs a program, which ignores those out of scope. Programs can't
 * ask at which tracepoint they are (before Linux 6.10, which has cookies), so each tracepoint has its own programs.
 *
 * Before Linux 6.2 a program is entered again if it comes by its own tracepoint, as exceptions:page_fault_kernel when memory of
 * the user can't be read. Such a hit takes the next slot, so that these are few.
 */
#ifndef SIDEWINDER_TRACEPOINT_BPF_H
#define SIDEWINDER_TRACEPOINT_BPF_H

#include "arch.bpf.h"
#include "entry.bpf.h"
#include "maps.bpf.h"
#include "sampler.bpf.h"
#include "user_probe.bpf.h"

/* A tracepoint has at most this many arguments (MAX_BPF_FUNC_ARGS). */
#define SW_TRACEPOINT_ARGUMENTS 16

/* Whether an interrupt has stopped the current task. */
static __always_inline bool in_interrupt(void)
{
	__u32 count;

	return !read_preempt_count(&count) || count & (SOFTIRQ_OFFSET | HARDIRQ_MASK | NMI_MASK);
}

/* Its value, from the arguments that `ctx` points to. */
static __always_inline __u64 value_of_tracepoint(const void *ctx, const struct sw_probe_site *site)
{
	__u64 index = READ_ONCE(site->reg);
	__s64 value = 0;

	if (READ_ONCE(site->operand) != SW_OPERAND_ARGUMENT)
		return 1;
	index &= SW_TRACEPOINT_ARGUMENTS - 1;
	/* A read by the context's pointer would limit the program to tracepoints that have this argument. */
	if (bpf_probe_read_kernel(&value, sizeof(value), ctx + index * sizeof(__u64)))
		return 0;
	return value_of_site(site, value);
}

/*
 * Begins the sample of a hit, like begin_interrupt. What an interrupt does belongs to no task: it may be work for any other, of
 * another pod as well.
 */
static __noinline struct sw_slot *begin_tracepoint_hit_of(const struct sw_probe_site *site, void *ctx, struct sw_cpu *cpu,
							  bool *walks)
{
	struct task_struct *task = current_task();
	__u32 task_flags, otherwise = in_interrupt() ? SW_OUTCOME_OUT_OF_SCOPE : SW_OUTCOME_COUNT;
	struct sw_slot *slot = claim_hit(cpu, site, true, &task_flags, otherwise);

	if (!slot)
		return 0;
	slot->value = slot->weight * value_of_tracepoint(ctx, site);
	*walks = enter_from_kernel(ctx, slot, task, task_flags, SW_TRACEPOINT_FRAMES + 1);
	return slot;
}

static __always_inline struct sw_probe_site *tracepoint_site(__u32 tracepoint)
{
	__u32 number = SW_PROBE_SITES_MAX + tracepoint;

	return bpf_map_lookup_elem(&probe_sites, &number);
}

static __always_inline struct sw_slot *begin_tracepoint_hit(void *ctx, struct sw_cpu *cpu, __u32 tracepoint, bool *walks)
{
	const struct sw_probe_site *site = tracepoint_site(tracepoint);

	if (!site || READ_ONCE(cpu->hooks_paused))
		return 0;
	return begin_tracepoint_hit_of(site, ctx, cpu, walks);
}

#define SW_TRACEPOINT_SAMPLER(tracepoint)                                                                     \
	SW_SAMPLER("raw_tp", tracepoint_##tracepoint, void, kind_of_site(tracepoint_site(tracepoint)),        \
		   begin_tracepoint_hit(ctx, cpu, tracepoint, &walks), end_hit(slot, cpu), tracepoint_walks, tracepoint)

SW_TRACEPOINT_SAMPLER(0)
SW_TRACEPOINT_SAMPLER(1)
SW_TRACEPOINT_SAMPLER(2)
SW_TRACEPOINT_SAMPLER(3)
_Static_assert(SW_TRACEPOINTS_MAX == 4, "each tracepoint has its own programs");

#endif
