/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/* Functions of JavaScript: from an object of V8's to what identifies the function. */
#ifndef SIDEWINDER_V8_FUNCTION_BPF_H
#define SIDEWINDER_V8_FUNCTION_BPF_H

#include "../cookie.bpf.h"
#include "../maps.bpf.h"
#include "../vm_memory.bpf.h"

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
	return scratch->v8.object[(offset / sizeof(__u64)) & (SW_V8_OBJECT_BYTES / sizeof(__u64) - 1)];
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
		    bpf_probe_read_user(scratch->v8.object, bytes, (void *)(object - SW_V8_IS_OBJECT)))
			return 0;
		if (is_v8_object(scratch->v8.object[0]))
			return object;
		object = scratch->v8.object[0] | SW_V8_IS_OBJECT;
	}
	return 0;
}

/* The type of the objects of a map, read or remembered in this sample; 0 if it can't be read. */
static __always_inline __u32 v8_type(struct sw_slot *slot, struct sw_vm_scratch *scratch, const struct sw_v8 *v8,
				     __u64 map)
{
	struct sw_vm_code *known = remembered_code(scratch, map);
	__u16 type;

	if (known->address == map && known->sample == (__u32)slot->time_ns)
		return known->cookie;
	if (bpf_probe_read_user(&type, sizeof(type), (void *)(map - SW_V8_IS_OBJECT + v8->map_type)))
		return 0;
	*known = (struct sw_vm_code){ .address = map, .sample = (__u32)slot->time_ns, .cookie = type };
	return type;
}

/*
 * Reads the SharedFunctionInfo at an address into the scratch memory, with its cookie. Scripts have numbers, and so have the
 * functions of a script: these and the position in the source tell a function from any other. False: it can't be read.
 */
static __always_inline bool read_v8_shared(struct sw_slot *slot, struct sw_vm_scratch *scratch, const struct sw_v8 *v8,
					   __u64 address)
{
	struct sw_v8_function *function = &scratch->v8.function;
	struct sw_vm_code *known = remembered_code(scratch, address);
	__u64 hash, positions, script, id = 0;
	__u32 literal;

	if ((known->address | SW_V8_IS_OBJECT) == address && known->sample == (__u32)slot->time_ns) {
		function->shared = address;
		function->cookie = known->cookie;
		function->has_script = is_v8_object(known->address);
		return true;
	}
	function->shared = read_v8_object(scratch, address, v8->literal);
	if (!function->shared)
		return false;
	script = v8_field(scratch, v8->script);
	positions = v8_field(scratch, v8->positions) & SW_V8_POSITIONS_MASK;
	literal = v8_field(scratch, v8->literal) >> (v8->literal % sizeof(__u64) * 8 & 63);
	if (!read_v8_object(scratch, script, v8->script_id))
		return false;
	function->has_script = v8_type(slot, scratch, v8, scratch->v8.object[0]) == v8->script_type;
	if (function->has_script)
		id = v8_field(scratch, v8->script_id);
	hash = add_to_cookie(0, id);
	hash = add_to_cookie(hash, positions);
	function->cookie = finished_cookie(add_to_cookie(hash, literal));
	if (function->shared == address)
		*known = (struct sw_vm_code){
			.address = address - !function->has_script,
			.sample = (__u32)slot->time_ns,
			.cookie = function->cookie,
		};
	return true;
}

/* Reads the function of a JSFunction into the scratch memory. Returns 0 if it is none. Not static: the verifier checks it once. */
__noinline int read_v8_function(__u32 number, __u64 object)
{
	struct sw_slot *slot = bpf_map_lookup_elem(&slots, &number);
	const struct sw_runtime *runtime = slot ? process_runtime(slot, SW_FRAME_V8) : 0;
	struct sw_vm_scratch *scratch = vm_scratch(number);
	struct sw_vm_link *known;
	__u32 type;

	if (!runtime || !scratch)
		return 0;
	known = remembered_link(scratch, object);
	if (known->from != object || known->sample != (__u32)slot->time_ns || known->number) {
		if (!read_v8_object(scratch, object, runtime->v8.shared))
			return 0;
		known->from = 0;
		known->to = v8_field(scratch, runtime->v8.shared);
		type = v8_type(slot, scratch, &runtime->v8, scratch->v8.object[0]);
		if (type < runtime->v8.first_function_type || type > runtime->v8.last_function_type)
			return 0;
		known->from = object;
		known->sample = slot->time_ns;
		known->number = 0;
	}
	return read_v8_shared(slot, scratch, &runtime->v8, known->to);
}

#endif
