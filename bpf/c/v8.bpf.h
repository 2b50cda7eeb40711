/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/*
 * Frames of V8, the JavaScript engine of Node.js. All functions, interpreted or compiled, have their frames on the native stack,
 * with frame pointers. So a walk needs to find out only whose frame it is: a function's frame contains its JSFunction, which
 * leads to the SharedFunctionInfo: that is the function in the source, with its name.
 *
 * The garbage collector moves objects. While it does, the first word of an object that was moved is its new address, whose
 * lowest bit, unlike in the address of a Map, is not set.
 */
#ifndef SIDEWINDER_V8_BPF_H
#define SIDEWINDER_V8_BPF_H

#include "arch.bpf.h"
#include "arch/v8.bpf.h"
#include "call.bpf.h"
#include "cookie.bpf.h"
#include "current_frame.bpf.h"
#include "stack.bpf.h"
#include "table.bpf.h"
#include "v8/function.bpf.h"
#include "vm_memory.bpf.h"

/* Whether code, at an offset of the slot's file or generated, is V8's. */
static __always_inline bool is_v8_code(const struct sw_slot *slot, bool is_generated, __u64 file_offset)
{
	const struct sw_runtime *runtime = process_runtime(slot, SW_FRAME_V8);

	if (!runtime)
		return false;
	return is_generated || (runtime->file == slot->file &&
				file_offset - runtime->v8.builtins.start < runtime->v8.builtins.bytes);
}

#if SW_HAS_V8

#define SW_V8_BUILTIN_ALIGNMENT_BYTES 32 /* or more: where builtins start */

/* Reads what identifies the frame with this frame pointer: of a function, its context and its JSFunction. Zeros: unreadable. */
static __always_inline void read_v8_frame(struct sw_slot *slot, __u64 fp, __u64 *context, __u64 *function)
{
	*context = *function = 0;
	/* Below the stack pointer is what is left of a frame that was removed just now. */
	if (fp & 7 || fp - slot->sp + 8 > SW_UNPROVEN_FRAME_BYTES_MAX)
		return;
	if (!try_read_word(slot, fp + SW_V8_CONTEXT, context) || !try_read_word(slot, fp + SW_V8_FUNCTION, function))
		*context = *function = 0;
}

/* Whether frames with this word in the place of a context are WebAssembly's, with an instance in the place of a function. */
static __always_inline bool is_wasm_frame(const struct sw_v8 *v8, __u64 context)
{
	return context && (context == v8->wasm_frame || context == v8->wasm_to_js_frame);
}

/* Where the interpreted function whose frame is the current one is in its bytecode. */
static __always_inline __u32 v8_bytecode_offset(struct sw_slot *slot)
{
	__u64 bytecode, offset;

	if (!try_read_word(slot, slot->fp + SW_V8_BYTECODE, &bytecode) ||
	    !try_read_word(slot, slot->fp + SW_V8_BYTECODE_OFFSET, &offset))
		return 0;
	/* A handler stores it before it calls something. */
	if (slot->is_interrupted && slot->registers[SW_REG_V8_BYTECODE] == bytecode)
		return slot->registers[SW_REG_V8_BYTECODE_OFFSET];
	return is_v8_object(offset) ? 0 : offset >> SW_V8_SMI_SHIFT;
}

/* What V8's code in the current frame is. */
enum sw_v8_code {
	SW_V8_OTHER = 0, /* the native frame is all that there is */
	SW_V8_INTERPRETER, /* that runs the function whose frame is at the frame pointer */
	/* a builtin, which has no frame if the one at the frame pointer is a program's function's */
	SW_V8_BUILTIN,
	SW_V8_FUNCTION_CODE, /* a compiled function, of WebAssembly too, with its frame at the frame pointer */
	SW_V8_BEGINNING, /* a compiled function that is in its register, with a frame without it */
	/* Compiled functions without a frame, as sw_v8_frame_state. */
	SW_V8_NOT_YET,
	SW_V8_PUSHED,
	SW_V8_LEFT,
};

