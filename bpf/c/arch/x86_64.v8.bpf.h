/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/* x86-64: what V8's compilers generate at the start and the end of functions. */
#ifndef SIDEWINDER_ARCH_X86_64_V8_BPF_H
#define SIDEWINDER_ARCH_X86_64_V8_BPF_H

#include "../maps.bpf.h"

/*
 * Words of a function's frame, as offsets from its frame pointer (frame-constants.h, V8 10 to 14). Objects' addresses have
 * their lowest bit set; frames of other code have a number in the place of the context.
 */
#define SW_V8_CONTEXT (-8)
#define SW_V8_FUNCTION (-16)
#define SW_V8_BYTECODE (-32) /* of an interpreted function */
#define SW_V8_BYTECODE_OFFSET (-40)

/* How much of its frame the interrupted function has. */
enum sw_v8_frame_state {
	SW_V8_FRAME_MADE = 0,
	SW_V8_FRAME_NOT_YET, /* its return address is on top of the stack */
	SW_V8_FRAME_PUSHED, /* the caller's frame pointer is on top, and the return address behind it */
	SW_V8_FRAME_EMPTY, /* it has a frame pointer, but the function isn't in the frame yet */
	SW_V8_FRAME_ENDING, /* the stack pointer is at the frame pointer; what was below it is still there */
	SW_V8_FRAME_LEFT, /* its return address is on top of the stack, and below it is still what was in the frame */
	SW_V8_FRAME_STATE_MASK = 7,
	SW_V8_FRAME_OF_WASM = 8, /* a function of WebAssembly begins */
};

/* The byte at an offset from the interrupted pc. */
static __always_inline __u8 v8_byte(const struct sw_vm_scratch *scratch, int offset)
{
	return scratch->v8.code[SW_V8_CODE_BEFORE + offset];
}

/* The first `count` bytes at an offset from the interrupted pc: compared at once, they are one branch to the verifier. */
static __always_inline __u64 v8_bytes(const struct sw_vm_scratch *scratch, int offset, __u32 count)
{
	__u64 word = *(const __u64 *)(scratch->v8.code + SW_V8_CODE_BEFORE + offset);

	return word & (~0ull >> (64 - 8 * count));
}

/* Whether `mov rbp, rsp` (48 89 E5), `push rsi` (56) and `push rdi` (57) are at an offset. */
static __always_inline bool makes_v8_frame(const struct sw_vm_scratch *scratch, int at)
{
	return v8_bytes(scratch, at, 5) == 0x5756e58948;
}

/* Whether `push rbp` (55) is before that. */
static __always_inline bool starts_v8_function(const struct sw_vm_scratch *scratch, int at)
{
	return v8_bytes(scratch, at, 6) == 0x5756e5894855;
}

/* Whether `mov ebx, imm32` (BB id) and `mov r12, imm64` (49 BC iq) are at an offset: the start of a Sparkplug function. */
static __always_inline bool starts_v8_baseline(const struct sw_vm_scratch *scratch, int at)
{
	return (v8_bytes(scratch, at, 7) & 0xffff00000000ff) == 0xbc4900000000bb;
}

/* Whether `mov rbp, rsp` and `push imm8` (6A ib) of what frames of WebAssembly are marked with are at an offset. */
static __always_inline bool makes_wasm_frame(const struct sw_vm_scratch *scratch, int at, __u8 marker)
{
	return v8_bytes(scratch, at, 5) == (0x6ae58948 | (__u64)marker << 32);
}

/*
 * Whether `mov r12d, imm32` (41 BC id) or `xor r12d, r12d` (45 31 E4) and a call (E8 cd) are at an offset: since V8 12, the start
 * of a function of the baseline compiler of WebAssembly. It calls a builtin that makes its frame.
 */
