/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/*
 * Checks for return addresses: a word of a stack is a return address only if a call instruction ends there. The receiver's
 * `unwind::call` has the same test.
 */
#ifndef SIDEWINDER_CALL_BPF_H
#define SIDEWINDER_CALL_BPF_H

#include "arch.bpf.h"

/*
 * Whether a call of the function that contains `instruction` ends at an address; any call if `instruction` is 0. Not static:
 * the verifier then checks it once, and not at each use.
 */
__noinline int is_after_call_of(__u64 address, __u64 instruction)
{
	__u64 target;

	if (!is_after_call(address, &target))
		return 0;
	return !instruction || !target || instruction - target < SW_FUNCTION_BYTES_MAX;
}

/* Whether a call of a function that starts shortly before `instruction` ends at an address that may be any word. */
__noinline int is_after_near_call_of(__u64 address, __u64 instruction)
{
	__u64 target;

	return is_after_call(address, &target) && target && instruction - target < SW_NEAR_BYTES_MAX;
}

#endif