/* An sw_v8_code, of generated code. */
static __always_inline int classify_v8_generated(struct sw_slot *slot, struct sw_vm_scratch *scratch, __u16 wasm_marker)
{
	int state = SW_V8_FRAME_MADE;

	scratch->v8.instance = 0;
	if (!slot->is_interrupted)
		return SW_V8_FUNCTION_CODE;
	if (!bpf_probe_read_user(scratch->v8.code, sizeof(scratch->v8.code), (void *)(slot->pc - SW_V8_CODE_BEFORE)))
		state = v8_frame_state(slot->number, wasm_marker);
	if (state & SW_V8_FRAME_OF_WASM)
		scratch->v8.instance = slot->registers[SW_REG_V8_INSTANCE];
	switch (state & SW_V8_FRAME_STATE_MASK) {
	case SW_V8_FRAME_NOT_YET:
		return SW_V8_NOT_YET;
	case SW_V8_FRAME_PUSHED:
		return SW_V8_PUSHED;
	case SW_V8_FRAME_LEFT:
		return SW_V8_LEFT;
	case SW_V8_FRAME_EMPTY:
		return SW_V8_BEGINNING;
	case SW_V8_FRAME_ENDING:
		return SW_V8_FUNCTION_CODE;
	default:
		return slot->fp - slot->sp < -SW_V8_FUNCTION ? SW_V8_OTHER : SW_V8_FUNCTION_CODE;
	}
}

/* The same of any code of V8's. Not static: the verifier checks it once. */
__noinline int classify_v8_code(__u32 number)
{
	struct sw_slot *slot = bpf_map_lookup_elem(&slots, &number);
	const struct sw_runtime *runtime = slot ? process_runtime(slot, SW_FRAME_V8) : 0;
	struct sw_vm_scratch *scratch = vm_scratch(number);
	struct sw_found *found;
	__u64 word;

	if (!runtime || !scratch)
		return SW_V8_OTHER;
	found = place_of_frame(slot);
	if ((__u8)found->head == SW_FRAME_ANONYMOUS)
		return classify_v8_generated(slot, scratch, runtime->v8.wasm_frame);
	if (slot->fp - slot->sp < -SW_V8_FUNCTION)
		return SW_V8_OTHER;
	if (!(found->head & SW_FRAME_VM_LOOP << SW_FRAME_FLAGS_SHIFT))
		return SW_V8_BUILTIN;
	/* The interpreter's entry makes the frame of the function that it is going to run. */
	if (slot->is_interrupted && found->address - runtime->loop[0].start < runtime->loop[0].bytes &&
	    (!try_read_word(slot, slot->fp + SW_V8_BYTECODE, &word) || slot->registers[SW_REG_V8_BYTECODE] != word))
		return SW_V8_BUILTIN;
	/* A handler that calls anything but a function makes a frame, above the function's. */
	if (!try_read_word(slot, slot->fp + SW_V8_CONTEXT, &word) || !is_v8_object(word))
		return SW_V8_OTHER;
	return SW_V8_INTERPRETER;
}

/* Whether the return address of a function without a frame is where its state says; if so, the walk goes on there. */
static __always_inline bool find_v8_caller(struct sw_slot *slot, int code, __u64 *pc, __u64 *sp)
{
	__u64 at = slot->sp + (code == SW_V8_PUSHED ? sizeof(__u64) : 0);

	*sp = at + sizeof(__u64);
	return try_read_word(slot, at, pc) && is_after_call_of(*pc, 0);
}

/* A frame of compiled code at `pc`, which is 0 where it is unknown, and what it belongs to. */
static __always_inline struct sw_frame compiled_v8_frame(__u32 kind, __u32 flags, __u64 object, __u64 pc, __u32 cookie)
{
	object = (object - SW_V8_IS_OBJECT) & ((1ull << 48) - 1);
	return (struct sw_frame){
		.head = frame_head(kind, SW_FRAME_COMPILED | flags,
				   (object & ~(__u64)SW_V8_PC_LOW_MASK) | (pc & SW_V8_PC_LOW_MASK)),
		.address = pc >> SW_V8_PC_LOW_BITS << SW_V8_COOKIE_BITS | (cookie & ((1u << SW_V8_COOKIE_BITS) - 1)),
	};
}