static __always_inline bool starts_wasm_baseline(const struct sw_vm_scratch *scratch, int at)
{
	return v8_bytes(scratch, at, 4) == 0xe8e43145 ||
	       (v8_bytes(scratch, at, 7) & 0xff00000000ffff) == 0xe800000000bc41;
}

/* An sw_v8_frame_state, where a function of WebAssembly begins; elsewhere SW_V8_FRAME_MADE. */
static __always_inline int wasm_frame_state(const struct sw_vm_scratch *scratch, __u8 marker)
{
	if (v8_byte(scratch, -1) == 0x55 && makes_wasm_frame(scratch, 0, marker))
		return SW_V8_FRAME_PUSHED | SW_V8_FRAME_OF_WASM;
	/* Before and behind the marker's `push`. */
	if (makes_wasm_frame(scratch, -3, marker) || makes_wasm_frame(scratch, -5, marker))
		return SW_V8_FRAME_EMPTY | SW_V8_FRAME_OF_WASM;
	if (v8_byte(scratch, 0) == 0x55 && makes_wasm_frame(scratch, 1, marker))
		return SW_V8_FRAME_NOT_YET | SW_V8_FRAME_OF_WASM;
	if (starts_wasm_baseline(scratch, 0) || starts_wasm_baseline(scratch, -3) || starts_wasm_baseline(scratch, -6))
		return SW_V8_FRAME_NOT_YET | SW_V8_FRAME_OF_WASM;
	return SW_V8_FRAME_MADE;
}

/* Whether `mov rsp, rbp` (48 8B E5) and `pop rbp` (5D) are at an offset. */
static __always_inline bool ends_v8_frame(const struct sw_vm_scratch *scratch, int at)
{
	return v8_bytes(scratch, at, 4) == 0x5de58b48;
}

/*
 * An sw_v8_frame_state, from the code around the interrupted pc. Before `push rbp` (55) a function looks whether it has been
 * deoptimized, in up to 15 bytes. After `pop rbp` (5D), it compares the number of arguments in up to 7 bytes, and jumps, in up
 * to 6, over `ret imm16` (C2 iw); a function of WebAssembly returns at once (C3). `wasm_marker`: what frames of WebAssembly are
 * marked with; 0: unknown. Not static: the verifier checks it once.
 */
__noinline int v8_frame_state(__u32 number, __u32 wasm_marker)
{
	struct sw_vm_scratch *scratch = vm_scratch(number);
	__u8 next, second;
	bool is_in_return;
	int state;

	if (!scratch)
		return SW_V8_FRAME_MADE;
	next = v8_byte(scratch, 0);
	second = v8_byte(scratch, 1);
	state = wasm_marker ? wasm_frame_state(scratch, wasm_marker) : SW_V8_FRAME_MADE;
	if (state != SW_V8_FRAME_MADE)
		return state;
	if (starts_v8_function(scratch, -1))
		return SW_V8_FRAME_PUSHED;
	if (makes_v8_frame(scratch, -3) || makes_v8_frame(scratch, -4))
		return SW_V8_FRAME_EMPTY;
#pragma unroll
	for (int at = 0; at <= 15; at++)
		if (starts_v8_function(scratch, at))
			return SW_V8_FRAME_NOT_YET;
	if (starts_v8_baseline(scratch, 0) || starts_v8_baseline(scratch, -5) || starts_v8_baseline(scratch, -15))
		return SW_V8_FRAME_NOT_YET;
	if (ends_v8_frame(scratch, -3))
		return SW_V8_FRAME_ENDING;
	is_in_return = ((next == 0x48 || next == 0x49) && (second == 0x83 || second == 0x81)) || next == 0x7f ||
		       (next == 0x0f && second == 0x8f) || next == 0xc2 || next == 0xc3;
#pragma unroll
	for (int at = -4; at >= -SW_V8_CODE_BEFORE; at--)
		if (is_in_return && ends_v8_frame(scratch, at))
			return SW_V8_FRAME_LEFT;
	return SW_V8_FRAME_MADE;
}

#endif
