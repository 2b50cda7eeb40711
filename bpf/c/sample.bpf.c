// SPDX-License-Identifier: (GPL-2.0-only OR MIT)
/*
 * Sidewinder's programs.
 *
 * An interrupt of the CPU clock, or of a counter, becomes a sample: first the task must be in scope; then its kernel frames,
 * if it was in the kernel, and its user frames are walked into scratch memory of this CPU, and hashed; a stack that was not
 * seen in this epoch is sent in full, followed by a small record that refers to it by hash. Each interrupt ends in exactly
 * one outcome, counted where it ends.
 *
 *   intf.h         shared with the receiver       stack.bpf.h    frames, their hash, sending them
 *   maps.bpf.h     maps, options, scratch         table.bpf.h    from an address to its rule
 *   scope.bpf.h    which tasks are in scope       unwind.bpf.h   from registers to the start of the thread
 *   slot.bpf.h     claiming scratch               arch.bpf.h     the architecture
 *   process.bpf.h  fork, exec and exit            snapshot.bpf.h stacks that the receiver walks later
 *   context.bpf.h  the span that a thread is in   labels.bpf.h   labels of goroutines and of threads
 *   vm.bpf.h       frames of virtual machines     cpython.bpf.h  those of CPython
 *   tls.bpf.h      thread-local variables         vm_memory.bpf.h  a window on a virtual machine's memory
 *   fields.bpf.h   optional kernel fields         stack_window.bpf.h  a window on the stack
 *   off_cpu.bpf.h  threads that leave their CPU   counter.bpf.h  interrupts of counters
 *   wait_list.bpf.h  waits in progress            code_object.bpf.h  functions of young processes
 *   lock.bpf.h     locks that threads wait for    hotspot*.bpf.h  frames of the Java virtual machine
 *   atomic.bpf.h   access to shared memory        current_frame.bpf.h  a frame's registers, and its end
 *   user_probe.bpf.h  probes that users place in programs
 *   waker.bpf.h    threads that end waits of others
 *   tracepoint.bpf.h  probes at tracepoints of the kernel
 *   test.bpf.h     programs that only tests load
 *
 * What begins and ends a sample isn't inlined: verifiers add up the stack of a program and of all functions on the way to a
 * deeper one, each rounded up to 32 bytes, and refuse more than 512. A program keeps little while it walks.
 *
 * The sample_* programs need loops (Linux 5.17). Older kernels get sample_*_by_calls instead, which begin the sample, and
 * walk_*_by_calls, which walk, call themselves for more frames, and end it.
 */
#include "maps.bpf.h"
#include "scope.bpf.h"
#include "slot.bpf.h"
#include "unwind.bpf.h"
#include "process.bpf.h"
#include "snapshot.bpf.h"
#include "context.bpf.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

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

/* Walks the kernel part of the interrupted task's stack, and prepares the walk of the user part like enter_user. */
static __always_inline bool enter_interrupted(struct bpf_perf_event_data *ctx, struct sw_slot *slot,
					      struct task_struct *task, __u32 task_flags)
{
	sw_abi abi;

	if (slot->in_kernel && kernel_frames)
		walk_kernel_stack(ctx, slot, 0);
	if (is_kernel_thread(task_flags))
		return stop(slot, SW_OUTCOME_KERNEL_THREAD);
	if (!sw_task(task, mm))
		return stop(slot, SW_OUTCOME_EXITING);
	abi = slot->in_kernel ? registers_of_task(slot) : registers_of_interrupt(slot->registers, &ctx->regs);
	return enter_user(slot, task, abi);
}

static __always_inline void write_sample(struct sw_sample *sample, struct sw_slot *slot, struct sw_cpu *cpu,
					 __u32 flags)
{
	*sample = (struct sw_sample){
		.type = SW_RECORD_SAMPLE,
		.kind = slot->kind,
		.outcome = slot->outcome,
		.epoch = READ_ONCE(cpu->epoch),
		.time_ns = slot->time_ns,
		.stack = slot->hash,
		.pid = slot->pid,
		.tid = slot->tid,
		.cpu = bpf_get_smp_processor_id(),
		.flags = flags,
		.value = slot->value,
	};
	copy_name(sample->comm, current_task());
}

