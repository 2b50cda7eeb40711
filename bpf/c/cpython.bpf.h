/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/*
 * The walk of CPython's frames. Each activation of its loop has a native frame, whose code the receiver has marked, and executes a
 * group of CPython's own frames, which are on another stack. The walk pushes a group before the native frame that executes it, a
 * few frames in each step: so a stack has all frames in the order in which they called each other.
 *
 * A group that can't be read is one frame that says why, and the walk goes on.
 */
#ifndef SIDEWINDER_CPYTHON_BPF_H
#define SIDEWINDER_CPYTHON_BPF_H

#include "cpython/frame.bpf.h"
#include "current_frame.bpf.h"
#include "maps.bpf.h"
#include "stack.bpf.h"
#include "table.bpf.h"
#include "vm_memory.bpf.h"

#define SW_CPYTHON_FRAMES_PER_STEP 8
#define SW_CPYTHON_STEPS_ALONE 128 /* the most steps that take frames without the native frames of their activations */

static __always_inline void start_cpython(struct sw_slot *slot)
{
	slot->cpython.state = SW_CPYTHON_UNREAD;
	slot->cpython.group_progress = SW_CPYTHON_GROUP_OPEN;
	slot->cpython.group_frames = 0;
	slot->cpython.objects = 0;
	slot->cpython.is_innermost = 1;
	slot->cpython.has_no_group = 0;
	slot->cpython.is_lost = 0;
	slot->cpython.is_alone = 0;
	slot->cpython.frames_met = 0;
	slot->cpython.frame_before = 0;
	slot->cpython.anchor = 0;
	slot->cpython.cframe = 0;
}

/* Pushes the frame that stands for one of a group, or for the rest of it. Not static: the verifier checks it once. */
__noinline int push_missing(__u32 number, __u32 reason)
{
	struct sw_slot *slot = bpf_map_lookup_elem(&slots, &number);

	barrier_var(reason);
	if (!slot)
		return SW_VM_NO_ROOM;
	slot->head.vm_frames_missing[reason & (SW_VM_MISSING_PLACES - 1)]++;
	return push_frame(slot, frame_head(SW_FRAME_CPYTHON, SW_FRAME_MISSING, 0), reason) ? SW_VM_UNFINISHED : SW_VM_NO_ROOM;
}

/* Pushes a frame that stands for the rest of the current activation's group. */
static __always_inline int end_with_missing(struct sw_slot *slot, __u32 reason)
{
	end_group(slot);
	return push_missing(slot->number, reason);
}

static __always_inline void mark_place(struct sw_slot *slot)
{
	slot->cpython.mark = (struct sw_cpython_mark){
		.frame = slot->cpython.frame,
		.hash = slot->hash,
		.count = slot->count,
		.chunks = slot->chunks,
		.depth = slot->depth,
		.frames = slot->head.vm_frames_frames,
		.unreadable = slot->head.vm_frames_missing[SW_VM_UNREADABLE],
	};
}

/*
 * The group that seemed to belong to the innermost activation belongs to the next one: the innermost has no frame yet, or none any
 * more. Removes the group from the stack, to be pushed where it belongs, unless the chunk in which it begins was sent.
 */
static __always_inline int remove_group(struct sw_slot *slot)
{
	const struct sw_cpython_mark *mark = &slot->cpython.mark;

	if (slot->chunks != mark->chunks) {
		slot->cpython.has_no_group = 1;
		return SW_VM_NATIVE_IS_NEXT;
	}
	slot->cpython.frame = mark->frame;
	slot->hash = mark->hash;
	slot->count = mark->count;
	slot->depth = mark->depth;
	slot->head.vm_frames_frames = mark->frames;
	slot->head.vm_frames_missing[SW_VM_UNREADABLE] = mark->unreadable;
	slot->cpython.frames_met = 0;
	slot->cpython.frame_before = 0;
	slot->cpython.group_frames = 0;
	return end_with_missing(slot, SW_VM_NO_FRAMES);
}

/*
 * Finds the next group when the previous frames don't lead to it: in the activation that lost its own behind its shim, or, with
 * a `cframe`, in the next activation. `end` is where the current one's native frame ends.
 */
static __always_inline int find_frames(struct sw_slot *slot, const struct sw_cpython *cpython, __u64 end)
{
	bool has_cframe = slot->cpython.cframe != 0;

	if (has_cframe && slot->cpython.group_progress != SW_CPYTHON_GROUP_OPEN)
		return SW_VM_NATIVE_IS_NEXT;
	slot->cpython.is_lost = 0;
	if (end && slot->cpython.distances.ranges == slot->ranges)
		find_cpython_frames(slot, cpython, end, has_cframe);
	return has_cframe ? SW_VM_UNFINISHED : SW_VM_NATIVE_IS_NEXT;
}

