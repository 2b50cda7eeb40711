/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/*
 * Frames of CPython 3.8 to 3.14, with and without the global interpreter lock. A thread's state leads to its frames, innermost
 * first, and each frame to its code object, which is a function. A code object may be freed and its memory used for another
 * one, so a frame has a cookie too, by which the receiver recognizes the code object when it reads its name.
 *
 * Frames of an interrupted thread don't change while they are read: the thread doesn't run, and others don't touch them.
 */
#ifndef SIDEWINDER_CPYTHON_FRAME_BPF_H
#define SIDEWINDER_CPYTHON_FRAME_BPF_H

#include "../arch.bpf.h"
#include "../maps.bpf.h"
#include "../stack_window.bpf.h"
#include "../table.bpf.h"
#include "../tls.bpf.h"
#include "../vm_memory.bpf.h"
#include "code_object.bpf.h"
#include "cookie.bpf.h"

_Static_assert(SW_CPYTHON_STATE_BYTES <= SW_VM_WINDOW_BYTES, "a state fits the window");
_Static_assert(SW_CPYTHON_FRAME_BYTES <= SW_VM_WINDOW_BYTES, "a frame fits the window");

/* What reading the next frame has found. */
enum sw_cpython_read {
	SW_CPYTHON_FRAME_READ = 0,
	SW_CPYTHON_NO_FRAME, /* it isn't in this activation's group */
	SW_CPYTHON_UNREADABLE_FRAME, /* or one that was met before; those after it can't be found through it */
	SW_CPYTHON_UNREADABLE_CODE, /* of a frame that was read */
};

/* The lowest bits of a reference to an object are tags (since 3.14). */
#define SW_CPYTHON_TAGS 7ull

/*
 * The address of the current thread's state, from the first of two places that isn't null: while a thread doesn't hold the
 * interpreter's lock, it has no current state, but still that with which it began.
 */
static __always_inline __u64 thread_state(struct sw_slot *slot, struct sw_vm_scratch *scratch,
					  const struct sw_tls_variable *places)
{
	struct sw_cpython_thread *known = &scratch->cpython.threads[slot->tid & (SW_CPYTHON_THREADS - 1)];

	if (known->ranges != slot->ranges || known->tid != slot->tid || known->clock != slot->clock)
		*known = (struct sw_cpython_thread){ .ranges = slot->ranges, .tid = slot->tid, .clock = slot->clock };
	for (__u32 i = 0; i < 2; i++) {
		bool failed = false;
		__u64 state = 0;

		if (!known->addresses[i] && places[i].model)
			known->addresses[i] = variable_address(slot, &places[i], &failed);
		if (known->addresses[i] && !bpf_probe_read_user(&state, sizeof(state), (void *)known->addresses[i]) &&
		    state)
			return state;
	}
	return 0;
}

/*
 * Whether frames lead to one that was met before: each is compared with the one whose number in this walk was the last power
 * of two (Brent's algorithm), so a cycle is found before it has been walked three times.
 */
static __always_inline bool was_met(struct sw_slot *slot, __u64 frame)
{
	__u32 number = ++slot->cpython.frames_met;

	if (frame == slot->cpython.frame_before)
		return true;
	if (!(number & (number - 1)))
		slot->cpython.frame_before = frame;
	return false;
}

static __always_inline void end_group(struct sw_slot *slot)
{
	slot->cpython.group_progress = slot->cpython.anchor || slot->cpython.is_lost ? SW_CPYTHON_GROUP_ENDED : SW_CPYTHON_GROUP_SETTLED;
}

/* Reads the address of the innermost frame into the slot. Returns the walk's new sw_cpython_state. */
static __always_inline __u32 open_cpython(struct sw_slot *slot, struct sw_vm_scratch *scratch,
					  const struct sw_cpython *cpython,
					  const struct sw_tls_variable *places)
{
	__u64 state = thread_state(slot, scratch, places), thread = thread_pointer(), frame, cframe = 0;

	if (!state || !thread || !read_vm(slot, scratch, state, SW_CPYTHON_STATE_BYTES))
		return SW_CPYTHON_LOST + SW_VM_NO_STATE;
	if (!is_pthread_of(thread, vm_word(slot, scratch, state + cpython->thread_id)))
		return SW_CPYTHON_LOST + SW_VM_OTHER_THREAD;
	frame = vm_word(slot, scratch, state + (cpython->cframe ? cpython->cframe : cpython->current_frame));
	/* The innermost activation has it on its stack. */
	if (cpython->cframe) {
		cframe = frame;
		if (!try_read_word(slot, frame + cpython->current_frame, &frame))
			return SW_CPYTHON_LOST + SW_VM_NO_STATE;
	}
	slot->cpython.cframe = cframe;
	if (cpython->group_form == SW_CPYTHON_LAST_IS_ENTRY)
		slot->cpython.anchor = cframe;
	slot->cpython.frame = frame;
	return SW_CPYTHON_READ;
}

