/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/*
 * Waits for locks: what a thread that waits in a futex waits for, as far as the call says it.
 *
 * The kernel doesn't know what a futex is for. But locks hold one of few values while threads wait for them, and a thread
 * passes the value that it has seen:
 *
 *   2                       held, with waiters: the mutexes of glibc, Rust's std and Go's runtime ("Futexes Are Tricky", mutex2)
 *   FUTEX_WAITERS | owner   robust mutexes, musl's mutexes, and whatever the kernel itself hands over
 *   bit 30 or 31            reader-writer locks of Rust's std, which count their readers in the other bits
 *   1, for a parked thread  parking_lot: the futex is the thread's, and in front of it is the address of its lock
 *
 * Conditions and semaphores may hold the same values by chance, and some locks are made of these. So the receiver decides by
 * the names of the callers, and by this only if they have none.
 */
#ifndef SIDEWINDER_LOCK_BPF_H
#define SIDEWINDER_LOCK_BPF_H

#include "arch.bpf.h"
#include "maps.bpf.h"

/* include/uapi/linux/futex.h, without the flags for private futexes and for the clock of a timeout. */
#define FUTEX_OPERATION(operation) ((operation) & ~(128 | 256))
#define FUTEX_WAIT 0
#define FUTEX_LOCK_PI 6
#define FUTEX_WAIT_BITSET 9
#define FUTEX_WAIT_REQUEUE_PI 11
#define FUTEX_LOCK_PI2 13

#define SW_FUTEX_HELD_WITH_WAITERS 2
#define SW_FUTEX_PARKED_ONCE 1
#define SW_FUTEX_FLAGS 0xc0000000u
#define SW_FUTEX_PARKED_THREAD 0xffffffffu /* of Rust's std::thread::park */
/* In parking_lot_core's ThreadData, as rustc lays it out: the lock's address, three words, the futex. */
#define SW_PARKED_LOCK_BYTES 32
#define SW_PARKED_BITS 3 /* of the lock's first byte: threads are parked for it */

/* Whether an operation waits: the others wake threads. */
static __always_inline bool is_futex_wait(__u32 operation)
{
	return operation == FUTEX_WAIT || operation == FUTEX_WAIT_BITSET || operation == FUTEX_LOCK_PI ||
	       operation == FUTEX_LOCK_PI2 || operation == FUTEX_WAIT_REQUEUE_PI;
}

/* The address of the lock for which parking_lot has parked the current thread; 0 if it hasn't. */
static __always_inline __u64 parked_lock(__u64 futex)
{
	__u64 lock = 0;
	__u8 state = 0;

	if (bpf_probe_read_user(&lock, sizeof(lock), (void *)(futex - SW_PARKED_LOCK_BYTES)) || !lock)
		return 0;
	if (bpf_probe_read_user(&state, sizeof(state), (void *)lock) || !(state & SW_PARKED_BITS))
		return 0;
	return lock;
}

/* Sets what the arguments of a futex call say of a lock, but for parked threads. Returns whether it waits. */
static __always_inline bool note_futex(struct sw_wait *wait, __u64 futex, __u32 operation, __u32 value)
{
	if (!is_futex_wait(operation))
		return false;
	wait->lock = futex;
	wait->futex_use = SW_FUTEX_OTHER;
	if (operation == FUTEX_LOCK_PI || operation == FUTEX_LOCK_PI2)
		wait->futex_use = SW_FUTEX_LOCK;
	if (operation != FUTEX_WAIT && operation != FUTEX_WAIT_BITSET)
		return true;
	if (value == SW_FUTEX_HELD_WITH_WAITERS || ((value & SW_FUTEX_FLAGS) && value != SW_FUTEX_PARKED_THREAD))
		wait->futex_use = SW_FUTEX_LOCK;
	return true;
}

/* Sets what the wait that begins says of a lock. Returns whether the thread, in this state, waits in a futex. */
static __always_inline bool note_lock(struct sw_wait *wait, __u32 state)
{
	__u32 operation, value;
	__u64 futex, lock;

	wait->lock = 0;
	wait->futex_use = SW_FUTEX_NONE;
	if (!state || !lock_probability || !futex_arguments(&futex, &operation, &value))
		return false;
	operation = FUTEX_OPERATION(operation);
	if (!note_futex(wait, futex, operation, value))
		return false;
	if (operation != FUTEX_WAIT || value != SW_FUTEX_PARKED_ONCE)
		return true;
	lock = parked_lock(futex);
	if (lock) {
		wait->lock = lock;
		wait->futex_use = SW_FUTEX_PARKED;
	}
	return true;
}

/* Likewise of a wait in progress, whose process's memory is not read: a thread that parking_lot has parked has no lock. */
static __always_inline void note_lock_of(struct sw_wait *wait, struct task_struct *task, __u32 state)
{
	__u32 operation, value;
	__u64 futex;

	if (state && lock_probability && futex_arguments_of(task, &futex, &operation, &value))
		note_futex(wait, futex, FUTEX_OPERATION(operation), value);
}

#endif
