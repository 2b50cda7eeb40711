/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/*
 * The identity of HotSpot's methods. When classes are unloaded and others are loaded, methods, and all that belongs to them, are
 * often at the addresses of former ones: what tells them apart is the name of their class.
 */
#ifndef SIDEWINDER_HOTSPOT_METHOD_BPF_H
#define SIDEWINDER_HOTSPOT_METHOD_BPF_H

#include "cookie.bpf.h"
#include "table.bpf.h"
#include "vm_memory.bpf.h"

/* Bytes of a class's name that belong to the identity: the last ones, in which names that are made up differ. */
#define SW_CLASS_NAME_BYTES 64

_Static_assert(SW_CLASS_NAME_BYTES <= SW_VM_TEXT_BYTES, "the end of a class's name fits the scratch memory");

/*
 * The cookie of a method, by the address of its ConstMethod: a hash of that, and of the length and the end of its class's name. If
 * the name is not in memory, the cookie is no method's, so that the frame has no name. Not static: the verifier checks it once.
 */
__noinline int method_cookie(__u32 number, __u64 const_method)
{
	struct sw_slot *slot = bpf_map_lookup_elem(&slots, &number);
	const struct sw_runtime *runtime = slot ? process_hotspot(slot) : 0;
	struct sw_vm_scratch *scratch = vm_scratch(number);
	const struct sw_hotspot *hotspot;
	__u64 pool, class, name, hash;
	__u16 length;
	__u32 bytes;

	hash = add_to_cookie(0, const_method);
	if (!runtime || !scratch)
		return finished_cookie(hash);
	hotspot = &runtime->hotspot;
	if (bpf_probe_read_user(&pool, sizeof(pool), (void *)(const_method + hotspot->constants)) ||
	    bpf_probe_read_user(&class, sizeof(class), (void *)(pool + hotspot->pool_holder)) ||
	    bpf_probe_read_user(&name, sizeof(name), (void *)(class + hotspot->class_name)) ||
	    bpf_probe_read_user(&length, sizeof(length), (void *)(name + hotspot->symbol_length)))
		return finished_cookie(hash);
	bytes = length < SW_CLASS_NAME_BYTES ? length : SW_CLASS_NAME_BYTES;
	name += hotspot->symbol_body + length - bytes;
	__builtin_memset(scratch->text, 0, SW_CLASS_NAME_BYTES);
	/* Checked last, for verifiers that lose the bounds of values that compilers spill to the stack. */
	barrier_var(bytes);
	if (bytes > SW_CLASS_NAME_BYTES || bpf_probe_read_user(scratch->text, bytes, (void *)name))
		return finished_cookie(hash);
	hash = add_to_cookie(hash, length);
	for (__u32 i = 0; i < SW_CLASS_NAME_BYTES / sizeof(__u64); i++)
		hash = add_to_cookie(hash, scratch->text[i]);
	return finished_cookie(hash);
}

#endif
