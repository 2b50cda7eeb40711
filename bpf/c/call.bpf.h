/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/*
 * Calls, seen from where they return to: a word of a stack is a return address only if a call lies before it. The same test
 * as in the receiver's `unwind::call`.
 */
#ifndef SIDEWINDER_CALL_BPF_H
#define SIDEWINDER_CALL_BPF_H

#include "intf.h"
#include <linux/bpf.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>

#define SW_CALL_BYTES 8 /* as many as are read: the longest call without prefixes, FF /2 with SIB and disp32, has 7 */
#define SW_CALL_REL32_BYTES 5 /* E8 rel32 */

/* The byte that lies so far before the return address, 1 to SW_CALL_BYTES, of the SW_CALL_BYTES there. */
static __always_inline __u8 byte_before(__u64 code, __u32 distance)
{
	return code >> (8 * (SW_CALL_BYTES - distance));
}

/* The length of a call by a register or a word of memory, FF /2; 0: it is none. Intel SDM, volume 2, section 2.1.5. */
static __always_inline __u32 indirect_call_bytes(__u8 modrm, __u8 sib)
{
	__u32 mod = modrm >> 6, rm = modrm & 7, with_sib = rm == 4;

	if ((modrm & 0x38) != 0x10)
		return 0;
	if (mod == 3)
		return 2;
	if (mod == 2)
		return 6 + with_sib;
	if (mod == 1)
		return 3 + with_sib;
	if (rm == 5 || (with_sib && (sib & 7) == 5))
		return 6 + with_sib;
	return 2 + with_sib;
}

static __always_inline bool is_indirect_call(__u64 code)
{
	bool found = byte_before(code, 2) == 0xff && indirect_call_bytes(byte_before(code, 1), 0) == 2;

#pragma unroll
	for (__u32 bytes = 3; bytes < SW_CALL_BYTES; bytes++)
		found |= byte_before(code, bytes) == 0xff &&
			 indirect_call_bytes(byte_before(code, bytes - 1), byte_before(code, bytes - 2)) == bytes;
	return found;
}

/*
 * Whether a call lies before an address of the process, and where it leads; *target is 0 where its code doesn't say, or can
 * be read in two ways. Code that can't be read proves nothing: no call.
 */
static __noinline int is_after_call(__u64 address, __u64 *target)
{
	__u64 code;

	*target = 0;
	if (bpf_probe_read_user(&code, sizeof(code), (void *)(address - SW_CALL_BYTES)))
		return 0;
	if (is_indirect_call(code))
		return 1;
	if (byte_before(code, SW_CALL_REL32_BYTES) != 0xe8)
		return 0;
	*target = address + (__s32)(code >> 32);
	return 1;
}

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
