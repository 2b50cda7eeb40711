/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/* Frames of stacks, and limits of walks. */
#ifndef SIDEWINDER_INTF_FRAMES_H
#define SIDEWINDER_INTF_FRAMES_H

#include "../arch.h"
#include <linux/types.h>

enum sw_frame_kind {
	SW_FRAME_NATIVE = 1, /* id: file id; address: offset in that file */
	SW_FRAME_KERNEL = 2, /* id: 0; address: in the kernel's address space */
	SW_FRAME_ANONYMOUS = 3, /* id: 0; address: in the process's address space, backed by no file */
	/* A function that CPython interprets. id: address of its code object; address: instruction << 32 | cookie of the code */
	SW_FRAME_CPYTHON = 4,
	/*
	 * A function of Java, or other code of HotSpot's. id: address of the Method if it is interpreted, otherwise of the blob of
	 * machine code; address: offset of the bytecode or of the pc << 32 | cookie
	 */
	SW_FRAME_HOTSPOT = 5,
	/*
	 * A JavaScript function that V8 runs. id: address of its SharedFunctionInfo; address: offset of the bytecode << 32 | cookie.
	 * With SW_FRAME_COMPILED, the function's machine code runs at an address, 0 if that is unknown. Its lowest bits are in those
	 * of the id, which are 0 in the address of an object; address: the rest of it << SW_V8_COOKIE_BITS | low bits of the cookie
	 */
	SW_FRAME_V8 = 6,
	/*
	 * A function of WebAssembly that V8 has compiled, or its code between such a function and one of JavaScript. id: address of the
	 * data of the function's instance; address and the lowest bits of the id: as of SW_FRAME_V8 with SW_FRAME_COMPILED, with a hash
	 * of the code in front of the instruction for a cookie
	 */
	SW_FRAME_V8_WASM = 7,
	SW_FRAME_V8_REGEXP = 8, /* a regular expression that V8 has compiled. id, address: 0 */
};

enum sw_frame_flag {
	/* The address is a return address; otherwise it is the address of the next instruction to execute. */
	SW_FRAME_RETURN_ADDRESS = 1,
	/* Found by guessing: only sanity checks support it, no unwind rule or proven frame pointer. */
	SW_FRAME_UNPROVEN = 2,
	/* Of a native frame: it is an activation of a runtime's loop, whose frames are those before it. */
	SW_FRAME_VM_LOOP = 4,
	/* In the place of frames of a runtime that could not be read. address: sw_vm_missing */
	SW_FRAME_MISSING = 8,
	/* Of a runtime's frame: machine code runs. Of HotSpot's: the id is the code's, and the place an offset in it. */
	SW_FRAME_COMPILED = 16,
	/* Of an anonymous frame, or a native one in V8's builtins: the code is V8's. */
	SW_FRAME_V8_CODE = 32,
	/*
	 * Not a frame: the frames of CPython before it, and behind another one of these, belong to one activation whose native
	 * frame was not found. address: what the activation keeps in it, 0: not known
	 */
	SW_FRAME_GROUP_END = 64,
};

/* One frame of any kind, native, kernel or interpreted. */
struct sw_frame {
	__u64 head; /* bits 0-7 kind, 8-15 flags, 16-63 file or runtime id */
	__u64 address;
};

/* Why frames of a runtime are missing. Append only, like outcomes. */
enum sw_vm_missing {
	SW_VM_NO_STATE = 0, /* the thread has no state of the runtime, or it could not be read */
	SW_VM_OTHER_THREAD, /* the state is another thread's */
	SW_VM_UNREADABLE, /* a frame, or the function in it, could not be read */
	SW_VM_NO_FRAMES, /* there are more activations of the loop than groups of frames */
	SW_VM_TOO_EARLY, /* the receiver did not know the runtime yet; the programs don't use this */
	SW_VM_BUSY, /* the sample interrupted a program that was taking another one */
	SW_VM_NO_CALLER, /* of a frame that is on the native stack: code may return to no address that could be its caller's */
	SW_VM_MISSING_COUNT
};

#define SW_VM_MISSING_PLACES 8 /* length of arrays by sw_vm_missing; a power of two */

#define SW_FRAME_FLAGS_SHIFT 8
#define SW_FRAME_ID_SHIFT 16
#define SW_VM_PLACE_SHIFT 32 /* in the address of a frame of a runtime */

/* Of frames of compiled functions of V8: two addresses of 48 bits leave this many for the cookie. */
#define SW_V8_COOKIE_BITS 19
#define SW_V8_PC_LOW_BITS 3 /* of the pc, in the id: objects are aligned to 8 bytes */
#define SW_V8_PC_LOW_MASK ((1u << SW_V8_PC_LOW_BITS) - 1)

/* The number of registers that a rule can encode. No architecture needs more. */
#define SW_RULE_REGISTERS 32
_Static_assert(SW_REGISTERS <= SW_RULE_REGISTERS + 1, "all but the pc have a number in rules");

/*
 * A caller's frame is above its callee's, unless the code switched stacks: signal handlers, Go's system stack, coroutines.
 * A stack has few of these switches. The limit keeps walks of stack memory that forms a loop short.
 */
#define SW_STACK_SWITCHES_MAX 8

/* The largest frame that is accepted from a frame pointer without an unwind rule. */
#define SW_UNPROVEN_FRAME_BYTES_MAX (1u << 20)

/* Functions are shorter than this: a call target that is lower than an instruction by more belongs to another function. */
#define SW_FUNCTION_BYTES_MAX (1u << 18)
/* An arbitrary word of a stack counts as a return address if it follows a call of a function that starts this near. */
#define SW_NEAR_BYTES_MAX (1u << 14)

/* How many words above the stack pointer of generated code are searched for a return address. */
#define SW_SEARCH_WORDS 128

#endif
