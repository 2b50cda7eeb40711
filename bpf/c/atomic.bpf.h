/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/*
 * Accesses to memory that the receiver, other CPUs, or programs that interrupt this one use concurrently, with what each
 * guarantees. All such accesses go through these macros. Names and meanings follow the kernel's memory model
 * (tools/memory-model, and Documentation/memory-barriers.txt); the receiver's side of each pair is a Rust atomic.
 *
 * They need only what Linux 5.10 has for programs: loads, stores, and an addition without a result. Where an architecture
 * needs more, they use an addition with a result (BPF_FETCH, Linux 5.12), which JIT compilers make fully ordered.
 */
#ifndef SIDEWINDER_ATOMIC_BPF_H
#define SIDEWINDER_ATOMIC_BPF_H

#include "arch.h"
#include <linux/types.h>
#include <bpf/bpf_helpers.h>

/*
 * One load of a naturally aligned word: the compiler never tears, repeats or omits it, or reuses an older value. It orders
 * nothing except reads through an address computed from its value (an address dependency).
 */
#define READ_ONCE(word) (*(const volatile typeof(word) *)&(word))

/* One store of a naturally aligned word, likewise; not omitted even if a later store follows. It orders nothing. */
#define WRITE_ONCE(word, value)                                                                               \
	do {                                                                                                  \
		*(volatile typeof(word) *)&(word) = (value);                                                  \
	} while (0)

/*
 * Adds to a word of 4 or 8 bytes in one instruction (BPF_ATOMIC | BPF_ADD, formerly BPF_XADD), without returning the old
 * value. Concurrent additions to the word aren't lost. It orders nothing between CPUs; for programs on this CPU, memory
 * accesses stay on their side of it. Linux before 5.12 refuses the form that returns the old value (BPF_FETCH), which clang
 * 20 and later generate for __sync_fetch_and_add even if the result is unused.
 */
#define sw_atomic_add(word, n)                                                                                \
	do {                                                                                                  \
		barrier();                                                                                    \
		(void)__atomic_fetch_add((word), (n), __ATOMIC_RELAXED);                                      \
		barrier();                                                                                    \
	} while (0)

/*
 * tso_barrier: every CPU sees all accesses before it ahead of all accesses after it, except that a load after it may pass a
 * store before it. smp_mb__before_atomic and smp_mb__after_atomic order those, too; they must be directly before or after
 * a sw_atomic_add.
 */
#if SW_TOTAL_STORE_ORDER
#define tso_barrier() barrier()
#define smp_mb__before_atomic() barrier()
#define smp_mb__after_atomic() barrier()
#else
/* The result is used; otherwise compilers would generate an addition without a result, which orders nothing. */
#define sw_full_barrier()                                                                                     \
	do {                                                                                                  \
		__u64 word = 0, before = __sync_fetch_and_add(&word, 1);                                      \
                                                                                                              \
		asm volatile("" : : "r"(before) : "memory");                                                  \
	} while (0)
#define tso_barrier() sw_full_barrier()
#define smp_mb__before_atomic() sw_full_barrier()
#define smp_mb__after_atomic() sw_full_barrier()
#endif

/* Loads before it are seen before loads after it. */
#define smp_rmb() tso_barrier()

/* Stores before it are seen before stores after it. */
#define smp_wmb() tso_barrier()

/*
 * Loads a word before all accesses that follow: if it reads the value that an smp_store_release (or a store with
 * Ordering::Release) wrote, everything written before that store is visible.
 */
#define smp_load_acquire(word)                                                                                \
	({                                                                                                    \
		typeof(*(word)) loaded = READ_ONCE(*(word));                                                  \
                                                                                                              \
		tso_barrier();                                                                                \
		loaded;                                                                                       \
	})

/* Stores a word after all preceding accesses. */
#define smp_store_release(word, value)                                                                        \
	do {                                                                                                  \
		tso_barrier();                                                                                \
		WRITE_ONCE(*(word), (value));                                                                 \
	} while (0)

#endif
