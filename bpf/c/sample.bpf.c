// SPDX-License-Identifier: (GPL-2.0-only OR MIT)
/*
 * Sidewinder's programs.
 *
 * An interrupt of the CPU clock becomes a sample: the task is looked at only if it is in scope; its kernel frames, if
 * it was in the kernel, and its user frames are walked into scratch of this CPU and hashed on the way; a stack that
 * was not seen in this epoch is sent in full, and then a small record that names it by hash. Each interrupt ends in
 * exactly one outcome, counted where it ends.
 *
 *   intf.h      what the receiver sees too        stack.bpf.h    frames, their hash, what leaves
 *   maps.bpf.h  maps, options, scratch            table.bpf.h    from an address to its rule
 *   scope.bpf.h whose memory may be read          unwind.bpf.h   from registers to the start of the thread
 *   slot.bpf.h  claiming scratch                  regs.bpf.h     the architecture
 *   process.bpf.h  fork, exec and exit            snapshot.bpf.h what walks leave to the receiver
 */
#include "maps.bpf.h"
#include "scope.bpf.h"
#include "slot.bpf.h"
#include "unwind.bpf.h"
#include "process.bpf.h"
#include "snapshot.bpf.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

struct kernel_context {
	struct sw_slot *slot;
	__u32 count;
};

static long push_kernel_frame(__u32 i, struct kernel_context *context)
{
	struct sw_slot *slot = context->slot;
	__u32 flags = i ? SW_FRAME_RETURN_ADDRESS : 0;

	if (i >= context->count || i >= SW_KERNEL_FRAMES_MAX)
		return 1;
	return !push_frame(slot, frame_head(SW_FRAME_KERNEL, flags, 0), ((__u64 *)slot->window)[i & 127]);
}

/* The kernel part of the stack. The kernel's own walk is used: it knows its own unwind formats. */
static __noinline int walk_kernel_stack(struct bpf_perf_event_data *ctx, struct sw_slot *slot)
{
	struct kernel_context context = { .slot = slot };
	long bytes = bpf_get_stack(ctx, slot->window, SW_KERNEL_FRAMES_MAX * sizeof(__u64), 0);

	if (bytes <= 0)
		return 0;
	context.count = bytes / sizeof(__u64);
	bpf_loop(SW_KERNEL_FRAMES_MAX, push_kernel_frame, &context, 0);
	return context.count;
}

/* The user part of the stack, from the registers in the slot. Sets slot->outcome. */
static __always_inline void walk_user(struct sw_slot *slot, struct task_struct *task, __u32 pid, __u64 code_segment)
{
	if (BPF_CORE_READ_BITFIELD(task, in_execve)) {
		slot->outcome = SW_OUTCOME_EXEC;
		return;
	}
	if (code_segment != SW_USER_CS_64) {
		slot->outcome = code_segment == SW_USER_CS_32 ? SW_OUTCOME_FOREIGN_ABI : SW_OUTCOME_NO_REGISTERS;
		return;
	}
	if (!enter_process(slot, pid)) {
		push_frame(slot, frame_head(SW_FRAME_ANONYMOUS, 0, 0), slot->registers[SW_REG_PC]);
		slot->outcome = SW_OUTCOME_UNKNOWN_PROCESS;
		return;
	}
	walk_user_stack(slot);
}

/* Both parts of the stack of the interrupted task, leaf first. Sets slot->outcome. */
static __always_inline void walk(struct bpf_perf_event_data *ctx, struct sw_slot *slot, struct task_struct *task,
				 __u32 task_flags, __u32 pid, bool in_kernel)
{
	__u64 code_segment;

	if (in_kernel && kernel_frames) {
		struct sw_cpu *cpu = this_cpu();
		int frames = walk_kernel_stack(ctx, slot);

		if (cpu)
			sw_count(cpu->kernel_frames, frames);
	}
	if (task_flags & (PF_KTHREAD | PF_IO_WORKER)) {
		slot->outcome = SW_OUTCOME_KERNEL_THREAD;
		return;
	}
	if (!task->mm) {
		slot->outcome = SW_OUTCOME_EXITING;
		return;
	}
	code_segment = in_kernel ? registers_of_task(slot->registers) : registers_of_interrupt(slot->registers, &ctx->regs);
	walk_user(slot, task, pid, code_segment);
}

