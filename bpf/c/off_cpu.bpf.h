/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/*
 * Off-CPU time: programs at context switches, in the task that leaves the CPU.
 *
 * Where the scope is a pod they run at a software event of perf in the pod's cgroups: switches of other pods run nothing, however
 * many pods have a profiler. Elsewhere they are at the tracepoint sched_switch, which takes a third of the time of the event, but
 * runs at each switch of the machine.
 *
 * Between two times that a thread leaves a CPU, it waits, then is runnable, then runs, each of them possibly not at all. The
 * scheduler's accounts say how long it ran and was runnable since its start; the rest of the time it was off the CPUs:
 *
 *     off-CPU = wall - on-CPU - runnable
 *
 * That holds whatever happened in between, so neither a missed switch nor a migration changes the sum. The time belongs to
 * the stack with which the interval begins: the stack that waits. Its sample is taken there, and its value follows in a separate
 * record when the thread leaves a CPU again. (The receiver reads the accounts of threads that still wait at the end.)
 *
 * A thread that leaves its CPU to another one, still runnable, has an interval, too, if runnable time is sampled.
 *
 * A wait is sampled with a probability that is fixed before its length is known, and counts for the inverse of it: sums are
 * unbiased, whichever probability is chosen. It is chosen in proportion to the thread's average wait, and never lower than
 * the configured threshold.
 *
 * But to take a sample makes the wait longer: it delays the switch, and leaves the CPU's caches cold for the thread that ends the
 * wait. Waits without a sample have no such part. The time of the delay is sent along, and the time that waits without
 * a sample took together by the accounts: the receiver charges that, in the proportions that the samples show.
 *
 * Between two samples of a thread, only the average needs the lengths of its waits. So a thread that switches often reads
 * the clock, and has its scope checked, only once per jiffy: other switches are skipped as soon as they are not drawn.
 */
#ifndef SIDEWINDER_OFF_CPU_BPF_H
#define SIDEWINDER_OFF_CPU_BPF_H

#include "arch.bpf.h"
#include "entry.bpf.h"
#include "fields.bpf.h"
#include "lock.bpf.h"
#include "maps.bpf.h"
#include "sample.bpf.h"
#include "sampler.bpf.h"
#include "stack.bpf.h"
#include "task.bpf.h"
#include <bpf/bpf_core_read.h>

static __always_inline __u32 state_of(struct task_struct *task)
{
	if (bpf_core_field_exists(struct task_struct, __state))
		return sw_task(task, __state);
	return BPF_CORE_READ((struct task_struct___state *)task, state);
}

/* The state of the thread and what it waits for, as flags of its sample, from the number of its system call. */
static __always_inline __u32 wait_flags(__u32 state, __s64 number)
{
	__u32 cause = SW_CAUSE_NO_CALL, wait_state = SW_WAIT_STOPPED;

	if (!state)
		wait_state = SW_WAIT_RUNNABLE;
	else if (state & TASK_INTERRUPTIBLE)
		wait_state = SW_WAIT_SLEEPING;
	else if (state & TASK_UNINTERRUPTIBLE)
		wait_state = SW_WAIT_UNINTERRUPTIBLE;
	if (number >= 0)
		cause = number < SW_SYSTEM_CALLS ? wait_causes[number & (SW_SYSTEM_CALLS - 1)] : SW_CAUSE_OTHER_CALL;
	return wait_state << SW_SAMPLE_WAIT_STATE_SHIFT | cause << SW_SAMPLE_WAIT_CAUSE_SHIFT;
}

