/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/*
 * Frames of V8, the JavaScript engine of Node.js. All functions, interpreted or compiled, have their frames on the native stack,
 * with frame pointers. So a walk needs to find out only whose frame it is: a function's frame contains its JSFunction, which
 * leads to the SharedFunctionInfo: that is the function in the source, with its name.
 *
 * The garbage collector moves objects. While it does, the first word of an object that was moved is its new address, which, other
 * than that of a Map, has not its lowest bit set.
 */
#ifndef SIDEWINDER_V8_BPF_H
#define SIDEWINDER_V8_BPF_H

#include "arch.bpf.h"
#include "call.bpf.h"
#include "cookie.bpf.h"
#include "current_frame.bpf.h"
#include "stack.bpf.h"
#include "vm_memory.bpf.h"

#define SW_V8_IS_OBJECT 1ull
#define SW_V8_POSITIONS_MASK ((1ull << 48) - 1)
#define SW_V8_SMI_SHIFT 32

static __always_inline bool is_v8_object(__u64 word)
{
	return word & SW_V8_IS_OBJECT;
}

/* A word of the object that was read last. */
static __always_inline __u64 v8_field(const struct sw_vm_scratch *scratch, __u32 offset)
{
	return scratch->v8_object[(offset / sizeof(__u64)) & (SW_V8_OBJECT_BYTES / sizeof(__u64) - 1)];
}

/* Reads up to the end of a field. Returns the object's address, where it is now; 0: it can't be read. */
static __always_inline __u64 read_v8_object(struct sw_vm_scratch *scratch, __u64 object, __u32 field)
{
	__u32 bytes = field + sizeof(__u64);

#pragma unroll
	for (int i = 0; i < 2; i++) {
		/* Checked last, for verifiers that lose the bounds of values that compilers spill to the stack. */
		barrier_var(bytes);
		if (!is_v8_object(object) || bytes > SW_V8_OBJECT_BYTES ||
		    bpf_probe_read_user(scratch->v8_object, bytes, (void *)(object - SW_V8_IS_OBJECT)))
			return 0;
		if (is_v8_object(scratch->v8_object[0]))
			return object;
		object = scratch->v8_object[0] | SW_V8_IS_OBJECT;
	}
	return 0;
}

/* The entry for an object among those remembered in this sample: maps, with their type, and SharedFunctionInfos. */
static __always_inline struct sw_vm_code *remembered_object(struct sw_vm_scratch *scratch, __u64 object)
{
	return &scratch->codes[(__u32)(object >> 3) * SW_HASH_MULTIPLIER >> (32 - SW_VM_CODES_BITS)];
}

/* The type of the objects of a map; 0 if it can't be read. Not static: the verifier checks it once. */
__noinline int v8_type(__u32 number, __u64 map)
{
	struct sw_slot *slot = bpf_map_lookup_elem(&slots, &number);
	const struct sw_runtime *runtime = slot ? process_runtime(slot) : 0;
	struct sw_vm_scratch *scratch = vm_scratch(number);
	struct sw_vm_code *known;
	__u16 type;

	if (!runtime || !scratch || !is_v8_object(map))
		return 0;
	known = remembered_object(scratch, map);
	if (known->address == map && known->sample == (__u32)slot->time_ns)
		return known->cookie;
	if (bpf_probe_read_user(&type, sizeof(type), (void *)(map - SW_V8_IS_OBJECT + runtime->v8.map_type)))
		return 0;
	*known = (struct sw_vm_code){ .address = map, .sample = (__u32)slot->time_ns, .cookie = type };
	return type;
}

/*
 * Reads the SharedFunctionInfo at an address into the scratch memory, with its cookie. Scripts have numbers, and so have the
 * functions of a script: these and the position in the source tell a function from any other. Returns 0 if it can't be read. Not
 * static: the verifier checks it once.
 */
