/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/* Snapshots: copies of registers and stacks for walks that the receiver completes, once it has the mappings and tables. */
#ifndef SIDEWINDER_SNAPSHOT_BPF_H
#define SIDEWINDER_SNAPSHOT_BPF_H

#include "arch.bpf.h"
#include "current_frame.bpf.h"
#include "slot.bpf.h"
#include "stack.bpf.h"
#include "task.bpf.h"

/* A stack pointer further below the first stack's base is on another stack: there is a gap between them. */
#define SW_FIRST_STACK_BYTES_MAX (64ull << 20)

#define SW_FRAMES_ON_OTHER_STACK_MAX 16

/* Limits the number of snapshots, in case the missing data never arrives. */
static __always_inline bool may_send_snapshot(struct sw_cpu *cpu, __u64 time_ns)
{
	__u32 window = time_ns >> SW_SNAPSHOT_WINDOW_SHIFT;

	if (cpu->snapshot_window != window) {
		cpu->snapshot_window = window;
		cpu->snapshots_in_window = 0;
	}
	return cpu->snapshots_in_window++ < SW_SNAPSHOTS_PER_WINDOW;
}

/* Where a snapshot starts: at the red zone below the stack pointer, unless that page was never touched. */
static __always_inline __u64 snapshot_start(__u64 sp)
{
	__u64 start = (sp - SW_RED_ZONE_BYTES) & ~7ull, word;

	return bpf_probe_read_user(&word, sizeof(word), (void *)start) ? sp & ~7ull : start;
}

/* The base of the process's first stack if `sp` is on it; otherwise 0. */
static __always_inline __u64 first_stack_end(__u64 sp)
{
	struct mm_struct *mm = sw_task(current_task(), mm);
	__u64 end = mm && sw_has_start_stack() ? BPF_CORE_READ(mm, start_stack) : 0;

	return sp <= end && end - sp < SW_FIRST_STACK_BYTES_MAX ? end : 0;
}

/*
 * The start of the memory around the base of a stack. C libraries put a thread's control block above its stack, with the
 * thread-local variables in between (glibc, musl). 0: this thread isn't laid out like this.
 */
static __always_inline __u64 base_start(__u64 sp, __u64 end)
{
	__u64 control_block = thread_pointer();

	if (!end && control_block > sp && control_block - sp < SW_FIRST_STACK_BYTES_MAX)
		end = control_block;
	return end ? (end & ~(SW_PAGE_BYTES - 1ull)) + SW_PAGE_BYTES - SW_SNAPSHOT_BASE_BYTES : 0;
}

/*
 * The address to which frame pointers lead outside the copied part of this stack, or 0. This finds the previous stack of
 * code that temporarily switches stacks, as Go's runtime does. In code without frame pointers, the first usually isn't one.
 */
static __always_inline __u64 stack_before(struct sw_slot *slot, __u64 start, __u64 bytes)
{
	__u64 frame = slot->registers[SW_REG_FP];

	if (frame - start >= bytes)
		return 0;
	for (__u32 i = 0; i < SW_FRAMES_ON_OTHER_STACK_MAX; i++) {
		if (bpf_probe_read_user(&frame, sizeof(frame), (void *)frame))
			return 0;
		if (frame - start >= bytes)
			return frame;
	}
	return 0;
}

/*
 * Sends the registers in the slot and the stack from `start` to the end of that page, plus `room` bytes. A page that can't
 * be read is zero: usually it was never touched, like the middle of a large frame. Returns 0 if the ring has no room.
 * `used` is the number of bytes in the ring.
 */
static __always_inline int send_snapshot_of(__u64 start, __u32 room, struct sw_slot *slot, __u64 used)
{
	const __u64 size = sizeof(struct sw_snapshot) + SW_PAGE_BYTES + room;
	struct sw_snapshot *snapshot = bpf_ringbuf_reserve(&snapshots, size, 0);
	__u64 bytes = SW_PAGE_BYTES - start % SW_PAGE_BYTES, kept = 0;

	if (!snapshot)
		return 0;
	snapshot->type = SW_RECORD_SNAPSHOT;
	snapshot->reserved = 0;
	snapshot->tid = slot->tid;
	snapshot->time_ns = slot->time_ns;
	__builtin_memcpy(snapshot->registers, slot->registers, sizeof(snapshot->registers));
	snapshot->start = start;
	/* The compiler must not count from the page's end downwards, which the verifier can't follow. */
	barrier_var(bytes);
	/* The helper writes zeros if it can't read. */
	if (!bpf_probe_read_user(snapshot->stack, bytes, (void *)start))
		kept = bytes;
	for (__u32 left = room; left; left -= SW_PAGE_BYTES) {
		if (!bpf_probe_read_user(snapshot->stack + bytes, SW_PAGE_BYTES, (void *)(start + bytes)))
			kept = bytes + SW_PAGE_BYTES;
		bytes += SW_PAGE_BYTES;
	}
	snapshot->bytes = kept;
	bpf_ringbuf_submit(snapshot, wakeup(used, size, bpf_ringbuf_query(&snapshots, BPF_RB_RING_SIZE)));
	return 1;
}

/*
 * Sends as much of the stack as the ring has room for; its base too, if that is further away and the ring is less than half
 * full; and the previous stack.
 */
static __always_inline int send_stack(struct sw_slot *slot)
{
	__u64 used = bpf_ringbuf_query(&snapshots, BPF_RB_AVAIL_DATA);
	__u64 size = bpf_ringbuf_query(&snapshots, BPF_RB_RING_SIZE);
	__u64 sp = slot->registers[SW_REG_SP], start = snapshot_start(sp), end = first_stack_end(sp);
	__u64 wanted = end ? end - start : ~0ull, base = base_start(sp, end), before, sent;

	if (wanted > SW_SNAPSHOT_LARGE_BYTES && used < size / 4 &&
	    send_snapshot_of(start, SW_SNAPSHOT_HUGE_BYTES, slot, used))
		sent = SW_SNAPSHOT_HUGE_BYTES;
	else if (wanted > SW_SNAPSHOT_BYTES && used < size / 2 &&
		 send_snapshot_of(start, SW_SNAPSHOT_LARGE_BYTES, slot, used))
		sent = SW_SNAPSHOT_LARGE_BYTES;
	else if (send_snapshot_of(start, SW_SNAPSHOT_BYTES, slot, used))
		sent = SW_SNAPSHOT_BYTES;
	else
		return 0;
	if (sent > SW_SNAPSHOT_BYTES && base > start + sent)
		send_snapshot_of(base, SW_SNAPSHOT_BASE_BYTES - SW_PAGE_BYTES, slot, used);
	before = stack_before(slot, start, sent);
	if (before)
		send_snapshot_of(before, SW_SNAPSHOT_BYTES, slot, used);
	return 1;
}

/*
 * Sends a snapshot of the current sample of this kind; returns whether it did. Not static, so that the verifier checks it
 * once and not for each end of a walk (see `read_context`).
 */
__noinline int send_snapshot(__u32 kind)
{
	__u32 number;
	struct sw_slot *slot = claimed_slot(kind, &number);
	struct sw_cpu *cpu = this_cpu();

	if (!slot || !cpu)
		return 0;
	if (may_send_snapshot(cpu, slot->time_ns) && send_stack(slot))
		return 1;
	slot->head.snapshots_refused++;
	return 0;
}

#endif
