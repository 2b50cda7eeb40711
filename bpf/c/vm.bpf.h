/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/*
 * Frames of virtual machines. Each activation of a machine's loop has a native frame, whose code the receiver has marked,
 * and executes a group of the machine's own frames, which are on another stack. The walk pushes a group before the native
 * frame that executes it, one frame in each step: so a stack has all frames in the order in which they called each other.
 *
 * A group that can't be read is one frame that says why, and the walk goes on.
 */
#ifndef SIDEWINDER_VM_BPF_H
#define SIDEWINDER_VM_BPF_H

#include "cpython.bpf.h"
#include "stack.bpf.h"
#include "table.bpf.h"
#include "vm_memory.bpf.h"

static __always_inline void start_vm_frames(struct sw_slot *slot)
{
	slot->vm_state = SW_VM_UNREAD;
	slot->vm_group_ended = 0;
	slot->vm_group_frames = 0;
	slot->vm_window_bytes = 0;
	slot->vm_objects = 0;
}

/* Pushes the frame that stands for one of a group, or for the rest of it. */
static __always_inline int push_missing(struct sw_slot *slot, __u32 kind, __u32 reason)
{
	slot->head.vm_missing[reason & (SW_VM_MISSING_PLACES - 1)]++;
	return push_frame(slot, frame_head(kind, SW_FRAME_MISSING, 0), reason) ? SW_VM_PUSHED : SW_VM_NO_ROOM;
}

/*
 * Pushes the next frame of the current activation's group. Not static: the verifier checks it once (see `step_in_slot`).
 * Returns an sw_vm_step.
 */
__noinline int step_in_vm(__u32 number)
{
	struct sw_slot *slot = bpf_map_lookup_elem(&slots, &number);
	const struct sw_runtime *runtime;
	struct sw_vm_frame frame = {};
	int result;

	if (!slot)
		return SW_VM_GROUP_ENDED;
	runtime = process_runtime(slot);
	if (!runtime || runtime->kind != SW_FRAME_CPYTHON)
		return SW_VM_GROUP_ENDED;
	if (slot->vm_state == SW_VM_UNREAD)
		slot->vm_state = open_cpython(slot, &runtime->cpython, runtime->state);
	if (slot->vm_state != SW_VM_READ) {
		slot->vm_group_ended = 1;
		return push_missing(slot, SW_FRAME_CPYTHON, slot->vm_state - SW_VM_LOST);
	}

	result = next_cpython_frame(slot, &runtime->cpython, &frame);
	if (result == SW_VM_UNREADABLE_FRAME) {
		slot->vm_group_ended = 1;
		return push_missing(slot, SW_FRAME_CPYTHON, slot->vm_frame ? SW_VM_UNREADABLE : SW_VM_NO_FRAMES);
	}
	if (result == SW_VM_GROUP_ENDED)
		return result;
	slot->vm_group_frames++;
	if (result == SW_VM_UNREADABLE_CODE)
		return push_missing(slot, SW_FRAME_CPYTHON, SW_VM_UNREADABLE);
	slot->head.vm_frames++;
	return push_frame(slot, frame.head, frame.address) ? SW_VM_PUSHED : SW_VM_NO_ROOM;
}

/*
 * One step in the group of an activation whose native frame is the current one. SW_VM_GROUP_ENDED: all of the group is in
 * the stack, and the native frame follows.
 */
static __always_inline int step_in_group(struct sw_slot *slot)
{
	int result = SW_VM_GROUP_ENDED;

	if (!slot->vm_group_ended)
		result = step_in_vm(slot->number);
	if (result == SW_VM_GROUP_ENDED) {
		slot->head.vm_groups += slot->vm_group_frames > 0;
		slot->vm_group_ended = 0;
		slot->vm_group_frames = 0;
	}
	return result;
}

#endif
