/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/*
 * Frames of HotSpot, the Java virtual machine of OpenJDK. Methods, compiled or interpreted, have their frames on the native
 * stack: so a walk steps over a frame of HotSpot as over any other, by a rule that is made here instead of taken from a
 * table.
 *
 * - In a compiled method or a stub, a frame has one size, exactly so at calls: the caller's frame is that many words above.
 *   The frame pointer is an ordinary register.
 * - In the interpreter, the frame pointer leads to the method, the bytecode and the caller.
 * - Where the code is interrupted, the frame may be incomplete. So there, and where a method has called native code, each
 *   candidate has to lead to an address to which code may return.
 *
 * If none does, the walk ends there, and says so (`vm_frames_missing`).
 */
#ifndef SIDEWINDER_HOTSPOT_BPF_H
#define SIDEWINDER_HOTSPOT_BPF_H

#include "arch.bpf.h"
#include "arch/hotspot.bpf.h"
#include "hotspot/caller.bpf.h"
#include "hotspot/code.bpf.h"
#include "hotspot/interpreted.bpf.h"
#include "hotspot/method.bpf.h"
#include "stack_window.bpf.h"

/* Words that code may have pushed below its frame, and candidates for frames without a known size. */
#define SW_PUSHED_WORDS_MAX 10
#define SW_FRAME_WORDS_MAX (1 << 17)

static __always_inline void start_hotspot(struct sw_slot *slot)
{
	slot->hotspot.has_blob = 0;
}

/* Whether an address is in code that HotSpot has generated. */
static __always_inline bool is_hotspot_code(const struct sw_slot *slot, __u64 address)
{
	const struct sw_runtime *runtime = process_runtime(slot, SW_FRAME_HOTSPOT);

	return runtime && is_in_code_cache(&runtime->hotspot, address);
}

static __always_inline void set_blob(struct sw_found *found, const struct sw_blob *blob, __u64 pc)
{
	__u32 flags = SW_FRAME_COMPILED | (found->is_return_address ? SW_FRAME_RETURN_ADDRESS : 0);

	found->head = frame_head(SW_FRAME_HOTSPOT, flags, blob->address & ((1ull << 48) - 1));
	found->address = (pc - blob->code) << SW_VM_PLACE_SHIFT | blob->cookie;
}

static __always_inline bool is_deopt_handler(const struct sw_blob *blob, __u64 address)
{
	return address == blob->handlers[0] || address == blob->handlers[1];
}

/*
 * The address to which the current frame of a blob returns, or would have, had it not been deoptimized: then its return address
 * leads to a handler, and the frame keeps the original one.
 */
static __always_inline __u64 original_pc(struct sw_slot *slot, const struct sw_blob *blob)
{
	__u64 address;

	if (slot->is_return_address && is_deopt_handler(blob, slot->pc) &&
	    try_read_word(slot, slot->sp + blob->original_pc, &address))
		return address;
	return slot->pc;
}

/*
 * Finds the blob of the current frame, and makes the frame belong to it. `distance`: how far behind its start the pc is, if the code
 * says so; otherwise 0. Not static, so that its callers have a smaller stack.
 */
__noinline int find_current_blob(__u32 number, __u32 distance)
{
	struct sw_slot *slot = bpf_map_lookup_elem(&slots, &number);
	struct sw_vm_scratch *scratch = vm_scratch(number);

	if (!slot || !scratch)
		return 0;
	if (!distance || !read_blob(number, slot->pc - distance, slot->pc - slot->is_return_address))
		if (!find_blob(number, slot->pc - slot->is_return_address))
			return 0;
	set_blob(place_of_frame(slot), &scratch->hotspot.blob, original_pc(slot, &scratch->hotspot.blob));
	return 1;
}

/*
 * Looks up the current frame, in code of HotSpot's, as find_frame does. Its rule is made here if it is the same each time.
 * Not static: the verifier checks it once.
 */
