/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/*
 * Calls, seen from where they return to: a word of a stack is a return address only if a call lies before it. The same test
 * as in the receiver's `unwind::call`.
 */
#ifndef SIDEWINDER_CALL_BPF_H
#define SIDEWINDER_CALL_BPF_H

#include "arch.bpf.h"

/*
 * Whether a call lies before an address, of the function that executes an instruction or, where the instruction is 0, of any.
 * Not static: the verifier looks at it once, and not from each place that steps to a caller.
 */
__noinline int is_after_call_of(__u64 address, __u64 instruction)
{
	__u64 target;

	if (!is_after_call(address, &target))
		return 0;
	return !instruction || !target || instruction - target < SW_FUNCTION_BYTES_MAX;
}

/* Whether a call of a function that starts right before an instruction lies before an address that may be anything. */
__noinline int is_after_near_call_of(__u64 address, __u64 instruction)
{
	__u64 target;

	return is_after_call(address, &target) && target && instruction - target < SW_NEAR_BYTES_MAX;
}

#endif
