/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/* Claiming and releasing slots, the scratch memory of samples. */
#ifndef SIDEWINDER_SLOT_BPF_H
#define SIDEWINDER_SLOT_BPF_H

#include "task.bpf.h"

/*
 * Claims the first free slot of this CPU: one whose only claim is its own. Programs on one CPU interrupt each other, mostly
 * perf events interrupt other entry points. (Two that claim at the same time may both move on to the next slot. An exchange
 * would decide between them, but Linux 5.10 has none for programs.) The receiver waits for the end of a use before it
 * reuses memory that a walk might still be reading. So the claim is visible before the walk's reads; the barrier pairs with
 * the fence of `WalksInProgress::capture`, between the receiver's unpublishing and its check of the claims.
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
		slot->head.nested_walks += i > 0;
		return slot;
	}
	return 0;
}

/*
 * Finds the slot that an earlier program of this sample claimed. A task has at most one sample of a kind in progress: a
 * kind's programs end before its next event.
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
 * Either word tells the receiver that the use has ended, so both are written after all reads. Only the holder of a slot
 * writes its sequence.
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
