/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/*
 * Walks a user stack, from the registers in a slot to the start of the thread. Independent of the program type: any program
 * that has claimed a slot and filled in the registers can walk.
 */
#ifndef SIDEWINDER_UNWIND_BPF_H
#define SIDEWINDER_UNWIND_BPF_H

#include "arch.bpf.h"
#include "call.bpf.h"
#include "current_frame.bpf.h"
#include "maps.bpf.h"
#include "stack.bpf.h"
#include "stack_window.bpf.h"
#include "table.bpf.h"
#include "vm.bpf.h"

/* ---- One step ------------------------------------------------------------------------------------------ */

static __always_inline bool enter_guessed(struct sw_slot *slot, __u64 pc, __u64 sp, __u64 fp)
{
	enter_caller(slot, pc, sp, fp);
	slot->unproven = SW_FRAME_UNPROVEN;
	slot->guesses++;
	slot->head.frames_guess++;
	return true;
}

#define SW_NOT_READABLE 2
#define SW_CALLED_ANOTHER 3

/*
 * Tries the frame pointer in code without unwind information (generated at run time, or assembly). It must point to an
 * aligned frame not far above the stack pointer, with a return address after a call. Returns 0 if it doesn't, and
 * SW_CALLED_ANOTHER if the call was of a function other than the current one and `any_call` isn't set. The current frame is
 * unchanged in both cases. Not static, like step_in_slot: the verifier checks it once.
 */
__noinline int guess_by_frame_pointer(__u32 number, __u32 any_call)
{
	struct sw_slot *slot = bpf_map_lookup_elem(&slots, &number);
	__u64 frame, pc, fp;

	barrier_var(any_call);
	if (!slot)
		return 0;
	frame = slot->fp;
	if ((frame & 7) || frame < slot->sp || frame - slot->sp > SW_UNPROVEN_FRAME_BYTES_MAX)
		return 0;
	if (!read_word(slot, frame + 8, &pc) || !read_word(slot, frame, &fp))
		return 0;
	pc = code_address(pc);
	/* The address may be outside known mappings, like newly generated code: then the receiver rereads the mappings. */
	if (!is_after_call_of(pc, 0))
		return 0;
	if (!any_call && !is_after_call_of(pc, slot->pc - slot->is_return_address))
		return SW_CALLED_ANOTHER;
	enter_guessed(slot, pc, frame + 16, fp);
#ifdef SW_REG_LINK
	/* The frame record is anywhere in its frame. */
	slot->sp_is_bound = 1;
#endif
	return 1;
}

#ifdef SW_REG_LINK
/*
 * Tries the link register in interrupted code without unwind information. A function that called none yet has its return
 * address there, and its caller's frame record, if it has made none itself. Returns 0 if there is no return address after a
 * call, or the same one is in the record.
 */
__noinline int guess_by_link_register(__u32 number)
{
	struct sw_slot *slot = bpf_map_lookup_elem(&slots, &number);
	__u64 pc, in_record;

	if (!slot || !slot->has_callee_saved)
		return 0;
	pc = code_address(slot->callee_saved);
	if (try_read_word(slot, slot->fp + 8, &in_record) && code_address(in_record) == pc)
		return 0;
	if (!is_after_call_of(pc, slot->pc - slot->is_return_address))
		return 0;
	enter_guessed(slot, pc, slot->sp, slot->fp);
	slot->sp_is_bound = 1;
	return 1;
}
#endif

/*
 * Whether a function to which pc returns, with the stack pointer sp, can have a frame here: its rule must lead to an address
 * after a call of it. Only rules based on the stack pointer are checked; with others the answer is yes. This rejects the
 * remains of a function that has returned, if its frame was overwritten.
 */
