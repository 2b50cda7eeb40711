/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/*
 * Probes that users place at functions (uprobes), at their returns (uretprobes), and at statically defined trace points of
 * programs (USDT). The program runs in the context of the task that hits the probe. It may be preempted, but stays on its
 * CPU.
 *
 * Every hit in scope is counted, and one of a period is sampled: see sw_probe_hits. A period is what keeps the samples of a
 * probe within its budget. What a hit costs the kernel before this program runs is the same whether it is sampled or not.
 */
#ifndef SIDEWINDER_USER_PROBE_BPF_H
#define SIDEWINDER_USER_PROBE_BPF_H

#include "arch.bpf.h"
#include "entry.bpf.h"
#include "identity.bpf.h"
#include "maps.bpf.h"
#include "sample.bpf.h"
#include "sampler.bpf.h"

/* Before Linux 5.15 attachments have no cookies, and the receiver attaches only the first site. */
static __always_inline struct sw_probe_site *hit_site(void *ctx)
{
	__u32 number = 0;

	if (sw_has_helper(get_attach_cookie))
		number = bpf_get_attach_cookie(ctx) & (SW_PROBE_SITES_MAX - 1);
	return bpf_map_lookup_elem(&probe_sites, &number);
}

static __always_inline __u32 probe_of(const struct sw_probe_site *site)
{
	return READ_ONCE(site->probe) & (SW_USER_PROBES_MAX - 1);
}

/* The kind of samples at a site; 0, which is no kind, without one. */
static __always_inline __u32 kind_of_site(const struct sw_probe_site *site)
{
	return site ? SW_SAMPLE_USER_PROBE + probe_of(site) : 0;
}

/* How many hits until one is sampled: at random, from 1 to twice the period. */
static __always_inline __u64 draw_distance(const struct sw_probe_hits *count)
{
	__u32 period = READ_ONCE(count->period);

	if (period <= 1)
		return 1;
	return 1 + bpf_get_prandom_u32() % (2 * period - 1);
}

/*
 * Counts a hit. Returns for how many hits it is sampled; 0: it is not. A program that preempts one that draws the next hit
 * leaves its own to that one or to a later one.
 */
static __always_inline __u64 count_hit(struct sw_probe_hits *count)
{
	__u64 hits, lost, weight = 0;

	sw_count(count->hits, 1);
	if (READ_ONCE(count->hits) < READ_ONCE(count->next))
		return 0;
	sw_atomic_add(&count->claims, 1);
	if (READ_ONCE(count->claims) == 1) {
		hits = READ_ONCE(count->hits);
		if (hits >= READ_ONCE(count->next)) {
			lost = READ_ONCE(count->lost);
			weight = hits - READ_ONCE(count->sampled) + lost - READ_ONCE(count->lost_taken);
			WRITE_ONCE(count->sampled, hits);
			WRITE_ONCE(count->lost_taken, lost);
			WRITE_ONCE(count->next, hits + draw_distance(count));
		}
	}
	sw_atomic_add(&count->claims, -1);
	return weight;
}

/*
 * Accounts for what a sample cost. A window that has cost its budget before its end makes the period so much longer that
 * a whole window would cost a quarter of it; one that cost less than that makes the next period half as long. Programs that
 * preempt each other here change only the period.
 */
static __always_inline void account_hit(struct sw_probe_hits *count, __u64 began_ns)
{
	__u64 now_ns = bpf_ktime_get_ns(), window = now_ns >> SW_PROBE_WINDOW_SHIFT;
	__u64 elapsed_ns = now_ns & ((1ull << SW_PROBE_WINDOW_SHIFT) - 1);
	__u64 cost_ns = now_ns - began_ns + SW_PROBE_RECEIVER_NS, spent_ns, factor;
	__u64 budget_ns = READ_ONCE(count->budget_ns), period = READ_ONCE(count->period);

	sw_count(count->samples, 1);
	sw_count(count->cost_ns, cost_ns);
	if (READ_ONCE(count->window) != window) {
		if (READ_ONCE(count->window_cost_ns) < budget_ns / 4)
			WRITE_ONCE(count->period, period / 2);
		WRITE_ONCE(count->window, window);
		WRITE_ONCE(count->window_cost_ns, cost_ns);
		WRITE_ONCE(count->window_limit_ns, budget_ns);
		return;
	}
	spent_ns = READ_ONCE(count->window_cost_ns) + cost_ns;
	WRITE_ONCE(count->window_cost_ns, spent_ns);
	if (spent_ns < READ_ONCE(count->window_limit_ns))
		return;
	WRITE_ONCE(count->window_limit_ns, spent_ns + budget_ns);
	factor = (4ull << SW_PROBE_WINDOW_SHIFT) / (elapsed_ns | 1);
	period = (period ? period : 1) * factor;
	WRITE_ONCE(count->period, period < SW_PROBE_PERIOD_MAX ? period : SW_PROBE_PERIOD_MAX);
}

