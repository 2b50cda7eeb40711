/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/*
 * Programs for tests, which no release contains: samples at an address of a program (uprobes), which the CPU clock can
 * interrupt, and walks from registers that a test supplies.
 */
#ifndef SIDEWINDER_TEST_BPF_H
#define SIDEWINDER_TEST_BPF_H

#include "arch.bpf.h"
#include "entry.bpf.h"
#include "maps.bpf.h"
#include "sample.bpf.h"
#include "sampler.bpf.h"
#include "scope.bpf.h"
#include "slot.bpf.h"
#include "unwind.bpf.h"

struct sw_walks probe_walks SEC(".maps");

__u64 probes_lost; /* hits of a probe without a sample */

/*
 * Ends the sample of a probe. Its outcome isn't counted: it isn't an interrupt. If the CPU clock interrupts this program, it
 * takes the next slot.
 */
static __always_inline void end_pass(struct sw_slot *slot, struct sw_cpu *cpu)
{
	if (end_sample(slot, cpu) == SW_OUTCOME_RING_FULL)
		sw_count(probes_lost, 1);
	release_slot(slot);
}

static __always_inline struct sw_slot *begin_pass(bpf_user_pt_regs_t *ctx, struct sw_cpu *cpu, bool *walks)
{
	struct task_struct *task = current_task();
	__u64 time_ns = bpf_ktime_get_ns();
	__u32 pid = process_in_scope(cpu, task);
	struct sw_slot *slot;

	if (!pid)
		return 0;
	slot = begin_sample(SW_SAMPLE_PROBE, pid, false, time_ns);
	if (slot)
		*walks = enter_user(slot, task, registers_of_interrupt(slot->registers, ctx));
	else
		sw_count(probes_lost, 1);
	return slot;
}

SW_SAMPLER("uprobe", probe, bpf_user_pt_regs_t, SW_SAMPLE_PROBE, begin_pass(ctx, cpu, &walks), end_pass(slot, cpu),
	   probe_walks, 0)

/*
 * Walks from the registers that the first argument points to, in memory of the calling process (BPF_PROG_TEST_RUN), as if it
 * had been interrupted there. Returns whether there was a sample.
 */
SEC("raw_tp")
int walk_given(struct bpf_raw_tracepoint_args *ctx)
{
	struct task_struct *task = current_task();
	struct sw_cpu *cpu = this_cpu();
	__u64 time_ns = bpf_ktime_get_ns();
	struct sw_slot *slot;
	__u32 pid;

	if (!cpu)
		return 0;
	pid = process_in_scope(cpu, task);
	slot = pid ? begin_sample(SW_SAMPLE_PROBE, pid, false, time_ns) : 0;
	if (!slot)
		return 0;
	if (!bpf_probe_read_user(slot->registers, sizeof(slot->registers), (void *)ctx->args[0]) &&
	    enter_user(slot, task, SW_ABI_NATIVE))
		walk_by_loop(slot);
	end_pass(slot, cpu);
	return 1;
}

#endif
