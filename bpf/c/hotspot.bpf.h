/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/*
 * Frames of HotSpot, the Java virtual machine of OpenJDK. Methods, compiled or interpreted, have their frames on the native
 * stack: so a frame of HotSpot is a step like that of any other code, by a rule that is made here instead of taken from a
 * table.
 *
 * - In a compiled method or a stub, a frame has one size, exactly so at calls: the caller's frame is that many words above.
 *   The frame pointer is an ordinary register.
 * - In the interpreter, the frame pointer leads to the method, the bytecode and the caller.
 * - Where the code is interrupted, the frame may be incomplete. So there, and where a method has called native code, each
 *   candidate has to lead to an address to which code may return.
 *
 * If none does, the walk ends there, and says so (`vm_missing`).
 */
#ifndef SIDEWINDER_HOTSPOT_BPF_H
#define SIDEWINDER_HOTSPOT_BPF_H

#include "arch.bpf.h"
#include "hotspot_code.bpf.h"
#include "hotspot_method.bpf.h"
#include "stack_window.bpf.h"

/* Words that code may have pushed below its frame, and candidates for frames without a known size. */
#define SW_PUSHED_WORDS_MAX 10
#define SW_FRAME_WORDS_MAX (1 << 17)
#define SW_STUB_PUSH_BYTES 1 /* the first instruction of stubs, which saves the frame pointer */
/* From the stack pointer at the entry of an interpreted method to that of its caller: arguments and variables. */
#define SW_SENDER_BYTES_MAX 8192
#define SW_BYTECODE_BYTES_MAX 65536 /* of a method (JVM specification, section 4.7.3) */

/* A rule by which the frame ends `words` words above the stack pointer, with the return address as its last. */
static __always_inline void set_rule_of_words(struct sw_found *found, __u32 words, bool has_fp)
{
	found->rule = (struct sw_rule){
		.cfa_base = SW_CFA_REGISTER,
		.cfa_register = SW_REG_SP,
		.cfa_offset = words * sizeof(__u64),
		.ra = SW_PLACE_CFA,
		.ra_offset = -8,
		.fp = has_fp ? SW_PLACE_CFA : SW_PLACE_SAME,
		.fp_offset = has_fp ? -16 : 0,
	};
}

/* A rule by which the frame is that at the frame pointer. */
static __always_inline void set_rule_of_frame_pointer(struct sw_found *found)
{
	found->rule = (struct sw_rule){
		.cfa_base = SW_CFA_REGISTER,
		.cfa_register = SW_REG_FP,
		.cfa_offset = 16,
		.ra = SW_PLACE_CFA,
		.ra_offset = -8,
		.fp = SW_PLACE_CFA,
		.fp_offset = -16,
	};
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
 * The address to which the current frame of a blob returns, or would have, had it not been deoptimized: then its return address is
 * that of a handler, and its own is in the frame.
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
 * Finds the blob of the current frame, and makes the frame that of it. `distance`: how far behind its start the pc is, if the code
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
	set_blob(place_of_frame(slot), &scratch->blob, original_pc(slot, &scratch->blob));
	return 1;
}

/*
 * Looks up the current frame, in code of HotSpot's, as find_frame does. Its rule is made here if it is the same each time.
 * Not static: the verifier checks it once.
 */
