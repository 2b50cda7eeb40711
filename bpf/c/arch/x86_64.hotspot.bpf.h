/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/* x86-64: frames of HotSpot's interpreter, and what its compilers generate at the start and the end of methods. */
#ifndef SIDEWINDER_ARCH_X86_64_HOTSPOT_BPF_H
#define SIDEWINDER_ARCH_X86_64_HOTSPOT_BPF_H

#include "../maps.bpf.h"

/*
 * Words of an interpreted method's frame, as offsets from its frame pointer (frame_x86.hpp, 8 to 26): the caller's frame
 * pointer is at 0. Where the bytecode is depends on the version.
 */
#define SW_INTERPRETED_RETURN_ADDRESS 8
#define SW_INTERPRETED_SENDER_SP (-8)
#define SW_INTERPRETED_METHOD (-24)
#define SW_INTERPRETED_CONSTANTS_AFTER_BYTECODE 16 /* the method's ConstantPoolCache */
#define SW_INTERPRETED_FRAMES_OVERLAP 0 /* a frame is below its caller's stack pointer */

#define SW_WORDS_AT_ENTRY 1 /* of a frame at the entry of a method: the return address */
#define SW_STUB_PUSH_BYTES 1 /* the first instruction of stubs, which saves the frame pointer */

/* The byte at an offset from the interrupted pc. */
static __always_inline __u8 code_byte(const struct sw_vm_scratch *scratch, int offset)
{
	return scratch->hotspot.code[SW_HOTSPOT_CODE_BEFORE + offset];
}

/*
 * Whether `sub rsp, imm8` or `sub rsp, imm32` (48 83 EC ib, 48 81 EC id) is among the `bytes` bytes of code before the pc. Not
 * static: the verifier checks it once.
 */
__noinline int has_made_frame(__u32 number, __u32 bytes)
{
	struct sw_vm_scratch *scratch = vm_scratch(number);

	barrier_var(bytes);
	if (!scratch)
		return 0;
	for (__u32 at = 0; at + 4 <= SW_HOTSPOT_CODE_BEFORE; at++) {
		const __u8 *code = scratch->hotspot.code + at;

		if (at + bytes < SW_HOTSPOT_CODE_BEFORE || code[0] != 0x48 || code[2] != 0xec)
			continue;
		if (code[1] == 0x83 || (code[1] == 0x81 && at + 7 <= SW_HOTSPOT_CODE_BEFORE))
			return 1;
	}
	return 0;
}

/*
 * The words from the stack pointer to the end of the frame in a method that has not made its frame yet: its return address,
 * and the frame pointer after `push rbp` (55), and `mov rbp, rsp` (48 8B EC or 48 89 E5). 0: it has made it.
 */
static __always_inline __u32 words_in_prologue(__u32 number, const struct sw_vm_scratch *scratch, __u64 bytes)
{
	if (has_made_frame(number, bytes < SW_HOTSPOT_CODE_BEFORE ? bytes : SW_HOTSPOT_CODE_BEFORE))
		return 0;
	if (bytes >= 1 && code_byte(scratch, -1) == 0x55)
		return 2;
	if (bytes >= 4 && code_byte(scratch, -4) == 0x55 && code_byte(scratch, -3) == 0x48 &&
	    ((code_byte(scratch, -2) == 0x8b && code_byte(scratch, -1) == 0xec) ||
	     (code_byte(scratch, -2) == 0x89 && code_byte(scratch, -1) == 0xe5)))
		return 2;
	return 1;
}

/*
 * How many more words a frame has during a call; negative: it is not known how many. Where `pop reg` (58 to 5F, with REX.B 41
 * before it) follows the call, but not `pop rbp` (5D), which ends methods, these are the arguments of a stub. `code`: the
 * SW_CALL_BYTES bytes in front of the return address, and those behind it.
 */
static __always_inline __s32 words_during_call(const __u64 *code)
{
	__u8 first = code[1], second = code[1] >> 8;
	bool is_pop = first == 0x41 ? (second & 0xf8) == 0x58 : (first & 0xf8) == 0x58 && first != 0x5d;

	return is_pop ? -1 : 0;
}

/*
 * Since 19, a method has `nop [rax + rax + imm32]` (0F 1F 84 00 id) behind most calls: the low 24 bits are the distance of the return
 * address from the blob (nativeInst_x86.hpp, NativePostCallNop). 0: it isn't there. `code`: as in words_during_call.
 */
