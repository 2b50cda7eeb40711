/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/* Waits of threads. */
#ifndef SIDEWINDER_INTF_WAITS_H
#define SIDEWINDER_INTF_WAITS_H

#include <linux/types.h>

/*
 * A wait whose thread is off the CPUs for this long on average is always sampled, whatever the threshold: probabilities are
 * proportional to that average. So threads that sleep long and seldom are measured without an error of sampling.
 */
#define SW_CERTAIN_WAIT_SHIFT 24 /* 16.8 ms */
#define SW_MEAN_WAITS 8 /* a wait changes the average by an eighth of the difference */

/* What the call by which a thread waits in a futex says of its use (lock.bpf.h). */
enum sw_futex_use {
	SW_FUTEX_NONE = 0, /* it is in no such call */
	SW_FUTEX_OTHER, /* not known: a condition, a parked thread, a semaphore, or a lock that looks like one of these */
	SW_FUTEX_LOCK, /* the futex is a lock, which is held */
	SW_FUTEX_PARKED, /* the futex belongs to the thread, which is parked for a lock at another address */
};

/*
 * The scheduler's accounts of a thread when it last left a CPU, where switches without a sample may be skipped (off_cpu.bpf.h). Only
 * the CPU on which the thread runs writes it, with the exceptions of `found_ns`, and of the waker, which the thread that ends
 * the wait writes before the thread runs again.
 */
struct sw_wait {
	__u64 thread_start_ns; /* by CLOCK_BOOTTIME: a later thread with the same id has another */
	__u64 time_ns; /* of the last switch that was not skipped */
	__u64 jiffies; /* at that time */
	__u64 skipped_ns; /* since that time: how long it was on a CPU, or runnable, up to the last switch that was skipped */
	__u64 skipped_waits; /* that ended since that time, up to the last switch that was skipped, and could have had a sample */
	__u64 on_cpu_ns; /* at the last switch; since the thread's start */
	__u64 runnable_ns; /* at the last switch; waiting for a CPU, since the thread's start */
	__u64 mean_ns; /* the average time of its waits that is sampled */
	__u64 undrawn_ns; /* how long its waits were that were not drawn, since the last end that was sent; like `mean_ns` */
	__u64 random; /* the state of the generator that draws its waits */
	__u64 probability; /* of the sample of its current wait; 0: there is none */
	__u64 found_ns; /* when list_waits found it without a sample; of an earlier wait if it is before `time_ns` */
	__u32 pid; /* in the receiver's PID namespace, like `tid` */
	__u32 tid;
	__u32 is_sampled; /* whether samples are drawn of such a wait: not of a thread that is still runnable, unless that is sampled */
	__u32 walk_ns; /* what it took to take the sample of its current wait */
	__u64 lock; /* the address of the lock, or of the futex if that isn't known; 0: it waits in no futex */
	__u32 futex_use; /* sw_futex_use: of its current wait */
	__u32 waker_tid; /* the thread that ended its current wait, and whose sample has the time `waker_ns` */
	__u64 waker_ns; /* 0: there is no such sample */
};

#endif