/* Sends the value of the sample of a wait, which was taken at `start_ns`. */
static __always_inline void send_wait_end(struct sw_cpu *cpu, struct sw_wait *wait, __u64 start_ns, __u64 time_ns,
					  __u64 off_cpu_ns, __u64 runnable_ns)
{
	struct sw_wait_end *end = 0;
	__u64 wakeup_flags = 0;
	void *ring = this_ring();

	if (ring) {
		wakeup_flags = wakeup_of(ring, sizeof(*end));
		end = bpf_ringbuf_reserve(ring, sizeof(*end), 0);
	}
	if (!end) {
		sw_count(cpu->off_cpu_waits_missing_end_lost, 1);
		return;
	}
	*end = (struct sw_wait_end){
		.type = SW_RECORD_WAIT_END,
		.futex_use = wait->futex_use,
		.tid = wait->tid,
		.lock = wait->lock,
		.start_ns = start_ns,
		.time_ns = time_ns,
		.off_cpu_ns = off_cpu_ns,
		.runnable_ns = runnable_ns,
		.walk_ns = wait->walk_ns,
		.undrawn_ns = wait->undrawn_ns,
		.waker_ns = READ_ONCE(wait->waker_ns),
		.waker_tid = READ_ONCE(wait->waker_tid),
	};
	wait->undrawn_ns = 0;
	bpf_ringbuf_submit(end, wakeup_flags);
}

/* The time off the CPUs since `start_ns`, from which on the thread waited as when it last left a CPU. */
static __always_inline __u64 off_cpu_since(struct sw_wait *wait, __u64 start_ns, __u64 time_ns, __u64 on_cpu_ns,
					   __u64 runnable_ns)
{
	__u64 wall_ns = time_ns - start_ns;
	__u64 other_ns = on_cpu_ns - wait->on_cpu_ns + runnable_ns - wait->runnable_ns;

	/* The accounts are by the scheduler's clock, which may be some nanoseconds ahead. */
	return wall_ns > other_ns ? wall_ns - other_ns : 0;
}

/*
 * Takes the waits since `time_ns`, which lasted this long together, into the average. Those of threads that switch often
 * arrive together.
 */
static __always_inline void update_mean(struct sw_wait *wait, __u64 waits, __u64 sampled_ns)
{
	if (waits >= SW_MEAN_WAITS)
		wait->mean_ns = sampled_ns / waits;
	else
		wait->mean_ns = (wait->mean_ns * (SW_MEAN_WAITS - waits) + sampled_ns) / SW_MEAN_WAITS;
}

/* Ends the interval that began when the thread last left a CPU, and those before it that were skipped. */
static __always_inline void end_wait(struct sw_cpu *cpu, struct sw_wait *wait, __u64 time_ns, __u64 on_cpu_ns,
				     __u64 runnable_ns)
{
	__u64 since_ns = READ_ONCE(cpu->waits_since_ns), found_ns = READ_ONCE(wait->found_ns);
	__u64 off_cpu_ns = off_cpu_since(wait, wait->time_ns, time_ns, on_cpu_ns, runnable_ns);
	__u64 waited_ns = runnable_ns - wait->runnable_ns, sampled_ns = off_cpu_ns + (samples_runnable ? waited_ns : 0);
	__u64 skipped_ns = wait->skipped_ns, waits = wait->skipped_waits + wait->is_sampled;
	bool is_found = found_ns >= wait->time_ns && found_ns >= since_ns;

	wait->skipped_ns = wait->skipped_waits = 0;
	if (!waits)
		return;
	sampled_ns = sampled_ns > skipped_ns ? sampled_ns - skipped_ns : 0;
	if (is_found) {
		/* If the thread was found waiting for a CPU, its account includes the time before that. */
		__u64 rest_ns = time_ns - found_ns - (on_cpu_ns - wait->on_cpu_ns);

		send_wait_end(cpu, wait, found_ns, time_ns,
			      off_cpu_since(wait, found_ns, time_ns, on_cpu_ns, runnable_ns),
			      waited_ns < rest_ns ? waited_ns : rest_ns);
	}
	if (wait->time_ns < since_ns) {
		wait->undrawn_ns = 0;
		return;
	}
	if (wait->probability)
		send_wait_end(cpu, wait, wait->time_ns, time_ns, off_cpu_ns, waited_ns);
	else if (!only_locks || wait->lock)
		/* What comes after it was found has a sample. */
		wait->undrawn_ns += is_found ? found_ns - wait->time_ns : sampled_ns;
	update_mean(wait, waits, sampled_ns);
}

