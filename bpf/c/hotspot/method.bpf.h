/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/*
 * The identity of HotSpot's methods. When classes are unloaded and others are loaded, methods, and all that belongs to them, are
 * often at the addresses of former ones: what tells them apart is the name of their class.
 */
#ifndef SIDEWINDER_HOTSPOT_METHOD_BPF_H
#define SIDEWINDER_HOTSPOT_METHOD_BPF_H

#include "../cookie.bpf.h"
#include "../maps.bpf.h"
#include "../vm_memory.bpf.h"

/* The length of the symbol that was read last. */
static __always_inline __u32 symbol_length(const struct sw_vm_scratch *scratch, __u32 at)
{
	return *(const __u16 *)(scratch->hotspot.symbol + (at & (SW_SYMBOL_BYTES - 1)));
}

/*
 * The hash of the length and the end of the name of a method's class, by the address of its ConstMethod. 0: the name is not in
 * memory. Not static: the verifier checks it once.
 */
__noinline int class_name_hash(__u32 number, __u64 const_method)
{
	struct sw_slot *slot = bpf_map_lookup_elem(&slots, &number);
	const struct sw_runtime *runtime = slot ? process_runtime(slot, SW_FRAME_HOTSPOT) : 0;
	struct sw_vm_scratch *scratch = vm_scratch(number);
	const struct sw_hotspot *hotspot;
	__u64 pool, class, name, hash, word;
	__u32 read, length, body, bytes;

	if (!runtime || !scratch)
		return 0;
	hotspot = &runtime->hotspot;
	if (bpf_probe_read_user(&pool, sizeof(pool), (void *)(const_method + hotspot->constants)) ||
	    bpf_probe_read_user(&class, sizeof(class), (void *)(pool + hotspot->pool_holder)) ||
	    bpf_probe_read_user(&name, sizeof(name), (void *)(class + hotspot->class_name)))
		return 0;
	/* Most names are short: one read has the length and all of the text. */
	read = read_object(scratch->hotspot.symbol, SW_SYMBOL_BYTES, name);
	length = symbol_length(scratch, hotspot->symbol_length);
	if (read < hotspot->symbol_length + sizeof(__u16))
		return 0;
	bytes = length < SW_CLASS_NAME_BYTES ? length : SW_CLASS_NAME_BYTES;
	body = hotspot->symbol_body + length - bytes;
	if (body + bytes > read) {
		name += body;
		body = 0;
		/* Checked last, for verifiers that lose the bounds of values that compilers spill to the stack. */
		barrier_var(bytes);
		if (bytes > SW_CLASS_NAME_BYTES || bpf_probe_read_user(scratch->hotspot.symbol, bytes, (void *)name))
			return 0;
	}
	hash = add_to_cookie(0, length);
	/* Into values that the verifier doesn't track: it would check the loop for each. */
	barrier_var(body);
	barrier_var(bytes);
	for (__u32 i = 0; i < SW_CLASS_NAME_BYTES / sizeof(__u64); i++) {
		word = *(const __u64 *)(scratch->hotspot.symbol + (body & (SW_SYMBOL_BYTES - 1)) + i * sizeof(word));
		hash = add_to_cookie(hash, first_bytes(word, bytes));
		bytes -= bytes < sizeof(word) ? bytes : sizeof(word);
	}
	return finished_cookie(hash);
}

/*
 * The cookie of a method, by the address of its ConstMethod: a hash of that, and of its class's name. If the name is not in memory,
 * the cookie is no method's, so that the frame has no name. `class`: an address that all methods of its class have in common, by
 * which the name is remembered for this sample; 0: it is unknown.
 */
static __always_inline __u32 method_cookie(struct sw_slot *slot, struct sw_vm_scratch *scratch, __u64 const_method,
					   __u64 class)
{
	struct sw_vm_code *known = remembered_code(scratch, class);
	__u32 now = slot->time_ns, name;

	if (class && known->address == class && known->sample == now) {
		name = known->cookie;
	} else {
		name = class_name_hash(slot->number, const_method);
		if (class)
			*known = (struct sw_vm_code){ .address = class, .sample = now, .cookie = name };
	}
	return finished_cookie(add_to_cookie(add_to_cookie(0, const_method), name));
}

#endif