/* Sends the stack in the slot, and the sample that names it. Returns the outcome that is to be counted. */
static __always_inline __u32 send_sample(struct sw_slot *slot, struct sw_cpu *cpu, struct task_struct *task,
					 __u32 pid, __u8 kind, bool in_kernel, __u64 time_ns)
{
	__u32 number = bpf_get_smp_processor_id();
	void *ring = bpf_map_lookup_elem(&rings, &number);
	__u32 outcome = slot->outcome;
	struct sw_sample sample = {
		.type = SW_RECORD_SAMPLE,
		.kind = kind,
		.outcome = outcome,
		.time_ns = time_ns,
		.pid = pid,
		.cpu = number,
		.flags = in_kernel ? SW_SAMPLE_IN_KERNEL : 0,
		.value = 1,
	};

	if (!ring || outcome == SW_OUTCOME_RING_FULL || !end_stack(slot, outcome))
		return SW_OUTCOME_RING_FULL;
	sample.tid = thread_id(task);
	sample.stack = slot->hash;
	sample.epoch = cpu->epoch;
	bpf_get_current_comm(sample.comm, sizeof(sample.comm));
	if (came_too_early(outcome) && send_snapshot(slot, time_ns, sample.tid))
		sample.flags |= SW_SAMPLE_HAS_SNAPSHOT;
	return send(ring, &sample, sizeof(sample), came_too_early(outcome)) ? outcome : SW_OUTCOME_RING_FULL;
}

/* A slot that is ready for a walk, or none. */
static __always_inline struct sw_slot *begin_walk(void)
{
	struct sw_slot *slot = claim_slot();

	if (slot) {
		slot->frames_by_table = 0;
		slot->frames_by_frame_pointer = 0;
		slot->frames_unproven = 0;
		start_stack(slot);
	}
	return slot;
}

static __always_inline void end_walk(struct sw_slot *slot, struct sw_cpu *cpu)
{
	sw_count(cpu->frames_by_table, slot->frames_by_table);
	sw_count(cpu->frames_by_frame_pointer, slot->frames_by_frame_pointer);
	sw_count(cpu->frames_unproven, slot->frames_unproven);
	release_slot(slot);
}

static __always_inline __u32 take_sample(struct bpf_perf_event_data *ctx, struct sw_cpu *cpu)
{
	struct task_struct *task = (void *)bpf_get_current_task_btf();
	bool in_kernel = !interrupted_user_mode(ctx);
	__u32 pid, outcome, task_flags;
	struct sw_slot *slot;
	__u64 time_ns;

	if (task->pid == 0)
		return SW_OUTCOME_IDLE;
	pid = process_id(task);
	if (!in_scope(cpu, task, pid))
		return SW_OUTCOME_OUT_OF_SCOPE;
	task_flags = task->flags;
	if ((task_flags & PF_KTHREAD) && !kernel_threads)
		return SW_OUTCOME_KERNEL_THREAD;
	time_ns = bpf_ktime_get_ns();
	slot = begin_walk();
	if (!slot)
		return SW_OUTCOME_BUSY;
	walk(ctx, slot, task, task_flags, pid, in_kernel);
	outcome = send_sample(slot, cpu, task, pid, SW_SAMPLE_CPU, in_kernel, time_ns);
	end_walk(slot, cpu);
	return outcome;
}

SEC("perf_event")
int sample_cpu(struct bpf_perf_event_data *ctx)
{
	struct sw_cpu *cpu = this_cpu();
	__u32 outcome;

	if (!cpu)
		return 0;
	outcome = take_sample(ctx, cpu);
	if (outcome < SW_OUTCOME_COUNT)
		sw_count(cpu->outcomes[outcome & 31], 1);
	return 0;
}

/*
 * A sample of each pass through a place in a program. Its outcomes are counted apart: they are no interrupts. A CPU
 * clock that interrupts this program takes the next slot.
 */
SEC("uprobe")
int sample_probe(struct pt_regs *ctx)
{
	struct task_struct *task = (void *)bpf_get_current_task_btf();
	__u64 time_ns = bpf_ktime_get_ns(), code_segment;
	struct sw_cpu *cpu = this_cpu();
	__u32 pid = process_id(task);
	struct sw_slot *slot;

	if (!cpu || !in_scope(cpu, task, pid))
		return 0;
	slot = begin_walk();
	if (!slot) {
		sw_count(cpu->probes_lost, 1);
		return 0;
	}
	code_segment = registers_of_interrupt(slot->registers, ctx);
	walk_user(slot, task, pid, code_segment);
	if (send_sample(slot, cpu, task, pid, SW_SAMPLE_PROBE, false, time_ns) == SW_OUTCOME_RING_FULL)
		sw_count(cpu->probes_lost, 1);
	end_walk(slot, cpu);
	return 0;
}