__noinline int find_hotspot_frame(__u32 number)
{
	struct sw_slot *slot = bpf_map_lookup_elem(&slots, &number);
	const struct sw_runtime *runtime = slot ? process_hotspot(slot) : 0;
	struct sw_vm_scratch *scratch = vm_scratch(number);
	const struct sw_hotspot *hotspot;
	struct sw_found *found;
	__u64 code[2] = {}, target; /* in front of a return address, and behind it */

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
	slot->vm_has_blob = 0;
	if (!runtime || !scratch) {
		slot->head.vm_missing[SW_VM_BUSY]++;
		return 1;
	}
	hotspot = &runtime->hotspot;
	if (!is_in_interpreter(hotspot, slot->pc)) {
		if (slot->is_return_address)
			bpf_probe_read_user(code, sizeof(code), (void *)(slot->pc - SW_CALL_BYTES));
		if (!find_current_blob(number, stated_blob_distance(code[1]))) {
			slot->head.vm_missing[SW_VM_UNREADABLE]++;
			return 1;
		}
	}
	found->number = SW_RULE_HOTSPOT_DEPENDS;
	found->clock = slot->clock;
	if (!slot->is_return_address || is_in_interpreter(hotspot, slot->pc)) {
		slot->vm_has_blob = !is_in_interpreter(hotspot, slot->pc);
		return 1;
	}
	if (slot->pc == hotspot->call_stub_return) {
		found->number = SW_RULE_HOTSPOT;
		set_rule_of_frame_pointer(found);
	} else if (scratch->blob.frame_words > 1 && is_call(code[0], slot->pc, &target) &&
		   is_in_code_cache(hotspot, target) && !takes_off_arguments(code[1])) {
		/* A call of native code may have been made with more on the stack, and so may one of a stub. */
		found->number = SW_RULE_HOTSPOT;
		set_rule_of_words(found, scratch->blob.frame_words, true);
	} else {
		slot->vm_has_blob = 1;
	}
	return 1;
}

/* Whether code may return to the word that is the last of `words` above the stack pointer, as an sw_hotspot_caller. */
__noinline int may_return_from(__u32 number, __u32 words)
{
	struct sw_slot *slot = bpf_map_lookup_elem(&slots, &number);
	__u64 address;

	if (!slot || !try_read_word(slot, slot->sp + ((__u64)words - 1) * sizeof(__u64), &address))
		return 0;
	return may_return_to(number, address);
}

/* Whether the word that is the last of `words` above the stack pointer is an address in the code cache. */
__noinline int is_generated_at(__u32 number, __u32 words)
{
	struct sw_slot *slot = bpf_map_lookup_elem(&slots, &number);
	const struct sw_runtime *runtime = slot ? process_hotspot(slot) : 0;
	__u64 address;

	if (!runtime || !try_read_word(slot, slot->sp + ((__u64)words - 1) * sizeof(__u64), &address))
		return 0;
	return is_in_code_cache(&runtime->hotspot, address);
}

/* Whether the frame pointer leads to a frame with a plausible return address. */
__noinline int may_return_from_frame_pointer(__u32 number)
{
	struct sw_slot *slot = bpf_map_lookup_elem(&slots, &number);
	__u64 address;

	if (!slot || slot->fp & 7 || slot->fp - slot->sp > SW_UNPROVEN_FRAME_BYTES_MAX)
		return 0;
	return try_read_word(slot, slot->fp + 8, &address) && may_return_to(number, address);
}

/*
 * The words from the stack pointer to the end of the frame of the interrupted method, as its code says: the frame may not be
 * made yet, or be removed already.
 */
static __always_inline __u32 words_of_interrupted(__u32 number, struct sw_slot *slot, struct sw_vm_scratch *scratch,
						  __u32 frame_words)
{
	__u64 offset = slot->pc - scratch->blob.code;
	__u32 words;

	if (bpf_probe_read_user(scratch->code, sizeof(scratch->code), (void *)(slot->pc - SW_HOTSPOT_CODE_BEFORE)))
		return frame_words;
	/* Stubs don't say where their frame is complete: most begin by saving the frame pointer. */
	if (offset < (scratch->blob.frame_complete > 0 ? (__u32)scratch->blob.frame_complete : SW_STUB_PUSH_BYTES + 1))
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
		if (scratch->blob.frame_complete <= 0 && words == frame_words &&
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
	return 0;
}

/* Finds the rule of the frame of a stub, an adapter, or the interpreter's code while it has no frame. */
static __always_inline int settle_unsized(__u32 number, struct sw_slot *slot, struct sw_found *found)
{
	if (slot->is_return_address && may_return_from_frame_pointer(number)) {
		set_rule_of_frame_pointer(found);
		return 1;
	}
	if (may_return_from(number, 1)) {
		set_rule_of_words(found, 1, false);
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
			.cfa_register = SW_REG_SENDER_SP,
			.ra = SW_PLACE_REGISTER,
			.ra_register = SW_REG_RETURN_ADDRESS,
		};
		return 1;
	}
	return 0;
}