__noinline int find_hotspot_frame(__u32 number)
{
	struct sw_slot *slot = bpf_map_lookup_elem(&slots, &number);
	const struct sw_runtime *runtime = slot ? process_runtime(slot, SW_FRAME_HOTSPOT) : 0;
	struct sw_vm_scratch *scratch = vm_scratch(number);
	const struct sw_hotspot *hotspot;
	struct sw_found *found;
	__u64 code[2] = {}, target; /* from SW_CALL_BYTES in front of a return address on */
	__s32 during_call;

	if (!slot)
		return 0;
	found = place_of_frame(slot);
	found->clock = 0;
	found->pc = slot->pc;
	found->ranges = slot->ranges;
	found->is_return_address = slot->is_return_address;
	found->number = SW_RULE_NONE;
	found->head = frame_head(SW_FRAME_ANONYMOUS, slot->is_return_address ? SW_FRAME_RETURN_ADDRESS : 0, 0);
	found->address = slot->pc;
	slot->hotspot.has_blob = 0;
	if (!runtime || !scratch) {
		slot->head.vm_frames_missing[SW_VM_BUSY]++;
		return 1;
	}
	hotspot = &runtime->hotspot;
	if (!is_in_interpreter(hotspot, slot->pc)) {
		if (slot->is_return_address)
			bpf_probe_read_user(code, sizeof(code), (void *)(slot->pc - SW_CALL_BYTES));
		if (!find_current_blob(number, stated_blob_distance(code))) {
			slot->head.vm_frames_missing[SW_VM_UNREADABLE]++;
			return 1;
		}
	}
	found->number = SW_RULE_HOTSPOT_DEPENDS;
	found->clock = slot->clock;
	if (!slot->is_return_address || is_in_interpreter(hotspot, slot->pc)) {
		slot->hotspot.has_blob = !is_in_interpreter(hotspot, slot->pc);
		return 1;
	}
	if (slot->pc == hotspot->call_stub_return) {
		found->number = SW_RULE_HOTSPOT;
		set_rule_of_frame_pointer(found);
		return 1;
	}
	during_call = words_during_call(code);
	/* A call of native code may have been made with more on the stack, and so may one of a stub. */
	if (scratch->hotspot.blob.frame_words > 1 && during_call >= 0 && is_call(code[0], slot->pc, &target) &&
	    (during_call || is_in_code_cache(hotspot, target))) {
		found->number = SW_RULE_HOTSPOT;
		set_rule_of_words(found, scratch->hotspot.blob.frame_words + during_call, true);
	} else {
		slot->hotspot.has_blob = 1;
	}
	return 1;
}

/*
 * The words from the stack pointer to the end of the frame of the interrupted method, as its code says: the frame may not be
 * made yet, or be removed already.
 */
static __always_inline __u32 words_of_interrupted(__u32 number, struct sw_slot *slot, struct sw_vm_scratch *scratch,
						  __u32 frame_words)
{
	__u64 offset = slot->pc - scratch->hotspot.blob.code;
	__u32 words;

	if (bpf_probe_read_user(scratch->hotspot.code, sizeof(scratch->hotspot.code), (void *)(slot->pc - SW_HOTSPOT_CODE_BEFORE)))
		return frame_words;
	/* Stubs don't say where their frame is complete: most begin by saving the frame pointer. */
	if (offset < (scratch->hotspot.blob.frame_complete > 0 ? (__u32)scratch->hotspot.blob.frame_complete : SW_STUB_PUSH_BYTES + 1))
		words = words_in_prologue(number, scratch, offset);
	else
		words = words_in_epilogue(number, scratch);
	return words ? words : frame_words;
}

/* Finds the rule of a method's frame, or a stub's, that has a size. */
static __always_inline int settle_sized(__u32 number, struct sw_slot *slot, struct sw_vm_scratch *scratch,
					struct sw_found *found, __u32 frame_words)
{
	__u32 words = frame_words;

	if (!slot->is_return_address) {
		words = words_of_interrupted(number, slot, scratch, frame_words);
		/* While a stub saves or restores registers, its frame is smaller: then its frame pointer is inside of it. */
		if (scratch->hotspot.blob.frame_complete <= 0 && words == frame_words &&
		    slot->fp - slot->sp <= (frame_words - 2ull) * sizeof(__u64) && may_return_from_frame_pointer(number)) {
			set_rule_of_frame_pointer(found);
			return 1;
		}
	}
	if (may_return_from(number, words)) {
		set_rule_of_words(found, words, words > 1);
		return 1;
	}
	/* A stub that looks for the handler of an exception returns to where that was thrown, which needn't be a call. */
	if (is_generated_at(number, frame_words)) {
		set_rule_of_words(found, frame_words, true);
		return 1;
	}
	/*
	 * Intrinsics push words for as long as they run. One word less comes last: below the end of its frame, a method may have
	 * return addresses of calls that are over.
	 */
	for (__u32 i = 0; i < SW_PUSHED_WORDS_MAX; i++) {
		words = i < SW_PUSHED_WORDS_MAX - 1 ? frame_words + 1 + i : frame_words - 1;
		if (may_return_from(number, words) == SW_CALLER_GENERATED) {
			set_rule_of_words(found, words, words > 1);
			return 1;
		}
	}
#ifdef SW_REG_LINK
	/* What a method does after it has removed its frame may be anywhere in its code. */
	if (may_return_from(number, SW_WORDS_AT_ENTRY)) {
		set_rule_of_words(found, SW_WORDS_AT_ENTRY, false);
		return 1;
	}
#endif
	return 0;
}