static __noinline int may_be_frame(struct sw_slot *slot, __u64 pc, __u64 sp)
{
	__u64 own_pc = slot->pc, caller;
	__u32 own_is_return_address = slot->is_return_address;
	struct sw_found *found;
	bool has_rule;

	slot->pc = pc;
	slot->is_return_address = 1;
	found = place_of_frame(slot);
	has_rule = (is_remembered(slot, found) || find_marked_frame(slot)) && found->number >= SW_RULE_FIRST_FREE &&
		   found->rule.cfa_base == SW_CFA_REGISTER && found->rule.cfa_register == SW_REG_SP &&
		   found->rule.ra == SW_PLACE_CFA;
	slot->pc = own_pc;
	slot->is_return_address = own_is_return_address;
	if (!has_rule)
		return 1;
	return read_word(slot, sp + found->rule.cfa_offset + found->rule.ra_offset, &caller) &&
	       is_after_call_of(code_address(caller), pc);
}

/*
 * Steps to the caller if the word at index `word` above the stack pointer is a return address: in code, and after a call.
 * With `is_generated`, any call in code whose own frame is plausible; otherwise a call of the current function, below the
 * frame pointer.
 */
__noinline int returns_through(__u32 number, __u32 word, __u32 is_generated)
{
	struct sw_slot *slot = bpf_map_lookup_elem(&slots, &number);
	__u64 at, pc;

	barrier_var(is_generated);
	if (!slot)
		return SW_NOT_READABLE;
	at = slot->sp + (__u64)word * sizeof(__u64);
	if (!is_generated && at >= slot->fp)
		return SW_NOT_READABLE;
	if (!read_word(slot, at, &pc))
		return SW_NOT_READABLE;
	pc = code_address(pc);
	if (!enter_range(slot->number, pc - 1))
		return 0;
	if (!(is_generated ? is_after_call_of(pc, 0) : is_after_near_call_of(pc, slot->pc - slot->is_return_address)))
		return 0;
	if (is_generated && !may_be_frame(slot, pc, at + sizeof(__u64)))
		return 0;
	return enter_guessed(slot, pc, at + sizeof(__u64), slot->fp);
}

/*
 * Steps to a plausible caller, without an unwind rule. Returns 0 if there is none.
 *
 * Code from just-in-time compilers that keeps no frame pointers has one frame on the C stack, possibly empty: the code of
 * LuaJIT, PyPy and Guile continues by jumps, or calls on a separate stack. So the first return address above the stack
 * pointer is usually the one to which all of that code returns, except for remains of earlier calls in parts of the frame
 * that were not written to. Such code is often called through a stub that jumps to it, so any call is accepted.
 *
 * In code of files, a frame pointer may lead to a return address after a call of another function. Either the current
 * function doesn't use frame pointers and left its caller's in the register: then its own return address is below, after a
 * call of it. Or it was reached by a jump from the called function, as V8's builtins are: then there is no such address
 * below.
 */
__noinline int guess_caller(__u32 number, __u32 is_generated)
{
	int by_frame_pointer;

#ifdef SW_REG_LINK
	if (guess_by_link_register(number))
		return 1;
#endif
	by_frame_pointer = guess_by_frame_pointer(number, is_generated);
	barrier_var(is_generated);
	if (by_frame_pointer == 1)
		return 1;
	if (!is_generated && by_frame_pointer != SW_CALLED_ANOTHER)
		return 0;
	for (__u32 word = 0; word < SW_SEARCH_WORDS; word++) {
		int found = returns_through(number, word, is_generated);

		if (found == 1)
			return 1;
		if (found)
			break;
	}
	return !is_generated && guess_by_frame_pointer(number, 1) == 1;
}