/* Sends the stack in the slot, and the sample that refers to it. Returns the outcome to count. */
static __always_inline __u32 send_sample(struct sw_slot *slot, struct sw_cpu *cpu)
{
	void *ring = this_ring();
	__u32 outcome = slot->outcome, context_bytes = slot->context_bytes;
	__u32 flags = slot->wait_flags | (slot->in_kernel ? SW_SAMPLE_IN_KERNEL : 0);
	struct sw_sample *sample;
	__u64 wakeup_flags;

	if (!ring || outcome == SW_OUTCOME_RING_FULL || !end_stack(slot, outcome))
		return SW_OUTCOME_RING_FULL;
	if (came_too_early(outcome) && send_snapshot(slot->kind))
		flags |= SW_SAMPLE_HAS_SNAPSHOT;
	if (context_bytes) {
		write_sample(&slot->sample, slot, cpu, flags | slot->context_flag);
		return send(ring, &slot->sample, sizeof(*sample) + context_bytes,
			    sizeof(*sample) + sizeof(slot->context)) ? outcome : SW_OUTCOME_RING_FULL;
	}
	/* Written in place, which takes a quarter less time than copying. */
	wakeup_flags = wakeup_of(ring, sizeof(*sample));
	sample = bpf_ringbuf_reserve(ring, sizeof(*sample), 0);
	if (!sample)
		return SW_OUTCOME_RING_FULL;
	write_sample(sample, slot, cpu, flags);
	bpf_ringbuf_submit(sample, wakeup_flags);
	return outcome;
}

/* Claims a slot and prepares it for a sample; null if no slot is free. */
static __always_inline struct sw_slot *begin_sample(__u8 kind, __u32 pid, bool in_kernel, __u64 time_ns)
{
	struct sw_slot *slot = claim_slot(kind);

	if (!slot)
		return 0;
	slot->pid = pid;
	slot->tid = thread_id(current_task());
	slot->in_kernel = in_kernel;
	slot->time_ns = time_ns;
	slot->value = 1;
	slot->wait_flags = 0;
	start_stack(slot);
	return slot;
}

/* The binary logarithm of a depth below 65,536, rounded down. */
static __always_inline __u32 depth_class(__u32 depth)
{
	__u32 class = (depth > 0xff) << 3;

	depth >>= class;
	class |= (depth > 0xf) << 2;
	depth >>= class & 4;
	class |= (depth > 3) << 1;
	depth >>= class & 2;
	return class | (depth > 1);
}

/* Ends the stack at its current frame and sends the sample. Returns the outcome to count. */
static __always_inline __u32 end_sample(struct sw_slot *slot, struct sw_cpu *cpu)
{
	__u32 outcome = send_sample(slot, cpu), depth = depth_class(slot->depth);

	if (slot->depth && depth < SW_DEPTHS)
		slot->head.stack_depths[depth]++;
	return outcome;
}

/* Ends the sample of an interrupt, counts its outcome and returns it. */
static __noinline __u32 end_interrupt(struct sw_slot *slot, struct sw_cpu *cpu, __u32 kind)
{
	__u32 outcome = end_sample(slot, cpu);

	if (outcome < SW_OUTCOME_COUNT) {
		/* Older verifiers lose the bounds of values that the compiler spills to the stack. */
		outcome &= SW_OUTCOME_PLACES - 1;
		kind &= SW_SAMPLE_KINDS - 1;
		barrier_var(outcome);
		barrier_var(kind);
		slot->head.outcomes[kind][outcome]++;
	}
	release_slot(slot);
	return outcome;
}

/*
 * The process of the current task, by its id in the receiver's PID namespace, if the task is to be sampled. Else 0, and in
 * *otherwise the outcome. Sets *task_flags and *time_ns, the current time, of a task that is sampled.
 */
