/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/* Frames of HotSpot's interpreter: where they have the method and the bytecode, and their callers. */
#ifndef SIDEWINDER_HOTSPOT_INTERPRETED_BPF_H
#define SIDEWINDER_HOTSPOT_INTERPRETED_BPF_H

#include "../arch.bpf.h"
#include "../arch/hotspot.bpf.h"
#include "../stack_window.bpf.h"
#include "caller.bpf.h"
#include "code.bpf.h"

/* From the stack pointer at the entry of an interpreted method to its caller's: arguments and variables. */
#define SW_SENDER_BYTES_MAX 8192
#define SW_BYTECODE_BYTES_MAX 65536 /* of a method (JVM specification, section 4.7.3) */

/* Where an interpreted method's frame has the address of the bytecode, as an offset from its frame pointer. */
static __always_inline __s64 interpreted_bytecode(const struct sw_hotspot *hotspot)
{
	return -(__s64)hotspot->bytecode;
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

/* The value of a register of the interrupted frame. */
static __always_inline __u64 interrupted_register(const struct sw_slot *slot, __u32 number)
{
	return number < SW_REGISTERS ? slot->registers[number] : 0;
}

/* Whether a value is the caller's stack pointer, which is a little above the stack pointer of an interpreted method without a frame. */
static __always_inline bool is_sender_sp(const struct sw_slot *slot, __u64 value)
{
	return !(value & 7) && value - slot->sp < SW_SENDER_BYTES_MAX;
}

/*
 * Finds the rule where an interpreted method is entered or left: the frame is not complete, but a register has the caller's stack
 * pointer, which the return address isn't next to: arguments and variables are between. A compiled caller's frame depends on it.
 * Not static: the verifier checks it once.
 */
__noinline int settle_incomplete(__u32 number)
{
	struct sw_slot *slot = bpf_map_lookup_elem(&slots, &number);
	const struct sw_runtime *runtime = slot ? process_runtime(slot, SW_FRAME_HOTSPOT) : 0;
	struct sw_found *found;
	struct sw_rule rule = { .cfa_base = SW_CFA_REGISTER, .ra = SW_PLACE_MEMORY, .ra_register = SW_REG_SP };
	__u64 sender_sp;
	__s64 frame_bytes;

	if (!runtime)
		return 0;
	found = place_of_frame(slot);
	frame_bytes = slot->fp - slot->sp;
	sender_sp = interrupted_register(slot, runtime->hotspot.sender_sp);
	if (is_sender_sp(slot, sender_sp)) {
		rule.cfa_register = runtime->hotspot.sender_sp;
		if (slot->fp - slot->sp < SW_SENDER_BYTES_MAX && slot->fp < sender_sp &&
		    may_return_from_frame_pointer(number)) {
			rule.ra_register = SW_REG_FP;
			rule.ra_offset = SW_INTERPRETED_RETURN_ADDRESS;
			rule.fp = SW_PLACE_MEMORY;
			rule.fp_register = SW_REG_FP;
		} else if (may_return_to(number, code_address(slot->registers[SW_REG_RETURN_ADDRESS]))) {
			rule.ra = SW_PLACE_REGISTER;
			rule.ra_register = SW_REG_RETURN_ADDRESS;
		} else if (!may_return_from(number, SW_WORDS_AT_ENTRY)) {
			return 0;
		}
	} else if (is_sender_sp(slot, slot->registers[SW_REG_SENDER_SP_AT_RETURN])) {
		rule.cfa_register = SW_REG_SENDER_SP_AT_RETURN;
		/* Before the jump there, the return address is in a register. */
		if (may_return_to(number, code_address(slot->registers[SW_REG_RETURN_ADDRESS_AT_RETURN]))) {
			rule.ra = SW_PLACE_REGISTER;
			rule.ra_register = SW_REG_RETURN_ADDRESS_AT_RETURN;
		} else if (!may_return_from(number, SW_WORDS_AT_ENTRY)) {
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
 * Makes the frame at the frame pointer a frame of the interpreter, but for its cookie. What the cookie is made of is put into the
 * scratch memory: the address of the ConstMethod and, for its class, the address of the cache of constants, which all methods of
 * the class share, or 0 where the frame may not have it yet. Returns 0 if the frame is none of the interpreter's: at the start of a method, while its frame
 * is being made, the frame pointer is still the caller's.
 */
__noinline int settle_interpreted(__u32 number)
{
	struct sw_slot *slot = bpf_map_lookup_elem(&slots, &number);
	const struct sw_runtime *runtime = slot ? process_runtime(slot, SW_FRAME_HOTSPOT) : 0;
	struct sw_vm_scratch *scratch = vm_scratch(number);
	__u64 fp, method, sender_sp, address, bytecode_at, bytecode, constants, first, const_method = 0;
	bool overlaps;
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
	overlaps = SW_INTERPRETED_FRAMES_OVERLAP && sender_sp <= fp;
	if (!method || method & 7 || sender_sp & 7 || (sender_sp <= fp && !overlaps) ||
	    (overlaps ? fp - sender_sp : sender_sp - fp) > SW_UNPROVEN_FRAME_BYTES_MAX)
		return 0;
	if (!slot->is_return_address && !may_return_to(number, code_address(address)))
		return 0;
	if (bpf_probe_read_user(&const_method, sizeof(const_method), (void *)(method + runtime->hotspot.const_method)) ||
	    !const_method || const_method & 7)
		return 0;
	scratch->hotspot.const_method = const_method;
	scratch->hotspot.class = slot->is_return_address ? constants : 0;
	first = const_method + runtime->hotspot.bytecodes;
	if (slot->is_interrupted && slot->registers[SW_REG_BYTECODE] - first < SW_BYTECODE_BYTES_MAX)
		bytecode = slot->registers[SW_REG_BYTECODE];
	bytecode -= first;
	if (bytecode >= SW_BYTECODE_BYTES_MAX)
		bytecode = -1ull; /* native methods have none */
	found->head = frame_head(SW_FRAME_HOTSPOT, 0, method & ((1ull << 48) - 1));
	found->address = bytecode << SW_VM_PLACE_SHIFT;
	/* The caller is interpreted, too, so that its stack pointer isn't needed, and the end of this frame is above the frame. */
	if (overlaps)
		set_rule_of_frame_pointer(found);
	else
		set_rule_of_interpreted(found);
	return 1;
}

#endif
