/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/* Cookies: hashes of what tells an object of a runtime from a later one at the same address. */
#ifndef SIDEWINDER_COOKIE_BPF_H
#define SIDEWINDER_COOKIE_BPF_H

#include "intf.h"
#include <stdbool.h>
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

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

#endif