/*
 * The cookie of a code object, read or remembered from an earlier frame of this sample: until the next one, the object may be
 * freed, and another one may be at its address. Each can be remembered in two places, so that nearly all functions of a deep
 * stack are. Those of a young process are sent.
 */
static __always_inline __u32 code_cookie(struct sw_slot *slot, struct sw_vm_scratch *scratch, __u64 code)
{
	__u32 hash = (__u32)(code >> 4) * SW_HASH_MULTIPLIER, now = (__u32)slot->time_ns, cookie;
	struct sw_vm_code *first = &scratch->codes[hash >> (32 - SW_VM_CODES_BITS)];
	struct sw_vm_code *second = &scratch->codes[(hash >> (32 - 2 * SW_VM_CODES_BITS)) & (SW_VM_CODES - 1)];
	struct sw_vm_code *known = first->address == code ? first : second;

	if (known->address == code && known->sample == now)
		return known->cookie;
	cookie = read_cookie(slot->number, code);
	if (!cookie)
		return 0;
	if (is_young(slot))
		send_code(slot->number, code, cookie);
	if (first->sample != now)
		known = first;
	known->address = code;
	known->sample = now;
	known->cookie = cookie;
	return cookie;
}

/*
 * The offset of an instruction in a copy of a code object's bytecode, of which each thread but the first has its own (3.14
 * without the lock). When a thread makes its copy, the copy's number is in the frame before the instruction in the copy is:
 * then the instruction is in the code object's own bytecode. Not static: the verifier checks it once.
 */
__noinline int offset_in_copy(__u32 number, __u64 code, __u64 instruction, __u32 copy)
{
	struct sw_slot *slot = bpf_map_lookup_elem(&slots, &number);
	const struct sw_runtime *runtime = slot ? process_runtime(slot, SW_FRAME_CPYTHON) : 0;
	struct sw_vm_scratch *scratch = vm_scratch(number);
	__u64 array, bytecode = 0, offset;
	struct sw_vm_link *known;

	if (!runtime || !scratch)
		return SW_CPYTHON_NO_PLACE;
	known = remembered_link(scratch, code);
	if (known->from != code || known->number != copy || known->sample != (__u32)slot->time_ns) {
		if (bpf_probe_read_user(&array, sizeof(array), (void *)(code + runtime->cpython.copies)) ||
		    bpf_probe_read_user(&bytecode, sizeof(bytecode), (void *)(array + (copy + 1ull) * sizeof(__u64))))
			bytecode = 0;
		*known = (struct sw_vm_link){
			.from = code, .to = bytecode, .sample = slot->time_ns, .number = copy
		};
	}
	offset = instruction - known->to;
	if (offset >= SW_CPYTHON_NO_PLACE)
		offset = instruction - code - runtime->cpython.bytecode;
	return offset < SW_CPYTHON_NO_PLACE ? offset : SW_CPYTHON_NO_PLACE;
}

/* The offset in the bytecode of the instruction of a frame, which is in the window. Before the first one it is negative. */
static __always_inline __u32 instruction_offset(const struct sw_slot *slot, const struct sw_vm_scratch *scratch,
						const struct sw_cpython *cpython, __u64 frame, __u64 code)
{
	__u64 instruction = vm_word(slot, scratch, frame + cpython->instruction);
	__u32 copy;

	if (cpython->instruction_form != SW_CPYTHON_POINTER)
		return (__u32)instruction << (cpython->instruction_form == SW_CPYTHON_INDEX_BY_2);
	copy = cpython->copies ? vm_word(slot, scratch, frame + cpython->copy) : 0;
	if (copy)
		return offset_in_copy(slot->number, code, instruction, copy);
	return instruction - code - cpython->bytecode;
}

