/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/*
 * Memory that the receiver, other CPUs, or programs that interrupt this one use at the same time: the only ways to it, and
 * what each guarantees. Names and meanings are those of the kernel's memory model (tools/memory-model, and
 * Documentation/memory-barriers.txt); the receiver's side of each pair is an atomic of Rust's.
 *
 * All of it is made of what Linux 5.10 has for programs: loads, stores, and an addition without a result. Where an
 * architecture needs more, that is an addition with a result (BPF_FETCH, Linux 5.12), which JIT compilers make fully
 * ordered.
 */
#ifndef SIDEWINDER_ATOMIC_BPF_H
#define SIDEWINDER_ATOMIC_BPF_H

#include "arch.h"
#include <linux/types.h>
#include <bpf/bpf_helpers.h>

/*
 * One load of a naturally aligned word: never torn, repeated, left out, or made up from an older one by the compiler. It orders
 * nothing, but for what is read by way of an address made of its value (an address dependency).
 */
#define READ_ONCE(word) (*(const volatile typeof(word) *)&(word))

/* One store of a naturally aligned word, likewise: also where the compiler knows of a later one. It orders nothing. */
#define WRITE_ONCE(word, value)                                                                               \
	do {                                                                                                  \
		*(volatile typeof(word) *)&(word) = (value);                                                  \
	} while (0)

/*
 * Adds to a word of 4 or 8 bytes in one instruction (BPF_ATOMIC | BPF_ADD, the older BPF_XADD), without telling what
 * it was before. No addition of others to the word is lost. It orders nothing between CPUs; for programs on this one, memory
 * accesses stay on their side of it. Linux before 5.12 refuses the form that does tell (BPF_FETCH), which clang 20 and later
 * make of __sync_fetch_and_add even where nobody looks at the result.
 */
#define sw_atomic_add(word, n)                                                                                \
	do {                                                                                                  \
		barrier();                                                                                    \
		(void)__atomic_fetch_add((word), (n), __ATOMIC_RELAXED);                                      \
		barrier();                                                                                    \
	} while (0)

/*
 * tso_barrier: all accesses before it are seen by every CPU before all that come after it, but for a store before it and a load
 * after it. smp_mb__before_atomic and smp_mb__after_atomic: those, too; they stand right before, or after, a sw_atomic_add.
 */
#if SW_TOTAL_STORE_ORDER
#define tso_barrier() barrier()
#define smp_mb__before_atomic() barrier()
#define smp_mb__after_atomic() barrier()
#else
/* The result is used, or compilers would make an addition of it that orders nothing. */
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
 * Loads a word before all accesses that follow: who finds what an smp_store_release (or a store with Ordering::Release) wrote
 * there sees all that was written before that.
 */
#define smp_load_acquire(word)                                                                                \
	({                                                                                                    \
		typeof(*(word)) loaded = READ_ONCE(*(word));                                                  \
                                                                                                              \
		tso_barrier();                                                                                \
		loaded;                                                                                       \
	})

/* Stores a word after all accesses that came before. */
#define smp_store_release(word, value)                                                                        \
	do {                                                                                                  \
		tso_barrier();                                                                                \
		WRITE_ONCE(*(word), (value));                                                                 \
	} while (0)

#endif