__noinline int read_v8_shared(__u32 number, __u64 address)
{
	struct sw_slot *slot = bpf_map_lookup_elem(&slots, &number);
	const struct sw_runtime *runtime = slot ? process_runtime(slot) : 0;
	struct sw_vm_scratch *scratch = vm_scratch(number);
	struct sw_v8_function *function;
	__u64 hash, positions, script, id = 0;
	struct sw_vm_code *known;
	__u32 literal;

	if (!runtime || !scratch)
		return 0;
	function = &scratch->v8_function;
	known = remembered_object(scratch, address);
	if ((known->address | SW_V8_IS_OBJECT) == address && known->sample == (__u32)slot->time_ns) {
		function->shared = address;
		function->cookie = known->cookie;
		function->has_script = is_v8_object(known->address);
		return 1;
	}
	function->shared = read_v8_object(scratch, address, runtime->v8.literal);
	if (!function->shared)
		return 0;
	script = v8_field(scratch, runtime->v8.script);
	positions = v8_field(scratch, runtime->v8.positions) & SW_V8_POSITIONS_MASK;
	literal = v8_field(scratch, runtime->v8.literal) >> (runtime->v8.literal % sizeof(__u64) * 8 & 63);
	if (!read_v8_object(scratch, script, runtime->v8.script_id))
		return 0;
	function->has_script = v8_type(number, scratch->v8_object[0]) == runtime->v8.script_type;
	if (function->has_script)
		id = v8_field(scratch, runtime->v8.script_id);
	hash = add_to_cookie(0, id);
	hash = add_to_cookie(hash, positions);
	function->cookie = finished_cookie(add_to_cookie(hash, literal));
	if (function->shared == address)
		*known = (struct sw_vm_code){
			.address = address - !function->has_script,
			.sample = (__u32)slot->time_ns,
			.cookie = function->cookie,
		};
	return 1;
}

/* Reads the function of a JSFunction into the scratch memory. Returns 0 if it is none. Not static: the verifier checks it once. */
__noinline int read_v8_function(__u32 number, __u64 object)
{
	struct sw_slot *slot = bpf_map_lookup_elem(&slots, &number);
	const struct sw_runtime *runtime = slot ? process_runtime(slot) : 0;
	struct sw_vm_scratch *scratch = vm_scratch(number);
	__u64 shared;
	__u32 type;

	if (!runtime || !scratch || !read_v8_object(scratch, object, runtime->v8.shared))
		return 0;
	shared = v8_field(scratch, runtime->v8.shared);
	type = v8_type(number, scratch->v8_object[0]);
	if (type < runtime->v8.first_function_type || type > runtime->v8.last_function_type)
		return 0;
	return read_v8_shared(number, shared);
}

/*
 * Reads the function whose frame has this frame pointer into the scratch memory. Returns 0 if it is no function's. Not static:
 * the verifier checks it once.
 */
__noinline int read_v8_frame(__u32 number, __u64 fp)
{
	struct sw_slot *slot = bpf_map_lookup_elem(&slots, &number);
	__u64 context, function;

	if (!slot || fp & 7 || fp - slot->sp + 64 > SW_UNPROVEN_FRAME_BYTES_MAX)
		return 0;
	if (!try_read_word(slot, fp + SW_V8_CONTEXT, &context) || !try_read_word(slot, fp + SW_V8_FUNCTION, &function))
		return 0;
	return is_v8_object(context) && read_v8_function(number, function);
}

static __always_inline int push_v8_frame(struct sw_slot *slot, const struct sw_vm_scratch *scratch, __u32 flags,
					 __u32 place)
{
	__u64 id = (scratch->v8_function.shared - SW_V8_IS_OBJECT) & ((1ull << 48) - 1);

	slot->head.vm_frames++;
	return push_frame(slot, frame_head(SW_FRAME_V8, flags, id),
			  (__u64)place << SW_VM_PLACE_SHIFT | scratch->v8_function.cookie);
}

