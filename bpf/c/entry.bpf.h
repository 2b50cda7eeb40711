/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/* From a hook to the start of the user stack's walk: the kernel's frames, and the registers with which the task left user mode. */
#ifndef SIDEWINDER_ENTRY_BPF_H
#define SIDEWINDER_ENTRY_BPF_H

#include "arch.bpf.h"
#include "context.bpf.h"
#include "current_frame.bpf.h"
#include "stack.bpf.h"
#include "table.bpf.h"
#include "task.bpf.h"
#include "unwind.bpf.h"

/* The frames of a program at a tracepoint: its own, and bpf_trace_run1. */
#define SW_TRACEPOINT_FRAMES 2

/*
 * Walks the kernel part of the stack without its innermost `skipped` frames, using the kernel's own unwinder, which knows its
 * unwind formats. These are the first frames, and fewer than a chunk holds.
 */
static __always_inline void walk_kernel_stack(void *ctx, struct sw_slot *slot, __u64 skipped)
{
	long bytes = bpf_get_stack(ctx, slot->window, SW_KERNEL_FRAMES_MAX * sizeof(__u64), skipped);
	struct sw_hash hash = slot->hash;
	__u32 count;

	if (bytes <= 0)
		return;
	count = bytes / sizeof(__u64);
	/* Not after the loop: the bounds that the verifier knows of the count there would differ in each round. */
	slot->count = count;
	slot->depth = count;
	for (__u32 i = 0; i < SW_KERNEL_FRAMES_MAX && i < count; i++)
		put_frame(slot, &hash, i, frame_head(SW_FRAME_KERNEL, i ? SW_FRAME_RETURN_ADDRESS : 0, 0),
			  ((__u64 *)slot->window)[i]);
	slot->hash = hash;
}

/*
 * Prepares the slot for walks in a forked child that the receiver doesn't know yet and that still runs its parent's
 * program: its memory is a copy of the parent's at the fork. An orphan's parent runs another program, with its stack and
 * code at other addresses. If the kernel doesn't have the fields to check this, a parent's mappings are never used for a
 * child.
 */
static __noinline int enter_forked(struct sw_slot *slot)
{
	struct task_struct *task = current_task();
	struct task_struct *parent = sw_task(task, real_parent);
	struct mm_struct *mm = sw_task(task, mm), *parent_mm = BPF_CORE_READ(parent, mm);
	__u32 pid = process_id(parent);

	if (!sw_has_start_stack() || !sw_has_start_code() || !sw_has_exe_file())
		return 0;
	if (!(sw_task(task, flags) & PF_FORKNOEXEC) || !mm || !parent_mm || !pid)
		return 0;
	if (BPF_CORE_READ(mm, start_stack) != BPF_CORE_READ(parent_mm, start_stack) ||
	    BPF_CORE_READ(mm, start_code) != BPF_CORE_READ(parent_mm, start_code) ||
	    BPF_CORE_READ(mm, exe_file) != BPF_CORE_READ(parent_mm, exe_file))
		return 0;
	if (!enter_process(slot, pid, BPF_CORE_READ(parent, group_leader, start_time),
			   sw_task(task, group_leader, start_time)))
		return 0;
	slot->started_ns = sw_task(task, group_leader, start_time);
	/* The parent's context doesn't apply to the child, which publishes nothing until it sets its own. */
	slot->variable_count = 0;
	return 1;
}

/*
 * Prepares the walk of the user part of the stack, from the registers in the slot. False: there is none, or it can't be
 * walked; slot->outcome says why.
 */
static __always_inline bool enter_user(struct sw_slot *slot, struct task_struct *task, sw_abi abi)
{
	if (in_execve(task))
		return stop(slot, SW_OUTCOME_EXEC);
	if (abi != SW_ABI_NATIVE)
		return stop(slot, abi == SW_ABI_FOREIGN ? SW_OUTCOME_FOREIGN_ABI : SW_OUTCOME_NO_REGISTERS);
	if (!enter_process(slot, slot->pid, sw_task(task, group_leader, start_time), slot->time_ns) &&
	    !enter_forked(slot)) {
		push_frame(slot, frame_head(SW_FRAME_ANONYMOUS, 0, 0), slot->registers[SW_REG_PC]);
		return stop(slot, SW_OUTCOME_UNKNOWN_PROCESS);
	}
	if (slot->variable_count)
		read_context(slot->kind);
	start_walk(slot);
	return true;
}

/*
 * Walks the kernel part of the current task's stack without its innermost `skipped` frames, and prepares the walk of the user
 * part like enter_user, from where the task entered the kernel.
 */
static __always_inline bool enter_from_kernel(void *ctx, struct sw_slot *slot, struct task_struct *task, __u32 task_flags,
					      __u64 skipped)
{
	if (kernel_frames)
		walk_kernel_stack(ctx, slot, skipped);
	if (is_kernel_thread(task_flags))
		return stop(slot, SW_OUTCOME_KERNEL_THREAD);
	if (!sw_task(task, mm))
		return stop(slot, SW_OUTCOME_EXITING);
	return enter_user(slot, task, registers_of_task(slot));
}

#endif