/* The current frame, which is of WebAssembly, and has this instance. */
static __always_inline struct sw_frame wasm_frame(struct sw_slot *slot, __u64 instance)
{
	__u32 flags = slot->is_return_address ? SW_FRAME_RETURN_ADDRESS : 0;
	__u64 code = 0;

	/* Unreadable code has no name either. */
	bpf_probe_read_user(&code, sizeof(code), (void *)(slot->pc - sizeof(code)));
	slot->head.vm_frames_frames++;
	return compiled_v8_frame(SW_FRAME_V8_WASM, flags, instance, slot->pc, finished_cookie(add_to_cookie(0, code)));
}

/*
 * The frame of the function that was read last. `called_from`: of a function that has called the interrupted builtin, where that
 * returns to; 0 if it is unknown.
 */
static __always_inline struct sw_frame v8_frame(struct sw_slot *slot, const struct sw_vm_scratch *scratch, int code,
						__u64 called_from)
{
	__u64 shared = (scratch->v8.function.shared - SW_V8_IS_OBJECT) & ((1ull << 48) - 1);
	__u32 flags = code == SW_V8_BUILTIN || slot->is_return_address ? SW_FRAME_RETURN_ADDRESS : 0;

	slot->head.vm_frames_frames++;
	if (code == SW_V8_INTERPRETER)
		return (struct sw_frame){
			.head = frame_head(SW_FRAME_V8, 0, shared),
			.address = (__u64)v8_bytecode_offset(slot) << SW_VM_PLACE_SHIFT | scratch->v8.function.cookie,
		};
	return compiled_v8_frame(SW_FRAME_V8, flags, scratch->v8.function.shared,
				 code == SW_V8_BUILTIN ? called_from : slot->pc, scratch->v8.function.cookie);
}

/*
 * Pushes the frames in the scratch memory. Returns 0 if there is no room. Not static: the verifier checks it once, and not for
 * each kind of code.
 */
__noinline int push_v8_frames(__u32 number)
{
	struct sw_slot *slot = bpf_map_lookup_elem(&slots, &number);
	struct sw_vm_scratch *scratch = vm_scratch(number);

	if (!slot || !scratch || !push_frame(slot, scratch->v8.frames[0].head, scratch->v8.frames[0].address))
		return 0;
	return scratch->v8.frame_count < 2 || push_frame(slot, scratch->v8.frames[1].head, scratch->v8.frames[1].address);
}

/*
 * One step in a function of JavaScript, whose native frame is the current one, and for an interpreted one in the native frame of
 * the interpreter. Returns an sw_vm_step; SW_VM_NATIVE_IS_NEXT: it isn't a function's. Not static: the verifier checks it once.
 */