static __always_inline int leave_v8_frame(struct sw_slot *slot)
{
	slot->head.frames_by_frame_pointer++;
	return step_by_frame_pointer(slot) ? SW_VM_STEPPED : SW_VM_WALK_ENDED;
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

/*
 * Pushes the interrupted builtin, if it has no frame of its own: then the frame at the frame pointer is that of a function of the
 * program, which follows. Other builtins' frames have a function of V8's own, or none.
 */
static __always_inline int step_in_v8_builtin(struct sw_slot *slot, struct sw_vm_scratch *scratch,
					      const struct sw_found *found)
{
	if (slot->fp - slot->sp < -SW_V8_FUNCTION || !read_v8_frame(slot->number, slot->fp) ||
	    !scratch->v8_function.has_script)
		return SW_VM_GROUP_ENDED;
	if (!push_frame(slot, found->head, found->address) ||
	    !push_v8_frame(slot, scratch, SW_FRAME_COMPILED | SW_FRAME_RETURN_ADDRESS, 0))
		return SW_VM_NO_ROOM;
	return leave_v8_frame(slot);
}

/* Pushes the interrupted function, which has no frame yet, or no more, and steps to its caller. */
static __always_inline int step_without_v8_frame(struct sw_slot *slot, struct sw_vm_scratch *scratch, __u32 state)
{
	__u64 ra_at = slot->sp + (state == SW_V8_FRAME_PUSHED ? sizeof(__u64) : 0), pc;
	bool is_function;

	if (!try_read_word(slot, ra_at, &pc) || !is_after_call_of(pc, 0))
		return SW_VM_GROUP_ENDED;
	if (state == SW_V8_FRAME_LEFT)
		is_function = read_v8_frame(slot->number, slot->sp - sizeof(__u64));
	else
		is_function = read_v8_function(slot->number, slot->registers[SW_REG_V8_FUNCTION]);
	if (is_function ? !push_v8_frame(slot, scratch, SW_FRAME_COMPILED, (__u32)slot->pc) :
			  !push_frame(slot, frame_head(SW_FRAME_ANONYMOUS, 0, 0), slot->pc))
		return SW_VM_NO_ROOM;
	enter_caller(slot, pc, ra_at + sizeof(__u64), slot->fp);
	return SW_VM_STEPPED;
}

/* One step in code that V8 has generated. */
static __always_inline int step_in_v8_compiled(struct sw_slot *slot, struct sw_vm_scratch *scratch,
					       const struct sw_found *found)
{
	__u32 flags = SW_FRAME_COMPILED | (slot->is_return_address ? SW_FRAME_RETURN_ADDRESS : 0);
	__u32 state = SW_V8_FRAME_MADE;
	int is_function;

	if (slot->is_interrupted && !bpf_probe_read_user(scratch->v8_code, sizeof(scratch->v8_code),
							 (void *)(slot->pc - SW_V8_CODE_BEFORE)))
		state = v8_frame_state(slot->number);
	if (state == SW_V8_FRAME_NOT_YET || state == SW_V8_FRAME_PUSHED || state == SW_V8_FRAME_LEFT)
		return step_without_v8_frame(slot, scratch, state);
	if (state == SW_V8_FRAME_EMPTY)
		is_function = read_v8_function(slot->number, slot->registers[SW_REG_V8_FUNCTION]);
	else if (state == SW_V8_FRAME_MADE && slot->fp - slot->sp < -SW_V8_FUNCTION)
		is_function = 0;
	else
		is_function = read_v8_frame(slot->number, slot->fp);
	if (!is_function)
		return SW_VM_GROUP_ENDED;
	if (!push_v8_frame(slot, scratch, flags, (__u32)slot->pc))
		return SW_VM_NO_ROOM;
	return leave_v8_frame(slot);
}

/*
 * One step in V8's code, whose native frame is the current one: a function of JavaScript, and for an interpreted one the native
 * frame of the interpreter. Returns an sw_vm_step; SW_VM_GROUP_ENDED: it isn't a function's. Not static: the verifier checks it
 * once.
 */
__noinline int step_in_v8(__u32 number)
{
	struct sw_slot *slot = bpf_map_lookup_elem(&slots, &number);
	const struct sw_runtime *runtime = slot ? process_runtime(slot) : 0;
	struct sw_vm_scratch *scratch = vm_scratch(number);
	struct sw_found *found;
	__u64 context, bytecode;
	__u32 place;

	if (!runtime)
		return SW_VM_GROUP_ENDED;
	found = place_of_frame(slot);
	if ((__u8)found->head == SW_FRAME_ANONYMOUS)
		return scratch ? step_in_v8_compiled(slot, scratch, found) : SW_VM_GROUP_ENDED;
	if (!(found->head & SW_FRAME_VM_LOOP << SW_FRAME_FLAGS_SHIFT))
		return scratch ? step_in_v8_builtin(slot, scratch, found) : SW_VM_GROUP_ENDED;
	/* The interpreter's entry makes the frame of the function that it is going to run. */
	if (scratch && slot->is_interrupted && found->address - runtime->loop[0].start < runtime->loop[0].bytes &&
	    (!try_read_word(slot, slot->fp + SW_V8_BYTECODE, &bytecode) ||
	     slot->registers[SW_REG_V8_BYTECODE] != bytecode))
		return step_in_v8_builtin(slot, scratch, found);
	/* A handler that calls something else than a function makes a frame of its own, above that of the function. */
	if (slot->fp - slot->sp < -SW_V8_FUNCTION ||
	    !try_read_word(slot, slot->fp + SW_V8_CONTEXT, &context) || !is_v8_object(context))
		return SW_VM_GROUP_ENDED;
	if (scratch && read_v8_frame(number, slot->fp)) {
		place = v8_bytecode_offset(slot);
		if (!push_v8_frame(slot, scratch, 0, place))
			return SW_VM_NO_ROOM;
	} else if (push_missing(slot, SW_FRAME_V8, scratch ? SW_VM_UNREADABLE : SW_VM_BUSY) == SW_VM_NO_ROOM) {
		return SW_VM_NO_ROOM;
	}
	if (!push_frame(slot, found->head, found->address))
		return SW_VM_NO_ROOM;
	return leave_v8_frame(slot);
}

#endif
