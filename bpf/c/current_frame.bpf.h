/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/* The frame at which a walk has arrived: its registers, where it ends, and the step to its caller. */
#ifndef SIDEWINDER_CURRENT_FRAME_BPF_H
#define SIDEWINDER_CURRENT_FRAME_BPF_H

#include "arch.bpf.h"
#include "stack_window.bpf.h"
#include "table.bpf.h"

static __always_inline bool stop(struct sw_slot *slot, __u32 outcome)
{
	slot->outcome = outcome;
	return false;
}

/* Whether the receiver may soon have what the walk was missing: it learns of mappings after they are first used. */
static __always_inline bool came_too_early(__u32 outcome)
{
	return outcome == SW_OUTCOME_NO_TABLE || outcome == SW_OUTCOME_UNKNOWN_PROCESS ||
	       outcome == SW_OUTCOME_NO_MAPPING;
}

/*
 * The value of a register in the current frame. In callers' frames only the two tracked registers are known, and
 * SW_REG_CALLEE_SAVED if all rules so far said where it is. A frame that was found by its frame pointer alone may have its
 * stack pointer anywhere below, where the ABI has a link register.
 */
static __always_inline bool register_value(struct sw_slot *slot, __u32 number, __u64 *value)
{
	if (number == SW_REG_SP) {
#ifdef SW_REG_LINK
		if (slot->sp_is_bound)
			return stop(slot, SW_OUTCOME_REGISTER_LOST);
#endif
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

/* Where the current frame ends; 0 if its rule doesn't say so, or not by a register alone. */
static __always_inline __u64 frame_end(struct sw_slot *slot, const struct sw_found *found)
{
	__u64 cfa;

	if (found->number == SW_RULE_FRAME_POINTER)
		return slot->fp + 2 * sizeof(__u64);
	if (found->number == SW_RULE_NONE || found->rule.cfa_base != SW_CFA_REGISTER ||
	    !register_value(slot, found->rule.cfa_register, &cfa))
		return 0;
	return cfa + found->rule.cfa_offset;
}

static __always_inline bool enter_caller(struct sw_slot *slot, __u64 pc, __u64 sp, __u64 fp)
{
	slot->pc = code_address(pc);
	slot->sp = sp;
	slot->fp = fp;
#ifdef SW_REG_LINK
	slot->sp_is_bound = 0;
#endif
	slot->is_return_address = 1;
	slot->is_interrupted = 0;
	slot->has_callee_saved = 0;
	slot->unproven = 0;
	return true;
}

static __always_inline bool may_go_to(struct sw_slot *slot, __u64 cfa)
{
	if (cfa > slot->sp)
		return true;
	if (slot->stack_switches++ < SW_STACK_SWITCHES_MAX)
		return true;
	return stop(slot, SW_OUTCOME_STACK_NOT_RISING);
}

static __always_inline bool step_by_frame_pointer(struct sw_slot *slot)
{
	__u64 frame = slot->fp, pc, fp;

	if (!read_word(slot, frame + 8, &pc) || !read_word(slot, frame, &fp))
		return false;
	if (!may_go_to(slot, frame + 16))
		return false;
	return enter_caller(slot, pc, frame + 16, fp);
}

#endif