/* Where an interpreted method's frame has the address of the bytecode, as an offset from its frame pointer. */
static __always_inline __s64 interpreted_bytecode(const struct sw_hotspot *hotspot)
{
	return SW_INTERPRETED_BYTECODE_WITHOUT_MIRROR - (hotspot->frames_have_mirror ? (__s64)sizeof(__u64) : 0);
}

/* The rule of an interpreted method's frame. */
static __always_inline void set_rule_of_interpreted(struct sw_found *found)
{
	found->rule = (struct sw_rule){
		.cfa_base = SW_CFA_DEREF,
		.cfa_register = SW_REG_FP,
		.cfa_offset = SW_INTERPRETED_SENDER_SP,
		.ra = SW_PLACE_MEMORY,
		.ra_register = SW_REG_FP,
		.ra_offset = SW_INTERPRETED_RETURN_ADDRESS,
		.fp = SW_PLACE_MEMORY,
		.fp_register = SW_REG_FP,
	};
}

/* Whether a register has the caller's stack pointer, which is a little above that of an interpreted method without a frame. */
static __always_inline bool is_sender_sp(const struct sw_slot *slot, __u32 number)
{
	__u64 sender_sp = slot->registers[number];

	return !(sender_sp & 7) && sender_sp - slot->sp < SW_SENDER_BYTES_MAX;
}

/*
 * Finds the rule where an interpreted method is entered or left: the frame is not complete, but a register has the caller's stack
 * pointer, which the return address isn't next to: arguments and variables are between. A compiled caller's frame depends on it.
 * Not static: the verifier checks it once.
 */
__noinline int settle_incomplete(__u32 number)
{
	struct sw_slot *slot = bpf_map_lookup_elem(&slots, &number);
	const struct sw_runtime *runtime = slot ? process_hotspot(slot) : 0;
	struct sw_found *found;
	struct sw_rule rule = { .cfa_base = SW_CFA_REGISTER, .ra = SW_PLACE_MEMORY, .ra_register = SW_REG_SP };
	__s64 frame_bytes;

	if (!runtime)
		return 0;
	found = place_of_frame(slot);
	frame_bytes = slot->fp - slot->sp;
	if (is_sender_sp(slot, SW_REG_SENDER_SP)) {
		rule.cfa_register = SW_REG_SENDER_SP;
		if (slot->fp - slot->sp < SW_SENDER_BYTES_MAX && slot->fp < slot->registers[SW_REG_SENDER_SP] &&
		    may_return_from_frame_pointer(number)) {
			rule.ra_register = SW_REG_FP;
			rule.ra_offset = SW_INTERPRETED_RETURN_ADDRESS;
			rule.fp = SW_PLACE_MEMORY;
			rule.fp_register = SW_REG_FP;
		} else if (may_return_to(number, slot->registers[SW_REG_RETURN_ADDRESS])) {
			rule.ra = SW_PLACE_REGISTER;
			rule.ra_register = SW_REG_RETURN_ADDRESS;
		} else if (!may_return_from(number, 1)) {
			return 0;
		}
	} else if (is_sender_sp(slot, SW_REG_SENDER_SP_AT_RETURN)) {
		rule.cfa_register = SW_REG_SENDER_SP_AT_RETURN;
		/* Before the jump there, the return address is in the register that had the bytecode's. */
		if (may_return_to(number, slot->registers[SW_REG_BYTECODE])) {
			rule.ra = SW_PLACE_REGISTER;
			rule.ra_register = SW_REG_BYTECODE;
		} else if (!may_return_from(number, 1)) {
			return 0;
		}
	} else if (frame_bytes >= -SW_INTERPRETED_SENDER_SP && frame_bytes <= -interpreted_bytecode(&runtime->hotspot) &&
		   may_return_from_frame_pointer(number)) {
		/* The frame has it already, and not yet all of the method. */
		set_rule_of_interpreted(found);
		return 1;
	} else {
		return 0;
	}
	found->rule = rule;
	return 1;
}

/*
 * Makes the frame at the frame pointer that of the interpreter, but for its cookie: what that takes is in the scratch memory's
 * identity, the address of the ConstMethod, and that of the cache of constants, which all methods of a class have in common, or 0
 * where the frame may not have it yet. Returns 0 if the frame is none of the interpreter's: at the start of a method, while its frame
 * is being made, the frame pointer is still the caller's.
 */
