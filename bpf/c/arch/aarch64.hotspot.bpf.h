/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/*
 * arm64: frames of HotSpot's interpreter, and what its compilers and its stubs do with the stack at their start and their end. A
 * method's frame has the pair of the caller's frame pointer and the return address at its end; before and after that, the return
 * address is in the link register.
 */
#ifndef SIDEWINDER_ARCH_AARCH64_HOTSPOT_BPF_H
#define SIDEWINDER_ARCH_AARCH64_HOTSPOT_BPF_H

#include "../call.bpf.h"
#include "../maps.bpf.h"
#include "../stack_window.bpf.h"
#include "../vm_memory.bpf.h"

/*
 * Words of an interpreted method's frame, as offsets from its frame pointer (frame_aarch64.hpp, 8 to 26): the caller's frame
 * pointer is at 0. Where the bytecode is depends on the version.
 */
#define SW_INTERPRETED_RETURN_ADDRESS 8
#define SW_INTERPRETED_SENDER_SP (-8)
#define SW_INTERPRETED_METHOD (-24)
#define SW_INTERPRETED_CONSTANTS_AFTER_BYTECODE 16 /* the method's ConstantPoolCache */
/* A frame may be above its caller's stack pointer: an interpreted caller reserves room for all operands that it may push. */
#define SW_INTERPRETED_FRAMES_OVERLAP 1

/* In a number of words from the stack pointer to the end of a frame: the return address is none of them, but in the link register. */
#define SW_RETURN_IN_LINK (1u << 31)
#define SW_WORDS_AT_ENTRY SW_RETURN_IN_LINK /* of a frame at the entry of a method */
#define SW_STUB_PUSH_BYTES SW_INSTRUCTION_BYTES /* the first instruction of stubs, which saves the frame pointer */

/* Instructions, by their words: Arm Architecture Reference Manual for A-profile, section C6.2. */
#define SW_CODE_PUSH_PAIR 0xa9bf7bfd /* stp x29, x30, [sp, #-16]! */
#define SW_CODE_POP_PAIR 0xa8c17bfd /* ldp x29, x30, [sp], #16 */
#define SW_CODE_SET_FP 0x910003fd /* mov x29, sp */
#define SW_CODE_POP_TWO 0x910043ff /* add sp, sp, #16 */
/* Without the 7 bits of the offset: `stp x29, x30, [sp, #imm]`, and `ldp`. */
#define SW_CODE_PAIR_MASK 0xffc07fff
#define SW_CODE_SAVE_PAIR 0xa9007bfd
#define SW_CODE_LOAD_PAIR 0xa9407bfd
/* Without the 13 bits of the constant: `sub sp, sp, #imm`, and `add`; without the register: `sub sp, sp, reg`, and `add`. */
#define SW_CODE_CONSTANT_MASK 0xff8003ff
#define SW_CODE_SUB_CONSTANT 0xd10003ff
#define SW_CODE_ADD_CONSTANT 0x910003ff
#define SW_CODE_REGISTER_MASK 0xffe0ffff
#define SW_CODE_SUB_REGISTER 0xcb2063ff
#define SW_CODE_ADD_REGISTER 0x8b2063ff

static __always_inline bool is_return(__u32 code)
{
	/* `ret`, and those that authenticate: `retaa` and `retab`. */
	return code == 0xd65f03c0 || (code & 0xfffffbff) == 0xd65f0bff;
}

/* `mov reg, sp` of the two registers in which callers' stack pointers are passed: x13, and since 20 x19. */
static __always_inline bool is_keeping_sp(__u32 code)
{
	return code == 0x910003ed || code == 0x910003f3;
}

/* The instruction at an offset from the interrupted pc. */
static __always_inline __u32 instruction_at(const struct sw_vm_scratch *scratch, int offset)
{
	return *(const __u32 *)(scratch->hotspot.code + SW_HOTSPOT_CODE_BEFORE + offset);
}