/* A value with the width of a site's, as an unsigned one: negative values are 0. */
static __always_inline __u64 value_of_site(const struct sw_probe_site *site, __s64 value)
{
	__u32 unused = (64 - READ_ONCE(site->bits)) & 63;

	value = READ_ONCE(site->is_signed) ? (value << unused) >> unused :
					     (__s64)((__u64)value << unused >> unused);
	if (value < 0)
		return READ_ONCE(site->is_signed) ? 0 : SW_PROBE_VALUE_MAX;
	return value < (__s64)SW_PROBE_VALUE_MAX ? value : SW_PROBE_VALUE_MAX;
}

/* The value of a hit, from the registers in the slot. Those that can't be read are 0. */
static __always_inline __u64 value_of_hit(const struct sw_slot *slot, const struct sw_probe_site *site)
{
	__u32 operand = READ_ONCE(site->operand), reg = READ_ONCE(site->reg);
	__s64 value = READ_ONCE(site->offset);

	if (operand == SW_OPERAND_NONE)
		return 1;
	if (operand != SW_OPERAND_CONSTANT) {
		if (reg >= SW_REGISTERS)
			return 0;
		barrier_var(reg);
		reg &= SW_RULE_REGISTERS - 1;
		value = operand == SW_OPERAND_REGISTER ? (__s64)slot->registers[reg] : value + (__s64)slot->registers[reg];
	}
	if (operand == SW_OPERAND_MEMORY) {
		__u64 address = value;
		__u32 bytes = READ_ONCE(site->bits) / 8;

		value = 0;
		barrier_var(bytes);
		if (bytes > sizeof(value) || bpf_probe_read_user(&value, bytes, (void *)address))
			return 0;
	}
	return value_of_site(site, value);
}

/*
 * Counts a hit of the current task, and claims a slot if it is sampled. Null if it isn't; its outcome is then already
 * counted. `otherwise`: the outcome of a hit that belongs to no task; SW_OUTCOME_COUNT if it belongs to the current one.
 */
static __always_inline struct sw_slot *claim_hit(struct sw_cpu *cpu, const struct sw_probe_site *site, bool in_kernel,
						 __u32 *task_flags, __u32 otherwise)
{
	__u32 probe = probe_of(site), pid;
	struct sw_probe_hits *count = &cpu->probes[probe];
	struct sw_slot *slot;
	__u64 time_ns, weight;

	if (otherwise != SW_OUTCOME_COUNT)
		goto none;
	pid = sampled_process(cpu, current_task(), task_flags, &time_ns, &otherwise);
	if (!pid)
		goto none;
	weight = count_hit(count);
	otherwise = SW_OUTCOME_THINNED;
	if (!weight)
		goto none;
	slot = begin_sample(SW_SAMPLE_USER_PROBE + probe, pid, in_kernel, time_ns);
	otherwise = SW_OUTCOME_BUSY;
	if (!slot) {
		sw_count(count->lost, weight);
		goto none;
	}
	slot->weight = weight;
	return slot;
none:
	count_unsampled(cpu, SW_SAMPLE_USER_PROBE + probe, otherwise);
	return 0;
}

/* Ends the sample of a hit. */
static __always_inline void end_hit(struct sw_slot *slot, struct sw_cpu *cpu)
{
	__u32 probe = slot->kind - SW_SAMPLE_USER_PROBE;
	__u64 began_ns = slot->time_ns, weight = slot->weight;
	__u32 outcome = end_interrupt(slot, cpu);

	probe &= SW_USER_PROBES_MAX - 1;
	barrier_var(probe);
	if (outcome == SW_OUTCOME_RING_FULL)
		sw_count(cpu->probes[probe].lost, weight);
	account_hit(&cpu->probes[probe], began_ns);
}

/* Begins the sample of a hit of a site, like begin_interrupt. */
static __noinline struct sw_slot *begin_hit_of(const struct sw_probe_site *site, bpf_user_pt_regs_t *ctx,
					       struct sw_cpu *cpu, bool *walks)
{
	__u32 task_flags;
	struct sw_slot *slot = claim_hit(cpu, site, false, &task_flags, SW_OUTCOME_COUNT);

	if (!slot)
		return 0;
	*walks = enter_user(slot, current_task(), registers_of_interrupt(slot->registers, ctx));
	slot->is_return_address = READ_ONCE(site->is_return);
	slot->value = slot->weight * value_of_hit(slot, site);
	return slot;
}

static __always_inline struct sw_slot *begin_hit(bpf_user_pt_regs_t *ctx, struct sw_cpu *cpu, bool *walks)
{
	const struct sw_probe_site *site = hit_site(ctx);

	if (!site || READ_ONCE(cpu->hooks_paused))
		return 0;
	return begin_hit_of(site, ctx, cpu, walks);
}

SW_SAMPLER("uprobe", user_probe, bpf_user_pt_regs_t, kind_of_site(hit_site(ctx)), begin_hit(ctx, cpu, &walks),
	   end_hit(slot, cpu), user_probe_walks, 0)

#endif