__noinline int settle_interpreted(__u32 number)
{
	struct sw_slot *slot = bpf_map_lookup_elem(&slots, &number);
	const struct sw_runtime *runtime = slot ? process_hotspot(slot) : 0;
	struct sw_vm_scratch *scratch = vm_scratch(number);
	__u64 fp, method, sender_sp, address, bytecode_at, bytecode, constants, first, const_method = 0;
	struct sw_found *found;

	if (!runtime || !scratch)
		return 0;
	found = place_of_frame(slot);
	fp = slot->fp;
	if (fp & 7 || fp - slot->sp > SW_UNPROVEN_FRAME_BYTES_MAX)
		return 0;
	/* Below the stack pointer is what is left of another frame. */
	if (slot->is_interrupted && (__s64)(slot->sp - fp) > interpreted_bytecode(&runtime->hotspot))
		return 0;
	bytecode_at = fp + interpreted_bytecode(&runtime->hotspot);
	if (!try_read_word(slot, bytecode_at, &bytecode) ||
	    !try_read_word(slot, bytecode_at + SW_INTERPRETED_CONSTANTS_AFTER_BYTECODE, &constants) ||
	    !try_read_word(slot, fp + SW_INTERPRETED_METHOD, &method) ||
	    !try_read_word(slot, fp + SW_INTERPRETED_SENDER_SP, &sender_sp) ||
	    !try_read_word(slot, fp + SW_INTERPRETED_RETURN_ADDRESS, &address))
		return 0;
	if (!method || method & 7 || sender_sp & 7 || sender_sp <= fp || sender_sp - fp > SW_UNPROVEN_FRAME_BYTES_MAX)
		return 0;
	if (!slot->is_return_address && !may_return_to(number, address))
		return 0;
	if (bpf_probe_read_user(&const_method, sizeof(const_method), (void *)(method + runtime->hotspot.const_method)) ||
	    !const_method || const_method & 7)
		return 0;
	scratch->identity[0] = const_method;
	scratch->identity[1] = slot->is_return_address ? constants : 0;
	first = const_method + runtime->hotspot.bytecodes;
	if (slot->is_interrupted && slot->registers[SW_REG_BYTECODE] - first < SW_BYTECODE_BYTES_MAX)
		bytecode = slot->registers[SW_REG_BYTECODE];
	bytecode -= first;
	if (bytecode >= SW_BYTECODE_BYTES_MAX)
		bytecode = -1ull; /* native methods have none */
	found->head = frame_head(SW_FRAME_HOTSPOT, 0, method & ((1ull << 48) - 1));
	found->address = bytecode << SW_VM_PLACE_SHIFT;
	set_rule_of_interpreted(found);
	return 1;
}

/*
 * Finds the rule of the current frame, whose cache entry says that it depends on the stack, and puts it into that entry, or
 * that there is none. Not static: the verifier checks it once.
 */
__noinline int settle_hotspot_frame(__u32 number)
{
	struct sw_slot *slot = bpf_map_lookup_elem(&slots, &number);
	const struct sw_runtime *runtime = slot ? process_hotspot(slot) : 0;
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
			found->address |= method_cookie(slot, scratch, scratch->identity[0], scratch->identity[1]);
			return 1;
		}
		/* The code of the interpreter itself. */
		found->head = frame_head(SW_FRAME_HOTSPOT, 0, runtime->hotspot.interpreter & ((1ull << 48) - 1));
		found->address = (slot->pc - runtime->hotspot.interpreter) << SW_VM_PLACE_SHIFT | 1;
		if (slot->is_interrupted && settle_incomplete(number))
			return 1;
		return settle_unsized(number, slot, found);
	}
	/* A frame that is remembered may be that of code which was freed since. */
	if (!slot->vm_has_blob) {
		if (!find_current_blob(number, 0))
			return 0;
	}
	slot->vm_has_blob = 0;
	frame_words = scratch->blob.frame_words;
	if (frame_words > 1 && frame_words < SW_FRAME_WORDS_MAX)
		return settle_sized(number, slot, scratch, found, frame_words);
	return settle_unsized(number, slot, found);
}

#endif
