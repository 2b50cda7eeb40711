/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/* What is known of the frame at which a walk has arrived: its registers, and where it ends. */
#ifndef SIDEWINDER_CURRENT_FRAME_BPF_H
#define SIDEWINDER_CURRENT_FRAME_BPF_H

#include "stack_window.bpf.h"
#include "table.bpf.h"

static __always_inline bool stop(struct sw_slot *slot, __u32 outcome)
{
	slot->outcome = outcome;
	return false;
}

/*
 * The value of a register in the current frame. In callers' frames only the two tracked registers are known, and
 * SW_REG_CALLEE_SAVED if all rules so far said where it is.
 */
static __always_inline bool register_value(struct sw_slot *slot, __u32 number, __u64 *value)
{
	if (number == SW_REG_SP) {
		*value = slot->sp;
		return true;
	}
	if (number == SW_REG_FP) {
		*value = slot->fp;
		return true;
	}
	if (number == SW_REG_CALLEE_SAVED && slot->has_callee_saved) {
		*value = slot->callee_saved;
		return true;
	}
	if (!slot->is_interrupted || number >= SW_REGISTERS)
		return stop(slot, SW_OUTCOME_REGISTER_LOST);
	*value = slot->registers[number];
	return true;
}

static __always_inline bool canonical_frame_address(struct sw_slot *slot, const struct sw_rule *rule, __u64 *cfa)
{
	__u64 index;

	if (rule->cfa_base == SW_CFA_PLT) {
		*cfa = slot->sp + (slot->pc % SW_LINKAGE_ENTRY_BYTES >= (__u64)rule->cfa_offset ? 16 : 8);
		return true;
	}
	if (!register_value(slot, rule->cfa_register, cfa))
		return false;
	*cfa += rule->cfa_offset;
	if (rule->cfa_base == SW_CFA_REGISTER)
		return true;
	if (rule->cfa_base == SW_CFA_DEREF_INDEXED) {
		if (!register_value(slot, rule->ra_register, &index))
			return false;
		*cfa += index * 8;
	}
	if (!read_word(slot, *cfa, cfa))
		return false;
	*cfa += rule->addend_by_8 * 8;
	return true;
}

/* Where the current frame ends; 0 if its rule doesn't say so. */
static __always_inline __u64 frame_end(struct sw_slot *slot, const struct sw_found *found)
{
	__u64 cfa;

	if (found->number == SW_RULE_FRAME_POINTER)
		return slot->fp + 2 * sizeof(__u64);
	if (found->number == SW_RULE_NONE || found->rule.cfa_base == SW_CFA_NONE ||
	    !canonical_frame_address(slot, &found->rule, &cfa))
		return 0;
	return cfa;
}

#endif