#ifdef SW_REG_LINK
/* Finds the rule of the frame of a stub, an adapter, or the interpreter's code while it has no frame. */
static __always_inline int settle_unsized(__u32 number, struct sw_slot *slot, const struct sw_hotspot *hotspot,
					  struct sw_found *found)
{
	int state = SW_STUB_HAS_FRAME;

	if (slot->is_interrupted)
		state = stub_state(number, is_in_interpreter(hotspot, code_address(slot->callee_saved)));
	if (state == SW_STUB_HAS_SAVED && may_return_from(number, 2)) {
		set_rule_of_words(found, 2, true);
		return 1;
	}
	if (state == SW_STUB_HAS_FRAME && may_return_from_frame_pointer(number)) {
		set_rule_of_frame_pointer(found);
		return 1;
	}
	if (!may_return_from(number, SW_WORDS_AT_ENTRY))
		return 0;
	set_rule_of_words(found, SW_WORDS_AT_ENTRY, false);
	/* Between methods that are compiled and interpreted, arguments are moved to the stack. */
	if (state == SW_STUB_HAS_KEPT_SP && is_sender_sp(slot, interrupted_register(slot, hotspot->sender_sp)))
		found->rule.cfa_register = hotspot->sender_sp;
	return 1;
}
#else
/* Finds the rule of the frame of a stub, an adapter, or the interpreter's code while it has no frame. */
static __always_inline int settle_unsized(__u32 number, struct sw_slot *slot, const struct sw_hotspot *hotspot,
					  struct sw_found *found)
{
	if (slot->is_return_address && may_return_from_frame_pointer(number)) {
		set_rule_of_frame_pointer(found);
		return 1;
	}
	if (may_return_from(number, SW_WORDS_AT_ENTRY)) {
		set_rule_of_words(found, SW_WORDS_AT_ENTRY, false);
		return 1;
	}
	if (may_return_from(number, 2)) {
		set_rule_of_words(found, 2, true);
		return 1;
	}
	if (may_return_from_frame_pointer(number)) {
		set_rule_of_frame_pointer(found);
		return 1;
	}
	for (__u32 words = 3; words <= SW_PUSHED_WORDS_MAX; words++) {
		if (may_return_from(number, words) == SW_CALLER_GENERATED) {
			set_rule_of_words(found, words, false);
			return 1;
		}
	}
	if (slot->is_interrupted && may_return_to(number, slot->registers[SW_REG_RETURN_ADDRESS])) {
		found->rule = (struct sw_rule){
			.cfa_base = SW_CFA_REGISTER,
			.cfa_register = hotspot->sender_sp,
			.ra = SW_PLACE_REGISTER,
			.ra_register = SW_REG_RETURN_ADDRESS,
		};
		return 1;
	}
	return 0;
}
#endif

/*
 * Finds the rule of the current frame, whose cache entry says that it depends on the stack, and puts it into that entry, or
 * that there is none. Not static: the verifier checks it once.
 */
__noinline int settle_hotspot_frame(__u32 number)
{
	struct sw_slot *slot = bpf_map_lookup_elem(&slots, &number);
	const struct sw_runtime *runtime = slot ? process_runtime(slot, SW_FRAME_HOTSPOT) : 0;
	struct sw_vm_scratch *scratch = vm_scratch(number);
	struct sw_found *found;
	__s32 frame_words;

	if (!slot)
		return 0;
	found = place_of_frame(slot);
	found->rule = (struct sw_rule){ .cfa_base = SW_CFA_NONE, .cfa_offset = SW_OUTCOME_NO_RULE };
	if (!runtime || !scratch)
		return 0;
	if (is_in_interpreter(&runtime->hotspot, slot->pc)) {
		/* The cookie is added here, for the sake of the stack, which calls have in common. */
		if (settle_interpreted(number)) {
			found->address |= method_cookie(slot, scratch, scratch->hotspot.const_method, scratch->hotspot.class);
			return 1;
		}
		/* The code of the interpreter itself. */
		found->head = frame_head(SW_FRAME_HOTSPOT, 0, runtime->hotspot.interpreter & ((1ull << 48) - 1));
		found->address = (slot->pc - runtime->hotspot.interpreter) << SW_VM_PLACE_SHIFT | 1;
		if (slot->is_interrupted && settle_incomplete(number))
			return 1;
		return settle_unsized(number, slot, &runtime->hotspot, found);
	}
	/* A remembered frame may belong to code that was freed since. */
	if (!slot->hotspot.has_blob) {
		if (!find_current_blob(number, 0))
			return 0;
	}
	slot->hotspot.has_blob = 0;
	frame_words = scratch->hotspot.blob.frame_words;
	if (frame_words > 1 && frame_words < SW_FRAME_WORDS_MAX)
		return settle_sized(number, slot, scratch, found, frame_words);
	return settle_unsized(number, slot, &runtime->hotspot, found);
}

#endif
