/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/* What a walk that came too early leaves to the receiver. */
#ifndef SIDEWINDER_SNAPSHOT_BPF_H
#define SIDEWINDER_SNAPSHOT_BPF_H

#include "regs.bpf.h"
#include "stack.bpf.h"

/* Whether the receiver may have what the walk lacked before long: it is told of mappings after they are used. */
static __always_inline bool came_too_early(__u32 outcome)
{
	return outcome == SW_OUTCOME_NO_TABLE || outcome == SW_OUTCOME_UNKNOWN_PROCESS ||
	       outcome == SW_OUTCOME_NO_MAPPING;
}

/* Stacks that lead nowhere for good must not cost much for good. */
static __always_inline bool may_send_snapshot(struct sw_cpu *cpu, __u64 time_ns)
{
	__u32 window = time_ns >> SW_SNAPSHOT_WINDOW_SHIFT;

	if (cpu->snapshot_window != window) {
		cpu->snapshot_window = window;
		cpu->snapshots_in_window = 0;
	}
	return cpu->snapshots_in_window++ < SW_SNAPSHOTS_PER_WINDOW;
}

/* Where a snapshot starts: below the stack pointer, unless that page was never touched. */
static __always_inline __u64 snapshot_start(__u64 sp)
{
	__u64 start = (sp - SW_RED_ZONE_BYTES) & ~7ull, word;

	return bpf_probe_read_user(&word, sizeof(word), (void *)start) ? sp & ~7ull : start;
}

/* A snapshot with room for so much of the stack, or none. */
static __always_inline struct sw_snapshot *reserve_snapshot(__u64 room)
{
	return bpf_ringbuf_reserve(&snapshots, sizeof(struct sw_snapshot) + room, 0);
}

/* Sends the registers in the slot, and as much of the stack that they point to as there is, and room for it. */
static __always_inline int fill_snapshot(struct sw_snapshot *snapshot, __u32 room, struct sw_slot *slot, __u32 tid,
					 __u64 used)
{
	__u64 quarter = bpf_ringbuf_query(&snapshots, BPF_RB_RING_SIZE) / 4;
	__u32 bytes = 0;

	snapshot->type = SW_RECORD_SNAPSHOT;
	snapshot->reserved = 0;
	snapshot->tid = tid;
	snapshot->time_ns = slot->time_ns;
	__builtin_memcpy(snapshot->registers, slot->registers, sizeof(snapshot->registers));
	snapshot->start = snapshot_start(slot->registers[SW_REG_SP]);
	for (__u32 at = 0; at < room; at += SW_SNAPSHOT_READ_BYTES) {
		if (bpf_probe_read_user(snapshot->stack + at, SW_SNAPSHOT_READ_BYTES, (void *)(snapshot->start + at)))
			break;
		bytes = at + SW_SNAPSHOT_READ_BYTES;
	}
	snapshot->bytes = bytes;
	bpf_ringbuf_submit(snapshot, wakeup(used, sizeof(*snapshot) + room, quarter));
	return 1;
}

/* Whether a snapshot of the sample in the slot was sent. */
static __noinline int send_snapshot(struct sw_slot *slot, __u32 tid)
{
	__u64 used = bpf_ringbuf_query(&snapshots, BPF_RB_AVAIL_DATA);
	__u64 half = bpf_ringbuf_query(&snapshots, BPF_RB_RING_SIZE) / 2;
	struct sw_cpu *cpu = this_cpu();
	struct sw_snapshot *snapshot;

	if (!cpu)
		return 0;
	if (may_send_snapshot(cpu, slot->time_ns)) {
		snapshot = used < half ? reserve_snapshot(SW_SNAPSHOT_LARGE_BYTES) : 0;
		if (snapshot)
			return fill_snapshot(snapshot, SW_SNAPSHOT_LARGE_BYTES, slot, tid, used);
		snapshot = reserve_snapshot(SW_SNAPSHOT_BYTES);
		if (snapshot)
			return fill_snapshot(snapshot, SW_SNAPSHOT_BYTES, slot, tid, used);
	}
	sw_count(cpu->snapshots_refused, 1);
	return 0;
}

#endif
