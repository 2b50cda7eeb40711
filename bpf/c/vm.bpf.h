/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/*
 * The registry of language runtimes: which of them the code of a frame belongs to, and what walks its own frames. Only this
 * header includes the headers of runtimes, and their states are in maps.bpf.h.
 */
#ifndef SIDEWINDER_VM_BPF_H
#define SIDEWINDER_VM_BPF_H

#include "cpython.bpf.h"
#include "hotspot.bpf.h"
#include "maps.bpf.h"
#include "table.bpf.h"
#include "v8.bpf.h"
#include "vm_memory.bpf.h"

/* Prepares the slot for the frames of a sample. */
static __always_inline void start_vm_frames(struct sw_slot *slot)
{
	slot->vm_window.bytes = 0;
	start_cpython(slot);
	start_hotspot(slot);
}

/* Whether an offset of the slot's file is in the loop of the process's runtime. */
static __always_inline bool is_vm_loop(const struct sw_slot *slot, __u64 file_offset)
{
	const struct sw_runtime *runtime = runtime_at(slot, slot->runtime_offset);
	bool is_inside = false;

	if (!runtime || runtime->file != slot->file)
		return false;
#pragma unroll
	for (__u32 i = 0; i < SW_VM_LOOP_RANGES; i++)
		is_inside |= file_offset - runtime->loop[i].start < runtime->loop[i].bytes;
	return is_inside;
}

/*
 * Marks the current frame, which was just looked up by find_frame, if its code is a runtime's. Not static: the verifier
 * checks it once.
 */
__noinline int mark_vm_code(__u32 number)
{
	struct sw_slot *slot = bpf_map_lookup_elem(&slots, &number);
	struct sw_found *found;
	__u64 file_offset, flag = 0;
	bool is_generated;

	if (!slot)
		return 0;
	found = place_of_frame(slot);
	is_generated = (__u8)found->head == SW_FRAME_ANONYMOUS;
	file_offset = found->address - slot->is_return_address;
	/* HotSpot's frames have rules, and are looked up elsewhere: what was found here is not remembered. */
	if (is_generated && is_hotspot_code(slot, slot->pc - slot->is_return_address))
		found->clock = 0;
	if (!is_generated && is_vm_loop(slot, file_offset))
		flag = SW_FRAME_VM_LOOP;
	else if (is_v8_code(slot, is_generated, file_offset))
		flag = SW_FRAME_V8_CODE;
	found->head |= flag << SW_FRAME_FLAGS_SHIFT;
	return 0;
}

/* As find_frame, with a mark on code of a runtime. */
static __always_inline int find_marked_frame(struct sw_slot *slot)
{
	if (!find_frame(slot, place_of_frame(slot)))
		return 0;
	if (vm_frames && (slot->runtime_kind || slot->hotspot_offset))
		mark_vm_code(slot->number);
	return 1;
}

/*
 * Looks up the current frame, which is not cached, and its rule. Returns 0 if it is in no executable mapping. Not static, like
 * step_in_slot: the verifier checks it once, and not for each step of a round.
 */
__noinline int find_current_frame(__u32 number)
{
	struct sw_slot *slot = bpf_map_lookup_elem(&slots, &number);

	if (!slot)
		return 0;
	if (vm_frames && is_hotspot_code(slot, slot->pc - slot->is_return_address))
		return find_hotspot_frame(number);
	return find_marked_frame(slot);
}

/* One step in code that is marked. Returns an sw_vm_step. */
static __always_inline int step_in_vm(struct sw_slot *slot, const struct sw_found *found)
{
	if (!vm_frames || !(found->head & (SW_FRAME_VM_LOOP | SW_FRAME_V8_CODE) << SW_FRAME_FLAGS_SHIFT))
		return SW_VM_NATIVE_IS_NEXT;
	return slot->runtime_kind == SW_FRAME_V8 ? step_in_v8(slot->number) : step_in_cpython(slot);
}

/* Finds the rule of the current frame if it depends on the stack, which it does in no code but HotSpot's. */
static __always_inline void settle_rule(struct sw_slot *slot, const struct sw_found *found)
{
	if (!vm_frames || found->number < SW_RULE_HOTSPOT)
		return;
	if (found->number == SW_RULE_HOTSPOT_DEPENDS && !settle_hotspot_frame(slot->number))
		slot->head.vm_frames_missing[SW_VM_NO_CALLER]++;
	slot->head.vm_frames_frames++;
}

/* Pushes what a walk that has ended has not reached. */
static __always_inline void end_vm_frames(__u32 number)
{
	if (vm_frames)
		push_groups_alone(number);
}

#endif
