/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/*
 * Cookies of code objects: a hash of what tells a code object from a later one at the same address. Since 3.12 each has a
 * number of its own. Before, a function that is made while another one is freed may have all of its objects at the same
 * addresses, so the texts of the name and the path are hashed, too.
 */
#ifndef SIDEWINDER_COOKIE_BPF_H
#define SIDEWINDER_COOKIE_BPF_H

#include "maps.bpf.h"
#include "table.bpf.h"

#define SW_VM_TEXT_BYTES (SW_VM_TEXT_WORDS * sizeof(__u64))

/* In the state of a string. */
#define SW_TEXT_KIND_SHIFT 2
#define SW_TEXT_KIND_MASK 7
#define SW_TEXT_IS_COMPACT (1u << 5)
#define SW_TEXT_IS_ASCII (1u << 6)

_Static_assert(SW_VM_TEXT_BYTES == SW_OBJECT_TEXT_BYTES, "what is copied of a text is what is hashed");
_Static_assert(!(SW_VM_TEXT_WORDS & (SW_VM_TEXT_WORDS - 1)), "an index is masked");

/* Reads up to `most` bytes of an object, as far as its page goes if the next one can't be read. Returns how many. */
static __always_inline __u32 read_object(void *to, const __u32 most, __u64 address)
{
	__u32 bytes = SW_PAGE_BYTES - (address & (SW_PAGE_BYTES - 1));

	if (!bpf_probe_read_user(to, most, (void *)address))
		return most;
	/* Checked last, for verifiers that lose the bounds of values that compilers spill to the stack. */
	barrier_var(bytes);
	if (bytes >= most || bpf_probe_read_user(to, bytes, (void *)address))
		return 0;
	return bytes;
}

static __always_inline __u64 add_to_cookie(__u64 hash, __u64 word)
{
	hash = (hash ^ word) * SW_COOKIE_MULTIPLIER;
	return hash ^ hash >> 32;
}

/* 0 is not a hash. */
static __always_inline __u32 finished_cookie(__u64 hash)
{
	return (__u32)hash ? (__u32)hash : 1;
}

/* The first `bytes` bytes of a word, with zeros behind them. */
static __always_inline __u64 first_bytes(__u64 word, __u32 bytes)
{
	return bytes >= sizeof(word) ? word : word & ((1ull << bytes * 8) - 1);
}

/* A pointer in the identity that was read last. */
static __always_inline __u64 identity_word(const struct sw_vm_scratch *scratch, const struct sw_cpython *cpython,
					   __u32 offset)
{
	return scratch->identity[((offset - cpython->identity) / sizeof(__u64)) & (SW_VM_IDENTITY_WORDS - 1)];
}

/*
 * The hash of a string's length and of the start of its text, as the receiver's `cpython::hash_text`. 0: it can't be read.
 * Not static: the verifier checks its loop once.
 */
__noinline int hash_text(__u32 number, __u64 address)
{
	struct sw_vm_scratch *scratch = vm_scratch(number);
	__u32 read, state, start, kind, bytes, first, words;
	__u64 length, last, hash;

	if (!scratch)
		return 0;
	read = read_object(scratch->text, sizeof(scratch->text), address);
	if (read < SW_CPYTHON_TEXT_COMPACT)
		return 0;
	length = scratch->text[SW_CPYTHON_TEXT_LENGTH / sizeof(__u64)];
	state = scratch->text[SW_CPYTHON_TEXT_STATE / sizeof(__u64)];
	kind = state >> SW_TEXT_KIND_SHIFT & SW_TEXT_KIND_MASK; /* bytes of a character */
	start = state & SW_TEXT_IS_ASCII ? SW_CPYTHON_TEXT_ASCII : SW_CPYTHON_TEXT_COMPACT;
	bytes = state & SW_TEXT_IS_COMPACT ? (length < SW_VM_TEXT_BYTES ? length : SW_VM_TEXT_BYTES) * kind : 0;
	if (bytes > SW_VM_TEXT_BYTES - start)
		bytes = SW_VM_TEXT_BYTES - start;
	if (start + bytes > read)
		return 0;
	first = start / sizeof(__u64);
	words = bytes / sizeof(__u64);
	/* Into values that the verifier doesn't track: it would check the loop for each. */
	barrier_var(first);
	barrier_var(words);
	hash = add_to_cookie(0, length);
	for (__u32 i = 0; i < SW_VM_TEXT_WORDS; i++) {
		if (i >= words)
			break;
		hash = add_to_cookie(hash, scratch->text[(first + i) & (SW_VM_TEXT_WORDS - 1)]);
	}
	if (bytes % sizeof(__u64)) {
		last = scratch->text[(first + words) & (SW_VM_TEXT_WORDS - 1)];
		hash = add_to_cookie(hash, first_bytes(last, bytes % sizeof(__u64)));
	}
	return finished_cookie(hash);
}

/* The hash of a path, read or remembered from an earlier function of this sample: most functions of a stack share few. */
static __always_inline __u32 path_hash(struct sw_slot *slot, struct sw_vm_scratch *scratch, __u64 path)
{
	__u32 number = (__u32)(path >> 4) * SW_HASH_MULTIPLIER >> (32 - SW_VM_PATHS_BITS), now = (__u32)slot->time_ns;
	struct sw_vm_code *known = &scratch->paths[number];

	if (known->address != path || known->sample != now)
		*known = (struct sw_vm_code){ .address = path, .sample = now, .cookie = hash_text(slot->number, path) };
	return known->cookie;
}

/*
 * Reads a code object's identity, and returns its cookie, as the receiver's `Layout::cookie`. 0: it can't be read. Not static:
 * the verifier checks its loop once.
 */
__noinline int read_cookie(__u32 number, __u64 code)
{
	struct sw_slot *slot = bpf_map_lookup_elem(&slots, &number);
	const struct sw_runtime *runtime = slot ? process_runtime(slot) : 0;
	struct sw_vm_scratch *scratch = vm_scratch(number);
	__u32 bytes, words, name, path;
	__u64 hash = 0;

	if (!runtime || !scratch)
		return 0;
	bytes = runtime->cpython.identity_bytes;
	words = bytes / sizeof(__u64);
	barrier_var(bytes);
	if (bytes > sizeof(scratch->identity) ||
	    bpf_probe_read_user(scratch->identity, bytes, (void *)(code + runtime->cpython.identity)))
		return 0;
	for (__u32 i = 0; i < SW_CPYTHON_IDENTITY_BYTES / sizeof(__u64); i++) {
		if (i >= words)
			break;
		hash = add_to_cookie(hash, scratch->identity[i]);
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
