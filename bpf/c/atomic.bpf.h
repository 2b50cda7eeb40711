/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/* The one atomic operation that every supported kernel has for programs: adding to a word. */
#ifndef SIDEWINDER_ATOMIC_BPF_H
#define SIDEWINDER_ATOMIC_BPF_H

#include <linux/types.h>
#include <bpf/bpf_helpers.h>

/*
 * Adds to a word of 4 or 8 bytes in one locked instruction (BPF_ATOMIC | BPF_ADD, the older BPF_XADD), without telling what
 * it was before. Linux before 5.12 refuses the form that does tell (BPF_FETCH), which clang 20 and later make of
 * __sync_fetch_and_add even where nobody looks at the result. A relaxed addition orders nothing for the compiler, so
 * the barriers do: memory accesses stay on their side of it. What other CPUs see is up to the architecture: on x86-64
 * a locked instruction orders all accesses around it.
 */
#define sw_atomic_add(word, n)                                                                                \
	do {                                                                                                  \
		barrier();                                                                                    \
		(void)__atomic_fetch_add((word), (n), __ATOMIC_RELAXED);                                      \
		barrier();                                                                                    \
	} while (0)

#endif