/* What the code before the interrupted pc has done to the frame last. */
enum sw_code_before {
	SW_CODE_NONE = 0, /* nothing that is known */
	SW_CODE_RETURNED, /* it belongs to something else, which ends there */
	SW_CODE_RESERVED, /* made room for the frame, but not yet saved the pair at its end */
	SW_CODE_PUSHED, /* pushed the pair, but not yet made room */
	SW_CODE_MADE, /* all of the frame */
	SW_CODE_LOADED, /* loaded the pair, but not yet given back the room */
	SW_CODE_REMOVED, /* the frame */
	SW_CODE_KEPT_SP, /* kept the caller's stack pointer in a register */
};

/*
 * What the code before the pc has done to the frame last, as an sw_code_before: of the `bytes` bytes before it in the scratch
 * memory. Not static: the verifier checks it once.
 */
__noinline int code_before(__u32 number, __u32 bytes)
{
	struct sw_vm_scratch *scratch = vm_scratch(number);
	bool takes_room = false, gives_back = false;

	barrier_var(bytes);
	if (!scratch)
		return SW_CODE_NONE;
	_Pragma("unroll") for (int back = SW_INSTRUCTION_BYTES; back <= SW_HOTSPOT_CODE_BEFORE; back += SW_INSTRUCTION_BYTES)
	{
		__u32 code = instruction_at(scratch, -back);

		if ((__u32)back > bytes)
			break;
		if (code == SW_CODE_PUSH_PAIR)
			return takes_room ? SW_CODE_MADE : SW_CODE_PUSHED;
		if ((code & SW_CODE_PAIR_MASK) == SW_CODE_SAVE_PAIR)
			return SW_CODE_MADE;
		if (code == SW_CODE_POP_PAIR)
			return SW_CODE_REMOVED;
		if ((code & SW_CODE_PAIR_MASK) == SW_CODE_LOAD_PAIR)
			return gives_back ? SW_CODE_REMOVED : SW_CODE_LOADED;
		if (is_keeping_sp(code))
			return SW_CODE_KEPT_SP;
		if (is_return(code))
			return SW_CODE_RETURNED;
		if (code >> 26 == 0x05) /* a jump, `b` */
			return takes_room ? SW_CODE_RESERVED : SW_CODE_NONE;
		takes_room |= (code & SW_CODE_CONSTANT_MASK) == SW_CODE_SUB_CONSTANT ||
			      (code & SW_CODE_REGISTER_MASK) == SW_CODE_SUB_REGISTER;
		gives_back |= (code & SW_CODE_CONSTANT_MASK) == SW_CODE_ADD_CONSTANT ||
			      (code & SW_CODE_REGISTER_MASK) == SW_CODE_ADD_REGISTER;
	}
	return takes_room ? SW_CODE_RESERVED : SW_CODE_NONE;
}

/*
 * The words from the stack pointer to the end of the frame in a method that has not made all of its frame yet. Large frames are made
 * by pushing the pair, others by making room first. 0: it has made it.
 */
static __always_inline __u32 words_in_prologue(__u32 number, const struct sw_vm_scratch *scratch, __u64 bytes)
{
	switch (code_before(number, bytes < SW_HOTSPOT_CODE_BEFORE ? bytes : SW_HOTSPOT_CODE_BEFORE)) {
	case SW_CODE_RESERVED:
		return SW_RETURN_IN_LINK | scratch->hotspot.blob.frame_words;
	case SW_CODE_PUSHED:
		return 2;
	case SW_CODE_MADE:
		return 0;
	default:
		return SW_WORDS_AT_ENTRY;
	}
}

/*
 * The words from the stack pointer to the end of the frame in a method that is about to return, and has removed its frame up
 * to these. 0: it isn't.
 */
static __always_inline __u32 words_in_epilogue(__u32 number, const struct sw_vm_scratch *scratch)
{
	__u32 code = instruction_at(scratch, 0);

	if (code == SW_CODE_POP_PAIR)
		return 2;
	if (is_return(code) || code_before(number, SW_HOTSPOT_CODE_BEFORE) == SW_CODE_REMOVED)
		return SW_WORDS_AT_ENTRY;
	return 0;
}