/* Reads a value of the caller from the location that the rule states. */
static __always_inline bool saved_value(struct sw_slot *slot, __u8 place, __u8 number, __s32 offset, __u64 cfa,
					__u64 *value)
{
	__u64 base = cfa;

	if (place != SW_PLACE_CFA && !register_value(slot, number, &base))
		return false;
	if (place == SW_PLACE_REGISTER) {
		*value = base;
		return true;
	}
	return read_word(slot, base + offset, value);
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

static __always_inline bool step_by_rule(struct sw_slot *slot, const struct sw_rule *rule)
{
	bool signal = rule->flags & SW_RULE_SIGNAL_FRAME;
	__u32 has_callee_saved = rule->flags & SW_RULE_KEEPS_CALLEE_SAVED ? slot->has_callee_saved : 0;
	__u64 cfa, pc, fp = slot->fp;

	if (rule->ra == SW_PLACE_UNDEFINED)
		return stop(slot, SW_OUTCOME_COMPLETE);
	if ((rule->flags & SW_RULE_AFTER_CLONE) && slot->is_interrupted && !slot->registers[SW_REG_SYSCALL_RESULT])
		return stop(slot, SW_OUTCOME_COMPLETE);
	if (!canonical_frame_address(slot, rule, &cfa) ||
	    !saved_value(slot, rule->ra, rule->ra_register, rule->ra_offset, cfa, &pc))
		return false;
	if (rule->fp == SW_PLACE_UNDEFINED)
		fp = 0;
	else if (rule->fp != SW_PLACE_SAME &&
		 !saved_value(slot, rule->fp, rule->fp_register, rule->fp_offset, cfa, &fp))
		return false;
	if (rule->flags & SW_RULE_SAVES_CALLEE_SAVED) {
#ifdef SW_REG_LINK
		/* Only signal frames have it in the word above the frame pointer. */
		if (rule->flags & SW_RULE_KEEPS_CALLEE_SAVED) {
			if (!saved_value(slot, rule->fp, rule->fp_register, rule->fp_offset + sizeof(__u64), cfa,
					 &slot->callee_saved))
				return false;
		} else
#endif
		if (!read_word(slot, cfa - 8 * (rule->addend_by_8 + 1), &slot->callee_saved))
			return false;
		has_callee_saved = 1;
	}
	/* A leaf function that moved its return address into a register has no frame. */
	if (!(cfa == slot->sp && rule->ra == SW_PLACE_REGISTER) && !may_go_to(slot, cfa))
		return false;
	enter_caller(slot, pc, cfa, fp);
	slot->has_callee_saved = has_callee_saved;
	slot->is_return_address = !signal;
	return true;
}

/*
 * Whether this isn't a frame but the base of a stack that a library created for a fibre: its first frame has nothing to
 * return to, so its return address is set to 0. A call never stores a 0, but a wrong rule or a guess may read one as a
 * return address. So all steps up to here must have been by rules, and the previous frame must end at the alignment that
 * the ABI requires of a called function's frame: this rejects rules that are wrong by one word, as rules of
 * hand-written code can be.
 */
static __always_inline bool is_base(const struct sw_slot *slot)
{
	return !slot->pc && slot->is_return_address && !slot->guesses && slot->sp % SW_STACK_ALIGNMENT_BYTES == 0;
}

/* Appends the current frame and steps to its caller. False: the walk is over; slot->outcome says how it ended. */
static __always_inline bool step(struct sw_slot *slot)
{
	struct sw_found *found = place_of_frame(slot);
	__u32 is_generated;
	int in_vm;

	if (!is_remembered(slot, found) && !find_current_frame(slot->number)) {
		if (is_base(slot))
			return stop(slot, SW_OUTCOME_COMPLETE);
		/* An interrupted pc is certain, wherever it is; a return address may be a misread word. */
		if (!slot->is_return_address && !push_frame(slot, frame_head(SW_FRAME_ANONYMOUS, 0, 0), slot->pc))
			return stop(slot, SW_OUTCOME_RING_FULL);
		return stop(slot, SW_OUTCOME_NO_MAPPING);
	}
	if (slot->depth >= frame_limit)
		return stop(slot, SW_OUTCOME_FRAME_LIMIT);
	in_vm = step_in_vm(slot, found);
	if (in_vm == SW_VM_NO_ROOM)
		return stop(slot, SW_OUTCOME_RING_FULL);
	if (in_vm != SW_VM_NATIVE_IS_NEXT)
		return in_vm != SW_VM_WALK_ENDED;
	settle_rule(slot, found);
	if (!push_frame(slot, found->head | (__u64)slot->unproven << SW_FRAME_FLAGS_SHIFT, found->address))
		return stop(slot, SW_OUTCOME_RING_FULL);
	if (found->number == SW_RULE_FRAME_POINTER) {
		slot->head.frames_frame_pointer++;
		return step_by_frame_pointer(slot);
	}
	if (found->number == SW_RULE_NONE) {
		is_generated = (__u8)found->head == SW_FRAME_ANONYMOUS;
		return guess_caller(slot->number, is_generated) || stop(slot, SW_OUTCOME_NO_RULE);
	}
	if (found->rule.cfa_base == SW_CFA_NONE)
		return stop(slot, found->rule.cfa_offset);
	slot->head.frames_table += found->number < SW_RULE_HOTSPOT;
	return step_by_rule(slot, &found->rule);
}

/* ---- The loop: the only code that depends on how a program may repeat itself --------------------------- */

/* Makes the interrupted frame, given by the slot's registers, the current one. */
static __always_inline void start_walk(struct sw_slot *slot)
{
	slot->bytes_before = slot->sp - slot->first_sp;
	slot->pc = slot->registers[SW_REG_PC];
	slot->sp = slot->registers[SW_REG_SP];
	slot->first_sp = slot->sp;
	slot->fp = slot->registers[SW_REG_FP];
#ifdef SW_REG_LINK
	slot->sp_is_bound = 0;
#endif
	slot->is_return_address = 0;
	slot->callee_saved = slot->registers[SW_REG_CALLEE_SAVED];
	slot->has_callee_saved = 1;
	slot->is_interrupted = 1;
	slot->unproven = 0;
	slot->guesses = 0;
	slot->stack_switches = 0;
	slot->window_bytes = 0;
	start_vm_frames(slot);
	slot->outcome = SW_OUTCOME_FRAME_LIMIT;
}

static long found_vma(struct task_struct *task, struct vm_area_struct *vma, void *found)
{
	*(__u32 *)found = 1;
	return 0;
}

struct walk_context {
	struct sw_slot *slot;
};

static long walk_round(__u32 round, struct walk_context *context)
{
	for (__u32 i = 0; i < SW_FRAMES_PER_ROUND; i++)
		if (!step(context->slot))
			return 1;
	return 0;
}

/*
 * Walks to the end of the stack; slot->outcome says how it ended. For programs that may pass functions to helpers
 * (bpf_loop and bpf_find_vma, since Linux 5.17).
 */
static __always_inline void walk_by_loop(struct sw_slot *slot)
{
	struct walk_context context = { .slot = slot };
	__u32 found = 0;

	bpf_loop(frame_limit / SW_FRAMES_PER_ROUND + 1, walk_round, &context, 0);
	if (came_too_early(slot->outcome))
		end_vm_frames(slot->number);
	if (slot->outcome != SW_OUTCOME_BAD_ADDRESS)
		return;
	bpf_find_vma(bpf_get_current_task_btf(), slot->unreadable, found_vma, &found, 0);
	if (found)
		slot->outcome = SW_OUTCOME_PAGE_ABSENT;
}

/*
 * One step, in a function that isn't static: the verifier checks it once, however often it is called. Before Linux 5.12 such
 * functions only take integers, so the slot is given by its index.
 */
__noinline int step_in_slot(__u32 number)
{
	struct sw_slot *slot = bpf_map_lookup_elem(&slots, &number);

	return slot ? step(slot) : 0;
}

/*
 * Walks up to SW_FRAMES_PER_CALL frames. False: the walk is over; slot->outcome says how it ended. For programs that call
 * themselves for the rest, up to SW_CALLS_MAX times.
 */
static __always_inline bool walk_by_calls(__u32 slot)
{
	for (__u32 i = 0; i < SW_FRAMES_PER_CALL; i++)
		if (!step_in_slot(slot)) {
			end_vm_frames(slot);
			return false;
		}
	return true;
}

#endif