static __always_inline __u32 stated_blob_distance(const __u64 *code)
{
	return (__u32)code[1] == 0x00841f0f ? (code[1] >> 32) & 0xffffff : 0;
}

/* Whether the instruction with these two bytes has an operand `[r15 + disp]` at an offset from the pc: disp is ib or id. */
static __always_inline bool is_of_thread(const struct sw_vm_scratch *scratch, int offset, __u8 rex, __u8 opcode, __u8 modrm)
{
	return code_byte(scratch, offset) == rex && code_byte(scratch, offset + 1) == opcode &&
	       code_byte(scratch, offset + 2) == modrm;
}

/* Since 16, `cmp rsp, [r15 + disp]` (49 3B 67 ib, 49 3B A7 id) begins the poll before a return. */
static __always_inline bool is_comparing_poll(const struct sw_vm_scratch *scratch, int ib, int id)
{
	return is_of_thread(scratch, ib, 0x49, 0x3b, 0x67) || is_of_thread(scratch, id, 0x49, 0x3b, 0xa7);
}

/* Before, `mov r10, [r15 + disp]` (4D 8B 57 ib, 4D 8B 97 id) does, since 10. */
static __always_inline bool is_loading_poll(const struct sw_vm_scratch *scratch, int ib, int id)
{
	return is_of_thread(scratch, ib, 0x4d, 0x8b, 0x57) || is_of_thread(scratch, id, 0x4d, 0x8b, 0x97);
}

/* The most bytes from the `leave` of a native method to the jump that follows its `ret`. */
#define SW_NATIVE_RETURN_BYTES 52

/*
 * Whether a native method has removed its frame: after `leave` (C9) it looks for a request of JFR's sampler (since 25:
 * `test byte [r15 + disp], 1`, 41 F6 47 or 41 F6 87) and for an exception (`cmp qword [r15 + disp], 0`, 49 and 81 or 83, 7F or BF),
 * before `ret` (C3) and the jump to the handler of exceptions (E9). Not static: the verifier checks it once.
 */
__noinline int has_left_native(__u32 number)
{
	struct sw_vm_scratch *scratch = vm_scratch(number);

	if (!scratch)
		return 0;
	/* A place that a compiler counts down has no bounds for older verifiers. */
	for (__u32 back = 1; back <= SW_NATIVE_RETURN_BYTES; back++) {
		__u32 at = SW_HOTSPOT_CODE_BEFORE - back, code;

		barrier_var(at);
		if (at >= SW_HOTSPOT_CODE_BEFORE)
			break;
		/* Four bytes at once: compared one by one, they are many branches to the verifier. */
		code = *(const __u32 *)(scratch->hotspot.code + at);
		if ((__u16)code == 0xe9c3 && back > 1)
			return 0;
		if (code == 0x47f641c9 || code == 0x87f641c9)
			return 1;
		code &= ~0x20000u; /* 81 or 83 */
		if (code == 0x7f8149c9 || code == 0xbf8149c9)
			return 1;
	}
	return 0;
}

/*
 * The words from the stack pointer to the end of the frame in a method that is about to return, and has removed its frame up
 * to these. 0: it isn't. After `add rsp, imm` follow `pop rbp` (5D), a poll, and `ret` (C3). The second instruction of the poll is
 * `ja` (0F 87) since 16, and `test [r10], eax` (41 85 02) before; up to 9 it has only one, `test [rip + disp], eax` (85 05).
 */
static __always_inline __u32 words_in_epilogue(__u32 number, const struct sw_vm_scratch *scratch)
{
	__u8 first = code_byte(scratch, 0), second = code_byte(scratch, 1);

	if (first == 0x5d)
		return 2;
	if (first == 0xc3)
		return 1;
	if (code_byte(scratch, -1) == 0x5d &&
	    (is_comparing_poll(scratch, 0, 0) || is_loading_poll(scratch, 0, 0) || (first == 0x85 && second == 0x05)))
		return 1;
	if (first == 0x0f && second == 0x87 && is_comparing_poll(scratch, -4, -7))
		return 1;
	/* Loops have this poll, too. */
	if (first == 0x41 && second == 0x85 && is_loading_poll(scratch, -4, -7) &&
	    (code_byte(scratch, -5) == 0x5d || code_byte(scratch, -8) == 0x5d))
		return 1;
	return has_left_native(number);
}

#endif