static __always_inline __u32 sampled_process(struct sw_cpu *cpu, struct task_struct *task, __u32 *task_flags,
					     __u64 *time_ns, __u32 *otherwise)
{
	__u32 pid;

	*otherwise = SW_OUTCOME_IDLE;
	if (sw_task(task, pid) == 0)
		return 0;
	*otherwise = SW_OUTCOME_OUT_OF_SCOPE;
	pid = process_in_scope(cpu, task);
	if (!pid)
		return 0;
	*otherwise = SW_OUTCOME_KERNEL_THREAD;
	*task_flags = sw_task(task, flags);
	if ((*task_flags & PF_KTHREAD) && !kernel_threads)
		return 0;
	*time_ns = bpf_ktime_get_ns();
	*otherwise = SW_OUTCOME_YOUNG_PROCESS;
	return is_too_young(task, *time_ns) ? 0 : pid;
}

/*
 * Begins the sample of an interrupt: returns its slot, and in *walks whether to walk its user stack. Null if there is no
 * sample; the interrupt's outcome is then already counted.
 */
static __noinline struct sw_slot *begin_interrupt(struct bpf_perf_event_data *ctx, struct sw_cpu *cpu, __u32 kind,
						  bool *walks)
{
	struct task_struct *task = current_task();
	__u32 pid, task_flags, otherwise;
	struct sw_slot *slot;
	__u64 time_ns;

	pid = sampled_process(cpu, task, &task_flags, &time_ns, &otherwise);
	if (!pid)
		goto none;
	slot = begin_sample(kind, pid, !interrupted_user_mode(ctx), time_ns);
	otherwise = SW_OUTCOME_BUSY;
	if (!slot)
		goto none;
	*walks = enter_interrupted(ctx, slot, task, task_flags);
	return slot;
none:
	kind &= SW_SAMPLE_KINDS - 1;
	barrier_var(kind);
	sw_count(cpu->outcomes[kind][otherwise], 1);
	return 0;
}

/* ---- Interrupts of the CPU clock ------------------------------------------------------------------------ */

SEC("perf_event")
int sample_cpu(struct bpf_perf_event_data *ctx)
{
	struct sw_cpu *cpu = this_cpu();
	struct sw_slot *slot;
	bool walks;

	if (!cpu)
		return 0;
	slot = begin_interrupt(ctx, cpu, SW_SAMPLE_CPU, &walks);
	if (!slot)
		return 0;
	if (walks)
		walk_by_loop(slot);
	end_interrupt(slot, cpu, SW_SAMPLE_CPU);
	return 0;
}

SEC("perf_event")
int sample_cpu_by_calls(struct bpf_perf_event_data *ctx)
{
	struct sw_cpu *cpu = this_cpu();
	struct sw_slot *slot;
	bool walks;

	if (!cpu)
		return 0;
	slot = begin_interrupt(ctx, cpu, SW_SAMPLE_CPU, &walks);
	if (!slot)
		return 0;
	if (walks)
		bpf_tail_call(ctx, &cpu_walks, 0);
	end_interrupt(slot, cpu, SW_SAMPLE_CPU);
	return 0;
}

SEC("perf_event")
int walk_cpu_by_calls(struct bpf_perf_event_data *ctx)
{
	__u32 number;
	struct sw_slot *slot = claimed_slot(SW_SAMPLE_CPU, &number);
	struct sw_cpu *cpu = this_cpu();

	if (!cpu || !slot)
		return 0;
	if (walk_by_calls(number))
		bpf_tail_call(ctx, &cpu_walks, 0);
	end_interrupt(slot, cpu, SW_SAMPLE_CPU);
	return 0;
}

#include "counter.bpf.h"
#include "off_cpu.bpf.h"
#include "wait_list.bpf.h"
#include "user_probe.bpf.h"
#include "waker.bpf.h"
#include "tracepoint.bpf.h"

#ifdef SW_TEST_PROGRAMS
#include "test.bpf.h"
#endif