/*
 * Decides what to do at the end of a group, whose activation has a native frame up to `end` (0: not known). Returns as
 * step_in_group. Each activation keeps something in its native frame, the anchor: it tells whose the group is.
 */
static __always_inline int settle_group(struct sw_slot *slot, const struct sw_cpython *cpython, __u64 end)
{
	__u64 anchor = slot->cpython.anchor;
	bool is_innermost = slot->cpython.is_innermost;

	slot->cpython.anchor = 0;
	slot->cpython.is_innermost = 0;
	if (slot->cpython.is_lost)
		return find_frames(slot, cpython, end);
	if (end && anchor - slot->sp < end - slot->sp) {
		if (is_innermost)
			slot->cpython.distances.cframe = slot->cpython.cframe ? end - slot->cpython.cframe : 0;
		slot->cpython.distances.anchor = end - anchor;
		slot->cpython.distances.ranges = slot->ranges;
	} else if (end && is_innermost && anchor >= end) {
		return remove_group(slot);
	} else if (end && cpython->group_form == SW_CPYTHON_ENDS_AT_SHIM) {
		/* The frame that seemed to end the group is torn. */
		slot->cpython.is_lost = 1;
		return end_with_missing(slot, SW_VM_UNREADABLE);
	}
	return slot->cpython.group_frames ? SW_VM_NATIVE_IS_NEXT : end_with_missing(slot, SW_VM_NO_FRAMES);
}

/*
 * Opens the innermost activation's group, the first of a walk, whose `state` then says whether it could be read. Not static: the
 * verifier checks it once, and not for each way into the loop that follows.
 */
__noinline int open_groups(__u32 number)
{
	struct sw_slot *slot = bpf_map_lookup_elem(&slots, &number);
	const struct sw_runtime *runtime = slot ? process_runtime(slot, SW_FRAME_CPYTHON) : 0;
	struct sw_vm_scratch *scratch = vm_scratch(number);
	__u64 file_offset;

	if (!runtime || !scratch)
		return 0;
	slot->cpython.state = open_cpython(slot, scratch, &runtime->cpython, runtime->state);
	if (slot->cpython.is_alone)
		return 0;
	mark_place(slot);
	file_offset = place_of_frame(slot)->address - slot->is_return_address;
	/* Into memory, which the verifier doesn't track: it would check what follows for each range. */
#pragma unroll
	for (__u32 i = 0; i < SW_VM_UNLINKED_RANGES; i++)
		if (file_offset - runtime->unlinked[i].start < runtime->unlinked[i].bytes)
			slot->cpython.has_no_group = 1;
	return 0;
}

/* Pushes the next frame of the current activation's group. Returns an sw_vm_step. */
static __always_inline int push_next_frame(struct sw_slot *slot, struct sw_vm_scratch *scratch,
					   const struct sw_runtime *runtime)
{
	struct sw_frame frame = {};
	int result = next_cpython_frame(slot, scratch, &runtime->cpython, &frame);

	if (result == SW_CPYTHON_UNREADABLE_FRAME) {
		slot->cpython.is_lost = 1;
		return end_with_missing(slot, slot->cpython.frame ? SW_VM_UNREADABLE : SW_VM_NO_FRAMES);
	}
	if (result == SW_CPYTHON_NO_FRAME)
		return SW_VM_NATIVE_IS_NEXT;
	slot->cpython.group_frames++;
	if (result == SW_CPYTHON_UNREADABLE_CODE)
		return push_missing(slot->number, SW_VM_UNREADABLE);
	slot->head.vm_frames_frames++;
	return push_frame(slot, frame.head, frame.address) ? SW_VM_UNFINISHED : SW_VM_NO_ROOM;
}

/*
 * Pushes frames of the current activation's group: several, because what it takes to begin a step costs as much as a frame.
 * Returns an sw_vm_step.
 */