/* Whether an address is in the native frame of the current activation, or a little above it. */
static __always_inline bool is_on_stack(const struct sw_slot *slot, __u64 address)
{
	return address - slot->sp < SW_STACK_WINDOW_BYTES;
}

/*
 * Whether a frame, which is on the C stack, is the one that the loop keeps there below the group of the current activation; then
 * its caller is the next frame. It is read with the stack: the window on the other frames stays where it is. Not static: the
 * verifier checks it once.
 */
__noinline int is_shim_on_stack(__u32 number, __u64 frame)
{
	struct sw_slot *slot = bpf_map_lookup_elem(&slots, &number);
	const struct sw_runtime *runtime = slot ? process_runtime(slot, SW_FRAME_CPYTHON) : 0;
	__u64 owner, word, previous;

	if (!runtime)
		return 0;
	owner = frame + runtime->cpython.owner;
	if (!try_read_word(slot, owner & ~7ull, &word) ||
	    !try_read_word(slot, frame + runtime->cpython.previous, &previous))
		return 0;
	if ((__u8)(word >> (owner & 7) * 8) < SW_CPYTHON_OWNED_BY_C_STACK)
		return 0;
	slot->cpython.frame = previous;
	slot->cpython.anchor = frame;
	return 1;
}

/* Whether a frame is a shim, as is_shim_on_stack; most frames aren't on the C stack. */
static __always_inline bool is_shim(struct sw_slot *slot, __u64 frame)
{
	return is_on_stack(slot, frame) && is_shim_on_stack(slot->number, frame);
}

/*
 * Finds frames to which the previous ones don't lead in an activation's native frame, which ends at `end`, where other
 * activations have the same: in its `cframe`, its own group; in the shim that ends its group, the next one.
 */
static __always_inline void find_cpython_frames(struct sw_slot *slot, const struct sw_cpython *cpython, __u64 end,
						bool has_cframe)
{
	__u64 frame;

	if (has_cframe) {
		if (slot->cpython.distances.cframe &&
		    try_read_word(slot, end - slot->cpython.distances.cframe + cpython->current_frame, &frame))
			slot->cpython.frame = frame;
	} else if (cpython->group_form == SW_CPYTHON_ENDS_AT_SHIM && is_shim(slot, end - slot->cpython.distances.anchor)) {
		slot->cpython.anchor = 0;
	}
}

/*
 * Reads the next frame, and makes its caller the next one. Returns an sw_cpython_read; the walk's `group_progress` says whether
 * it is the last in its activation's group.
 */
static __always_inline int next_cpython_frame(struct sw_slot *slot, struct sw_vm_scratch *scratch,
					      const struct sw_cpython *cpython, struct sw_frame *out)
{
	__u64 frame = slot->cpython.frame, code;
	__u32 cookie, group_form = cpython->group_form;
	__u8 owner;

	if (group_form == SW_CPYTHON_ENDS_AT_SHIM && is_shim(slot, frame))
		return SW_CPYTHON_NO_FRAME;
	if (!frame || was_met(slot, frame) || !read_vm(slot, scratch, frame, cpython->frame_bytes))
		return SW_CPYTHON_UNREADABLE_FRAME;
	owner = vm_byte(slot, scratch, frame + cpython->owner);
	slot->cpython.frame = vm_word(slot, scratch, frame + cpython->previous);
	if (group_form == SW_CPYTHON_ENDS_AT_SHIM && owner >= SW_CPYTHON_OWNED_BY_C_STACK) {
		slot->cpython.anchor = frame;
		return SW_CPYTHON_NO_FRAME;
	}
	if (group_form == SW_CPYTHON_ONE_FRAME || (group_form == SW_CPYTHON_LAST_IS_ENTRY && owner))
		end_group(slot);
	code = vm_word(slot, scratch, frame + cpython->code) & ~SW_CPYTHON_TAGS;
	cookie = code_cookie(slot, scratch, code);
	if (!cookie)
		return SW_CPYTHON_UNREADABLE_CODE;
	out->head = frame_head(SW_FRAME_CPYTHON, 0, code & ((1ull << 48) - 1));
	out->address = (__u64)instruction_offset(slot, scratch, cpython, frame, code) << SW_VM_PLACE_SHIFT | cookie;
	return SW_CPYTHON_FRAME_READ;
}

#endif
