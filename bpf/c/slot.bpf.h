/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/* Claiming and releasing scratch. */
#ifndef SIDEWINDER_SLOT_BPF_H
#define SIDEWINDER_SLOT_BPF_H

#include "task.bpf.h"

/*
 * Programs interrupt each other on one CPU, perf events other entry points' programs most of all, so each takes the
 * first slot that nobody holds: its own claim is then the only one. (Two that claim at once may both go on to the
 * next. An exchange would tell them apart, but Linux 5.10 has none for programs.) The receiver waits for the end of a
 * use before it reuses memory that a walk might still be reading. So a claim is seen before all that the walk reads; it
 * pairs with the fence of `WalksInProgress::now`, between what the receiver unpublished and its look at the claims.
 */
static __always_inline struct sw_slot *claim_slot(__u8 kind)
{
	__u32 first = bpf_get_smp_processor_id() * SW_SLOTS_PER_CPU;

#pragma unroll
	for (__u32 i = 0; i < SW_SLOTS_PER_CPU; i++) {
		__u32 number = first + i;
		struct sw_slot *slot = bpf_map_lookup_elem(&slots, &number);

		if (!slot)
			return 0;
		if (READ_ONCE(slot->head.claims))
			continue;
		sw_atomic_add(&slot->head.claims, 1);
		smp_mb__after_atomic();
		if (READ_ONCE(slot->head.claims) != 1) {
			sw_atomic_add(&slot->head.claims, -1);
			continue;
		}
		slot->owner = current_pid_tgid();
		slot->kind = kind;
		slot->number = number;
		slot->head.nested += i > 0;
		return slot;
	}
	return 0;
}

/*
 * Finds again what an earlier program of this sample claimed. A task has one sample of a kind under way at most: each
 * kind's programs have ended before its next event.
 */
static __always_inline struct sw_slot *claimed_slot(__u8 kind, __u32 *number)
{
	__u32 first = bpf_get_smp_processor_id() * SW_SLOTS_PER_CPU;
	__u64 owner = current_pid_tgid();

#pragma unroll
	for (__u32 i = 0; i < SW_SLOTS_PER_CPU; i++) {
		struct sw_slot *slot;

		*number = first + i;
		slot = bpf_map_lookup_elem(&slots, number);
		if (slot && slot->owner == owner && slot->kind == kind)
			return slot;
	}
	return 0;
}

/*
 * By either word the receiver knows that the use has ended, so both are written after all that it read. Nobody else writes the
 * sequence of a slot that is in use.
 */
static __always_inline void release_slot(struct sw_slot *slot)
{
	slot->owner = 0;
	slot->context_bytes = 0;
	smp_store_release(&slot->head.sequence, slot->head.sequence + 1);
	smp_mb__before_atomic();
	sw_atomic_add(&slot->head.claims, -1);
}

#endif