/* What an interrupted stub without a size has on the stack. */
enum sw_stub_state {
	SW_STUB_HAS_FRAME = 0, /* one at the frame pointer */
	SW_STUB_HAS_SAVED, /* the pair, at the stack pointer */
	SW_STUB_HAS_NONE, /* its return address is in the link register */
	SW_STUB_HAS_KEPT_SP, /* likewise, and the caller's stack pointer may be in a register */
};

#define SW_STUB_CODE_BYTES_MAX 4096
/*
 * The most bytes of a frame that a stub makes, from its frame pointer down. A frame of the interpreter has more, so what it has called
 * is not taken to have that frame itself.
 */
#define SW_STUB_FRAME_BYTES_MAX 512
#define SW_CALLED_BY_INTERPRETER_BYTES_MAX 64

/*
 * The state of an interrupted stub, as an sw_stub_state: by the code before it, if that says so. Otherwise it has a frame if the
 * link register is saved in it, or is the address behind a call that the stub has made itself. Not static: the verifier checks it
 * once.
 */
__noinline int stub_state(__u32 number, __u32 is_called_by_interpreter)
{
	__u32 frame_bytes = is_called_by_interpreter ? SW_CALLED_BY_INTERPRETER_BYTES_MAX : SW_STUB_FRAME_BYTES_MAX;
	struct sw_slot *slot = bpf_map_lookup_elem(&slots, &number);
	struct sw_vm_scratch *scratch = vm_scratch(number);
	__u64 link, saved;

	if (!slot || !scratch ||
	    bpf_probe_read_user(scratch->hotspot.code, sizeof(scratch->hotspot.code), (void *)(slot->pc - SW_HOTSPOT_CODE_BEFORE)))
		return SW_STUB_HAS_NONE;
	if (instruction_at(scratch, 0) == SW_CODE_POP_PAIR)
		return SW_STUB_HAS_SAVED;
	switch (code_before(number, SW_HOTSPOT_CODE_BEFORE)) {
	case SW_CODE_PUSHED:
		return instruction_at(scratch, 0) == SW_CODE_SET_FP ? SW_STUB_HAS_SAVED : SW_STUB_HAS_FRAME;
	case SW_CODE_MADE:
		return SW_STUB_HAS_FRAME;
	case SW_CODE_REMOVED:
	case SW_CODE_RETURNED:
		return SW_STUB_HAS_NONE;
	case SW_CODE_KEPT_SP:
		return SW_STUB_HAS_KEPT_SP;
	}
	link = code_address(slot->callee_saved);
	if (slot->fp - slot->sp <= frame_bytes && try_read_word(slot, slot->fp + 8, &saved) &&
	    code_address(saved) == link)
		return SW_STUB_HAS_FRAME;
	if (is_after_near_call_of(link, slot->pc))
		return SW_STUB_HAS_NONE;
	return link - slot->pc + SW_STUB_CODE_BYTES_MAX < 2 * SW_STUB_CODE_BYTES_MAX ? SW_STUB_HAS_FRAME : SW_STUB_HAS_NONE;
}

/*
 * How many more words a frame has during a call: two where `add sp, sp, #16` follows it, as after C2's calls of native code, which
 * leave the return address there for debuggers. `code`: the SW_CALL_BYTES bytes in front of the return address, and those behind it.
 */
static __always_inline __s32 words_during_call(const __u64 *code)
{
	return code[0] >> 32 == SW_CODE_POP_TWO ? 2 : 0;
}

/*
 * Since 19, a method has `nop; movk xzr, #low; movk xzr, #high` behind most calls: the low 24 bits are the distance of the return
 * address from the blob (nativeInst_aarch64.hpp, NativePostCallNop). 0: it isn't there. `code`: as in words_during_call.
 */
static __always_inline __u32 stated_blob_distance(const __u64 *code)
{
	__u32 low = code[1], high = code[1] >> 32;

	if (code[0] >> 32 != 0xd503201f || (low & 0xffe0001f) != 0xf280001f || (high & 0xffe0001f) != 0xf280001f)
		return 0;
	return (low >> 5 & 0xffff) | (high >> 5 & 0xff) << 16;
}

#endif
