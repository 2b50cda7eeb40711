/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/* Candidates for the caller of a frame of HotSpot's: rules, and whether code may return to where they lead. */
#ifndef SIDEWINDER_HOTSPOT_CALLER_BPF_H
#define SIDEWINDER_HOTSPOT_CALLER_BPF_H

#include "../arch.bpf.h"
#include "../arch/hotspot.bpf.h"
#include "../stack_window.bpf.h"
#include "code.bpf.h"

/* A rule by which the frame ends `words` words above the stack pointer, with the return address as its last. */
static __always_inline void set_rule_of_words(struct sw_found *found, __u32 words, bool has_fp)
{
#ifdef SW_REG_LINK
	if (words & SW_RETURN_IN_LINK) {
		found->rule = (struct sw_rule){
			.cfa_base = SW_CFA_REGISTER,
			.cfa_register = SW_REG_SP,
			.cfa_offset = (words & ~SW_RETURN_IN_LINK) * sizeof(__u64),
			.ra = SW_PLACE_REGISTER,
			.ra_register = SW_REG_LINK,
		};
		return;
	}
#endif
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

/* The return address of a frame that ends `words` words above the stack pointer; false if it can't be read. */
static __always_inline bool return_address_of(struct sw_slot *slot, __u32 words, __u64 *address)
{
#ifdef SW_REG_LINK
	if (words & SW_RETURN_IN_LINK) {
		*address = code_address(slot->callee_saved);
		return slot->has_callee_saved;
	}
#endif
	if (!try_read_word(slot, slot->sp + ((__u64)words - 1) * sizeof(__u64), address))
		return false;
	*address = code_address(*address);
	return true;
}

/* Whether code may return from a frame that ends `words` words above the stack pointer, as an sw_hotspot_caller. */
__noinline int may_return_from(__u32 number, __u32 words)
{
	struct sw_slot *slot = bpf_map_lookup_elem(&slots, &number);
	__u64 address;

	if (!slot || !return_address_of(slot, words, &address))
		return 0;
	return may_return_to(number, address);
}

/* Whether the return address of such a frame is in the code cache. */
__noinline int is_generated_at(__u32 number, __u32 words)
{
	struct sw_slot *slot = bpf_map_lookup_elem(&slots, &number);
	const struct sw_runtime *runtime = slot ? process_runtime(slot, SW_FRAME_HOTSPOT) : 0;
	__u64 address;

	if (!runtime || !return_address_of(slot, words, &address))
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
	return try_read_word(slot, slot->fp + 8, &address) && may_return_to(number, code_address(address));
}

#endif
