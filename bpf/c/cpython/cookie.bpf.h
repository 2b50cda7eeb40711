/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/*
 * Cookies of code objects: a hash of what tells a code object from a later one at the same address. Since 3.12 each has
 * its own number. Before, a function that is made while another one is freed may have all of its objects at the same
 * addresses, so the texts of the name and the path are hashed, too.
 */
#ifndef SIDEWINDER_CPYTHON_COOKIE_BPF_H
#define SIDEWINDER_CPYTHON_COOKIE_BPF_H

#include "../cookie.bpf.h"
#include "../maps.bpf.h"
#include "../vm_memory.bpf.h"

/* In the state of a string. */
#define SW_TEXT_KIND_SHIFT 2
#define SW_TEXT_KIND_MASK 7
#define SW_TEXT_IS_COMPACT (1u << 5)
#define SW_TEXT_IS_ASCII (1u << 6)

_Static_assert(SW_CPYTHON_TEXT_BYTES == SW_OBJECT_TEXT_BYTES, "what is copied of a text is what is hashed");
_Static_assert(!(SW_CPYTHON_TEXT_WORDS & (SW_CPYTHON_TEXT_WORDS - 1)), "an index is masked");

/* A pointer in the identity that was read last. */
static __always_inline __u64 identity_word(const struct sw_vm_scratch *scratch, const struct sw_cpython *cpython,
					   __u32 offset)
{
	return scratch->cpython.identity[((offset - cpython->identity) / sizeof(__u64)) & (SW_CPYTHON_IDENTITY_WORDS - 1)];
}

/*
 * The hash of a string's length and of the start of its text, like the receiver's `cpython::hash_text`. 0: it can't be read.
 * Not static: the verifier checks its loop once.
 */
__noinline int hash_text(__u32 number, __u64 address)
{
	struct sw_vm_scratch *scratch = vm_scratch(number);
	__u32 read, state, start, kind, bytes, first, words;
	__u64 length, last, hash;

	if (!scratch)
		return 0;
	read = read_object(scratch->cpython.text, sizeof(scratch->cpython.text), address);
	if (read < SW_CPYTHON_TEXT_COMPACT)
		return 0;
	length = scratch->cpython.text[SW_CPYTHON_TEXT_LENGTH / sizeof(__u64)];
	state = scratch->cpython.text[SW_CPYTHON_TEXT_STATE / sizeof(__u64)];
	kind = state >> SW_TEXT_KIND_SHIFT & SW_TEXT_KIND_MASK; /* bytes of a character */
	start = state & SW_TEXT_IS_ASCII ? SW_CPYTHON_TEXT_ASCII : SW_CPYTHON_TEXT_COMPACT;
	bytes = state & SW_TEXT_IS_COMPACT ? (length < SW_CPYTHON_TEXT_BYTES ? length : SW_CPYTHON_TEXT_BYTES) * kind : 0;
	if (bytes > SW_CPYTHON_TEXT_BYTES - start)
		bytes = SW_CPYTHON_TEXT_BYTES - start;
	if (start + bytes > read)
		return 0;
	first = start / sizeof(__u64);
	words = bytes / sizeof(__u64);
	/* Into values that the verifier doesn't track: it would check the loop for each. */
	barrier_var(first);
	barrier_var(words);
	hash = add_to_cookie(0, length);
	for (__u32 i = 0; i < SW_CPYTHON_TEXT_WORDS; i++) {
		if (i >= words)
			break;
		hash = add_to_cookie(hash, scratch->cpython.text[(first + i) & (SW_CPYTHON_TEXT_WORDS - 1)]);
	}
	if (bytes % sizeof(__u64)) {
		last = scratch->cpython.text[(first + words) & (SW_CPYTHON_TEXT_WORDS - 1)];
		hash = add_to_cookie(hash, first_bytes(last, bytes % sizeof(__u64)));
	}
	return finished_cookie(hash);
}

/* The hash of a path, read or remembered from an earlier function of this sample: most functions of a stack share few. */
static __always_inline __u32 path_hash(struct sw_slot *slot, struct sw_vm_scratch *scratch, __u64 path)
{
	__u32 number = (__u32)(path >> 4) * SW_HASH_MULTIPLIER >> (32 - SW_CPYTHON_PATHS_BITS), now = (__u32)slot->time_ns;
	struct sw_cpython_path *known = &scratch->cpython.paths[number];

	if (known->address != path || known->sample != now)
		*known = (struct sw_cpython_path){ .address = path, .sample = now, .hash = hash_text(slot->number, path) };
	return known->hash;
}

/*
 * Reads a code object's identity, and returns its cookie, like the receiver's `Layout::cookie`. 0: it can't be read. Not static:
 * the verifier checks its loop once.
 */
__noinline int read_cookie(__u32 number, __u64 code)
{
	struct sw_slot *slot = bpf_map_lookup_elem(&slots, &number);
	const struct sw_runtime *runtime = slot ? process_runtime(slot, SW_FRAME_CPYTHON) : 0;
	struct sw_vm_scratch *scratch = vm_scratch(number);
	__u32 bytes, words, name, path;
	__u64 hash = 0;

	if (!runtime || !scratch)
		return 0;
	bytes = runtime->cpython.identity_bytes;
	words = bytes / sizeof(__u64);
	barrier_var(bytes);
	if (bytes > sizeof(scratch->cpython.identity) ||
	    bpf_probe_read_user(scratch->cpython.identity, bytes, (void *)(code + runtime->cpython.identity)))
		return 0;
	for (__u32 i = 0; i < SW_CPYTHON_IDENTITY_BYTES / sizeof(__u64); i++) {
		if (i >= words)
			break;
		hash = add_to_cookie(hash, scratch->cpython.identity[i]);
	}
	if (runtime->cpython.identity_has_texts) {
		name = hash_text(number, identity_word(scratch, &runtime->cpython, runtime->cpython.name));
		path = path_hash(slot, scratch, identity_word(scratch, &runtime->cpython, runtime->cpython.path));
		if (!name || !path)
			return 0;
		hash = add_to_cookie(hash, (__u64)path << 32 | name);
	}
	return finished_cookie(hash);
}

#endif