__noinline int step_in_v8_function(__u32 number)
{
	struct sw_slot *slot = bpf_map_lookup_elem(&slots, &number);
	const struct sw_runtime *runtime = slot ? process_runtime(slot, SW_FRAME_V8) : 0;
	struct sw_vm_scratch *scratch = vm_scratch(number);
	int code = classify_v8_code(number);
	__u64 context, function, instance = 0, pc = 0, sp = 0;
	struct sw_frame native, first;
	struct sw_found *found;

	if (!runtime || !scratch || code == SW_V8_OTHER)
		return SW_VM_NATIVE_IS_NEXT;
	/* A builtin without a frame has its return address on top of the stack, unless it pushes something. */
	if (code >= SW_V8_NOT_YET || (code == SW_V8_BUILTIN && slot->is_interrupted)) {
		if (!find_v8_caller(slot, code, &pc, &sp)) {
			if (code >= SW_V8_NOT_YET)
				return SW_VM_NATIVE_IS_NEXT;
			pc = 0;
		}
	}
	read_v8_frame(slot, code == SW_V8_LEFT ? slot->sp - sizeof(__u64) : slot->fp, &context, &function);
	if (code == SW_V8_FUNCTION_CODE || code == SW_V8_LEFT)
		instance = is_wasm_frame(&runtime->v8, context) ? function : 0;
	else if (code == SW_V8_BEGINNING || code == SW_V8_NOT_YET || code == SW_V8_PUSHED)
		instance = scratch->v8.instance;
	if (code == SW_V8_BEGINNING || code == SW_V8_NOT_YET || code == SW_V8_PUSHED)
		function = slot->registers[SW_REG_V8_FUNCTION];
	else if (!is_v8_object(context))
		function = 0;
	found = place_of_frame(slot);
	native = (struct sw_frame){ .head = found->head, .address = found->address };
	if (instance) {
		first = wasm_frame(slot, instance);
	} else if (code == SW_V8_FUNCTION_CODE && context && context == runtime->v8.regexp_frame) {
		first = (struct sw_frame){ .head = frame_head(SW_FRAME_V8_REGEXP, 0, 0) };
		slot->head.vm_frames_frames++;
	} else if (read_v8_function(number, function)) {
		/* The frame of a builtin may have a function of V8's own, which is the builtin. */
		if (code == SW_V8_BUILTIN && !scratch->v8.function.has_script)
			return SW_VM_NATIVE_IS_NEXT;
		first = v8_frame(slot, scratch, code, pc);
	} else if (code == SW_V8_INTERPRETER) {
		slot->head.vm_frames_missing[SW_VM_UNREADABLE]++;
		first = (struct sw_frame){ .head = frame_head(SW_FRAME_V8, SW_FRAME_MISSING, 0), .address = SW_VM_UNREADABLE };
	} else if (code >= SW_V8_NOT_YET) {
		first = native;
	} else {
		return SW_VM_NATIVE_IS_NEXT;
	}
	/* A builtin was called by the function, and the interpreter runs it. */
	scratch->v8.frame_count = code == SW_V8_BUILTIN || code == SW_V8_INTERPRETER ? 2 : 1;
	if (code == SW_V8_BUILTIN) {
		scratch->v8.frames[0] = native;
		scratch->v8.frames[1] = first;
	} else {
		scratch->v8.frames[0] = first;
		scratch->v8.frames[1] = native;
	}
	if (!push_v8_frames(number))
		return SW_VM_NO_ROOM;
	if (code >= SW_V8_NOT_YET) {
		enter_caller(slot, pc, sp, slot->fp);
		return SW_VM_STEPPED;
	}
	slot->head.frames_frame_pointer++;
	return step_by_frame_pointer(slot) ? SW_VM_STEPPED : SW_VM_WALK_ENDED;
}

/*
 * One step in a frame of the deoptimizer's, which returns to the start of a builtin: no call is in front of that, but the end of
 * another builtin, whose rule would be taken. SW_VM_NATIVE_IS_NEXT: it is another frame.
 */
static __always_inline int step_in_deoptimized(struct sw_slot *slot)
{
	struct sw_found *found = place_of_frame(slot);
	__u64 flags = (__u64)SW_FRAME_RETURN_ADDRESS << SW_FRAME_FLAGS_SHIFT;

	if (!slot->is_return_address || slot->pc % SW_V8_BUILTIN_ALIGNMENT_BYTES || (__u8)found->head != SW_FRAME_NATIVE ||
	    is_after_call_of(slot->pc, 0))
		return SW_VM_NATIVE_IS_NEXT;
	if (!push_frame(slot, found->head & ~flags, found->address))
		return SW_VM_NO_ROOM;
	slot->head.frames_frame_pointer++;
	return step_by_frame_pointer(slot) ? SW_VM_STEPPED : SW_VM_WALK_ENDED;
}

/*
 * One step in V8's code, whose native frame is the current one. Returns an sw_vm_step. Not static: the verifier checks it once.
 */
__noinline int step_in_v8(__u32 number)
{
	struct sw_slot *slot = bpf_map_lookup_elem(&slots, &number);
	int result = step_in_v8_function(number);

	return slot && result == SW_VM_NATIVE_IS_NEXT ? step_in_deoptimized(slot) : result;
}

#else

static __always_inline int step_in_v8(__u32 number)
{
	return SW_VM_NATIVE_IS_NEXT;
}

#endif

#endif