static __always_inline __u64 probability_of(const struct sw_wait *wait, __u64 least)
{
	__u64 mean_ns = wait->mean_ns, probability;

	if (mean_ns >= 1ull << SW_CERTAIN_WAIT_SHIFT)
		return SW_CERTAIN;
	probability = mean_ns << (32 - SW_CERTAIN_WAIT_SHIFT);
	return probability > least ? probability : least;
}

/*
 * Draws with a probability. The numbers are the thread's own, by Knuth's generator for MMIX: a multiplication, where the kernel's
 * helper is a call and four shift registers.
 */
static __always_inline bool draw(struct sw_wait *wait, __u64 probability)
{
	wait->random = wait->random * 6364136223846793005ull + 1442695040888963407ull;
	return wait->random >> 32 < probability;
}

/*
 * Adds an entry for the current thread, which has none, if there is room. Not inlined: older verifiers
 * would add its stack to the walk's.
 */
static __noinline int add_thread(struct sw_cpu *cpu, __u32 pid)
{
	struct task_struct *task = current_task();
	__u32 key = sw_task(task, pid);
	struct sw_wait wait = {
		.thread_start_ns = sw_task(task, start_boottime),
		/* A new thread's first waits are sampled, until enough is known of their length. */
		.mean_ns = 1ull << SW_CERTAIN_WAIT_SHIFT,
		.random = bpf_get_prandom_u32(),
		.pid = pid,
		.tid = thread_id(task),
	};

	if (wait.thread_start_ns < loaded_ns)
		sw_count(cpu->off_cpu_waits_missing_unseen, 1);
	return bpf_map_update_elem(&waits, &key, &wait, BPF_ANY);
}

/* Whether an entry is of the current thread, which has these accounts. */
static __always_inline bool is_of_current(const struct sw_wait *wait, struct task_struct *task, __u64 on_cpu_ns,
					 __u64 runnable_ns)
{
	/* A thread that executes another program takes over the id of its process's first thread, but not its accounts. */
	return wait->thread_start_ns == sw_task(task, start_boottime) && wait->on_cpu_ns <= on_cpu_ns &&
	       wait->runnable_ns <= runnable_ns;
}

/* Whether the switch may be skipped: nothing that is to be sent depends on when it was. */
static __always_inline bool may_skip(const struct sw_wait *wait)
{
	return !lock_probability && !wait->probability && READ_ONCE(wait->found_ns) < wait->time_ns &&
	       wait->jiffies == bpf_jiffies64();
}

/* Keeps the accounts at a switch that is skipped. */
static __always_inline void skip_wait(struct sw_wait *wait, bool is_sampled, __u64 on_cpu_ns, __u64 runnable_ns)
{
	wait->skipped_ns += on_cpu_ns - wait->on_cpu_ns;
	if (!samples_runnable)
		wait->skipped_ns += runnable_ns - wait->runnable_ns;
	wait->skipped_waits += wait->is_sampled;
	wait->on_cpu_ns = on_cpu_ns;
	wait->runnable_ns = runnable_ns;
	wait->is_sampled = is_sampled;
}

/*
 * Accounts for the time since the thread last left a CPU, and prepares the sample of the wait that begins, without the
 * innermost `skipped_frames` frames of the kernel. As begin_interrupt.
 */
