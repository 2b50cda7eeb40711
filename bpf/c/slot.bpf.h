/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/* Claiming and releasing scratch. */
#ifndef SIDEWINDER_SLOT_BPF_H
#define SIDEWINDER_SLOT_BPF_H

#include "maps.bpf.h"

/*
 * Programs interrupt each other on one CPU, perf events other entry points' programs most of all, so each takes the
 * first slot that nobody holds. An odd sequence number is also what the receiver waits for to change before it
 * reuses memory that a walk might still be reading: the exchange orders the claim before all that the walk reads.
 */
static __always_inline struct sw_slot *claim_slot(void)
{
	__u32 first = bpf_get_smp_processor_id() * SW_SLOTS_PER_CPU;

#pragma unroll
	for (__u32 i = 0; i < SW_SLOTS_PER_CPU; i++) {
		__u32 number = first + i;
		struct sw_slot *slot = bpf_map_lookup_elem(&slots, &number);
		__u32 sequence;

		if (!slot)
			return 0;
		sequence = slot->sequence;
		if (!(sequence & 1) &&
		    __sync_val_compare_and_swap(&slot->sequence, sequence, sequence + 1) == sequence) {
			struct sw_cpu *cpu = this_cpu();

			if (i && cpu)
				sw_count(cpu->nested, 1);
			return slot;
		}
	}
	return 0;
}

static __always_inline void release_slot(struct sw_slot *slot)
{
	__sync_fetch_and_add(&slot->sequence, 1);
}

#endif