static __always_inline int push_frames(struct sw_slot *slot, struct sw_vm_scratch *scratch,
				       const struct sw_runtime *runtime)
{
	int result = SW_VM_NATIVE_IS_NEXT;

	if (slot->cpython.state == SW_CPYTHON_UNREAD)
		open_groups(slot->number);
	if (slot->cpython.state != SW_CPYTHON_READ)
		return end_with_missing(slot, slot->cpython.state - SW_CPYTHON_LOST);
	if (slot->cpython.has_no_group) {
		slot->cpython.has_no_group = 0;
		slot->cpython.is_innermost = 0;
		slot->cpython.anchor = 0;
		/* The innermost activation's `cframe` may not be written yet. */
		slot->cpython.is_lost = slot->cpython.cframe != 0;
		return end_with_missing(slot, SW_VM_NO_FRAMES);
	}
	for (__u32 i = 0; i < SW_CPYTHON_FRAMES_PER_STEP; i++) {
		result = push_next_frame(slot, scratch, runtime);
		if (result != SW_VM_UNFINISHED || slot->cpython.group_progress != SW_CPYTHON_GROUP_OPEN || slot->depth >= frame_limit)
			break;
	}
	return result;
}

/*
 * One step in the current activation's group, and what there is to decide at its end. Not static: the verifier checks it
 * once (see `step_in_slot`). Returns an sw_vm_step.
 */
__noinline int step_in_group(__u32 number)
{
	struct sw_slot *slot = bpf_map_lookup_elem(&slots, &number);
	const struct sw_runtime *runtime = slot ? process_runtime(slot, SW_FRAME_CPYTHON) : 0;
	struct sw_vm_scratch *scratch = vm_scratch(number);
	int result = SW_VM_NATIVE_IS_NEXT;

	if (!runtime)
		return SW_VM_NATIVE_IS_NEXT;
	if (!scratch)
		return end_with_missing(slot, SW_VM_BUSY);
	if (slot->cpython.group_progress == SW_CPYTHON_GROUP_OPEN && !slot->cpython.is_lost)
		result = push_frames(slot, scratch, runtime);
	if (result == SW_VM_NATIVE_IS_NEXT && !slot->cpython.is_alone)
		result = settle_group(slot, &runtime->cpython, frame_end(slot, place_of_frame(slot)));
	return result;
}

/*
 * One step in CPython's frames without the native frames of the activations that execute them: what would end a group there
 * is pushed, too. Not static: the verifier checks it once. Returns whether there may be more.
 */
__noinline int step_in_group_alone(__u32 number)
{
	struct sw_slot *slot = bpf_map_lookup_elem(&slots, &number);
	int result;

	if (!slot || (slot->cpython.state != SW_CPYTHON_UNREAD && !slot->cpython.frame) || slot->depth >= frame_limit)
		return 0;
	slot->cpython.is_alone = 1;
	result = step_in_group(number);
	slot->cpython.is_alone = 0;
	if (slot->cpython.state != SW_CPYTHON_READ || slot->cpython.is_lost || result == SW_VM_NO_ROOM)
		return 0;
	if (result != SW_VM_NATIVE_IS_NEXT && slot->cpython.group_progress == SW_CPYTHON_GROUP_OPEN)
		return 1;
	if (!push_frame(slot, frame_head(SW_FRAME_CPYTHON, SW_FRAME_GROUP_END, 0), slot->cpython.anchor))
		return 0;
	slot->cpython.anchor = 0;
	slot->cpython.group_progress = SW_CPYTHON_GROUP_OPEN;
	slot->cpython.group_frames = 0;
	return 1;
}

/*
 * Pushes the groups of CPython that a walk has not reached, if it ended for lack of a table or a mapping. They are gone when
 * the receiver can find the native frames, and puts the groups before those. Not static, either.
 */
__noinline int push_groups_alone(__u32 number)
{
	struct sw_slot *slot = bpf_map_lookup_elem(&slots, &number);
	const struct sw_runtime *runtime = slot ? process_runtime(slot, SW_FRAME_CPYTHON) : 0;

	if (!runtime || !came_too_early(slot->outcome) || !vm_scratch(number))
		return 0;
	for (__u32 i = 0; i < SW_CPYTHON_STEPS_ALONE; i++)
		if (!step_in_group_alone(number))
			break;
	return 0;
}

/* One step in the group of the activation whose native frame is the current one. Returns an sw_vm_step. */
static __always_inline int step_in_cpython(struct sw_slot *slot)
{
	int result = SW_VM_NATIVE_IS_NEXT;

	if (slot->cpython.group_progress != SW_CPYTHON_GROUP_SETTLED)
		result = step_in_group(slot->number);
	if (result == SW_VM_NATIVE_IS_NEXT) {
		slot->head.vm_frames_groups += slot->cpython.group_frames > 0;
		slot->cpython.group_progress = SW_CPYTHON_GROUP_OPEN;
		slot->cpython.group_frames = 0;
	}
	return result;
}

#endif