static __noinline struct sw_slot *begin_wait(void *ctx, struct sw_cpu *cpu, __u64 skipped_frames, bool *walks)
{
	struct task_struct *task = current_task();
	__u64 time_ns, on_cpu_ns, runnable_ns = 0, probability;
	__u32 pid, key, state, task_flags, otherwise;
	bool is_sampled, is_drawn = false;
	struct sw_slot *slot;
	struct sw_wait *wait;

	key = sw_task(task, pid);
	on_cpu_ns = sw_task(task, se.sum_exec_runtime);
	if (sw_has_run_delay())
		runnable_ns = sw_task(task, sched_info.run_delay);
	state = state_of(task);
	is_sampled = state || samples_runnable;

	wait = bpf_map_lookup_elem(&waits, &key);
	if (wait && !is_of_current(wait, task, on_cpu_ns, runnable_ns))
		wait = 0;
	if (wait && !(state & TASK_DEAD) && may_skip(wait)) {
		probability = probability_of(wait, off_cpu_probability);
		is_drawn = is_sampled && draw(wait, probability);
		otherwise = is_sampled ? SW_OUTCOME_NOT_DRAWN : SW_OUTCOME_STILL_RUNNABLE;
		if (!is_drawn) {
			skip_wait(wait, is_sampled, on_cpu_ns, runnable_ns);
			goto none;
		}
	}
	pid = sampled_process(cpu, task, &task_flags, &time_ns, &otherwise);
	if (!pid)
		goto none;
	if (wait)
		end_wait(cpu, wait, time_ns, on_cpu_ns, runnable_ns);
	otherwise = SW_OUTCOME_EXITING;
	if (state & TASK_DEAD) {
		bpf_map_delete_elem(&waits, &key);
		goto none;
	}
	otherwise = SW_OUTCOME_TOO_MANY_THREADS;
	if (!wait && !add_thread(cpu, pid))
		wait = bpf_map_lookup_elem(&waits, &key);
	if (!wait)
		goto none;
	wait->time_ns = time_ns;
	wait->jiffies = bpf_jiffies64();
	wait->on_cpu_ns = on_cpu_ns;
	wait->runnable_ns = runnable_ns;
	wait->is_sampled = is_sampled;
	wait->probability = 0;
	wait->walk_ns = 0;
	WRITE_ONCE(wait->waker_ns, 0);
	otherwise = SW_OUTCOME_STILL_RUNNABLE;
	if (!is_sampled)
		goto none;
	if (!is_drawn) {
		probability = note_lock(wait, state) ? lock_probability : off_cpu_probability;
		otherwise = SW_OUTCOME_NO_LOCK;
		if (only_locks && !wait->lock)
			goto none;
		probability = probability_of(wait, probability);
		otherwise = SW_OUTCOME_NOT_DRAWN;
		if (!draw(wait, probability))
			goto none;
	}
	slot = begin_sample(SW_SAMPLE_OFF_CPU, pid, true, time_ns);
	otherwise = SW_OUTCOME_BUSY;
	if (!slot)
		goto none;
	wait->probability = probability;
	slot->value = probability;
	slot->wait_flags = wait_flags(state, system_call_number());
	*walks = enter_from_kernel(ctx, slot, task, task_flags, skipped_frames);
	return slot;
none:
	count_unsampled(cpu, SW_SAMPLE_OFF_CPU, otherwise);
	return 0;
}

/* Ends the sample of a wait. If it was lost, the end of the wait isn't sent either. */
static __always_inline void end_wait_sample(struct sw_slot *slot, struct sw_cpu *cpu)
{
	__u32 key = sw_task(current_task(), pid);
	__u32 outcome = end_interrupt(slot, cpu);
	struct sw_wait *wait = bpf_map_lookup_elem(&waits, &key);

	if (!wait)
		return;
	if (outcome == SW_OUTCOME_RING_FULL)
		wait->probability = 0;
	wait->walk_ns = bpf_ktime_get_ns() - wait->time_ns;
}

/* The event is open only for what is sampled. */
SW_SAMPLER("perf_event", off_cpu, void, SW_SAMPLE_OFF_CPU, begin_wait(ctx, cpu, 0, &walks), end_wait_sample(slot, cpu),
	   off_cpu_walks, 0)

/* Likewise at the tracepoint, which the idle task comes by, too. The tracepoint has other frames than the switch. */
static __always_inline struct sw_slot *begin_wait_at_switch(void *ctx, struct sw_cpu *cpu, bool *walks)
{
	if (READ_ONCE(cpu->switches_paused) || !sw_task(current_task(), pid))
		return 0;
	return begin_wait(ctx, cpu, SW_TRACEPOINT_FRAMES + 2, walks);
}

SW_SAMPLER("raw_tp/sched_switch", switch, void, SW_SAMPLE_OFF_CPU, begin_wait_at_switch(ctx, cpu, &walks),
	   end_wait_sample(slot, cpu), switch_walks, 0)

#endif
