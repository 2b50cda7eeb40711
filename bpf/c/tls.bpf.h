/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/*
 * Finds the interrupted thread's copy of a thread-local variable: at an offset from the thread pointer, or in a block that
 * the thread's dynamic thread vector or a word of the thread points to.
 */
#ifndef SIDEWINDER_TLS_BPF_H
#define SIDEWINDER_TLS_BPF_H

#include "arch.bpf.h"
#include "maps.bpf.h"

_Static_assert((SW_TLS_MODULE_MAX + 2) * 16 <= SW_STACK_WINDOW_BYTES, "a vector fits the window");

/* The thread doesn't have the block, or the variable in it; that isn't a failure. */
#define SW_NO_ADDRESS 0

/*
 * The address of a module's block, from the thread's vector, for which the window is used; the word at `vector_at` points to
 * it. The word `lead` bytes before the vector's start is its capacity in modules; an entry has `1 << shift` bytes. Blocks are allocated when a thread first uses them: until then the word
 * is 0 or, in glibc, -1.
 */
static __always_inline __u64 block_address(struct sw_slot *slot, __u64 vector_at, __u32 module, __u32 lead, __u32 shift,
					   bool *failed)
{
	__u64 vector, block;
	__u32 bytes;

	*failed = true;
	slot->window_bytes = 0;
	if (bpf_probe_read_user(&vector, sizeof(vector), (void *)vector_at))
		return SW_NO_ADDRESS;
	/* One value, checked where it is used: older verifiers lose the bounds of related and of spilled values. */
	bytes = lead + (module << shift) + sizeof(block);
	barrier_var(bytes);
	if (bytes > SW_STACK_WINDOW_BYTES || bpf_probe_read_user(slot->window, bytes, (void *)(vector - lead)))
		return SW_NO_ADDRESS;
	*failed = false;
	if (module > *(__u64 *)slot->window)
		return SW_NO_ADDRESS;
	block = *(__u64 *)(slot->window + ((bytes - sizeof(block)) & (SW_STACK_WINDOW_BYTES - 1)));
	return block == ~0ull ? SW_NO_ADDRESS : block;
}

/* The address of a thread's copy. Overwrites the window if it is in a block. */
static __always_inline __u64 variable_address(struct sw_slot *slot, const struct sw_tls_variable *variable, bool *failed)
{
	__u64 thread = thread_pointer(), block;

	*failed = false;
	if (!thread)
		return SW_NO_ADDRESS;
	switch (variable->model & ~SW_TLS_LABEL_SET) {
	case SW_TLS_STATIC:
		return thread + variable->offset;
	case SW_TLS_INDIRECT:
		*failed = bpf_probe_read_user(&block, sizeof(block), (void *)(thread + (__s16)variable->module));
		if (*failed)
			return SW_NO_ADDRESS;
		break;
	case SW_TLS_GLIBC:
		block = block_address(slot, thread + SW_TLS_VECTOR_OFFSET, variable->module, 16, 4, failed);
		break;
	case SW_TLS_MUSL:
		block = block_address(slot, thread + SW_TLS_MUSL_VECTOR_OFFSET, variable->module, 0, 3, failed);
		break;
	default:
		return SW_NO_ADDRESS;
	}
	return block ? block + variable->offset : SW_NO_ADDRESS;
}

#endif
