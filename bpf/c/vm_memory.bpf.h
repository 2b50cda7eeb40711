/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/*
 * What the walks of all runtimes share: the results of steps, where the receiver has described a process's runtime, a window on
 * the memory in which it keeps its frames, and what was read of its objects.
 */
#ifndef SIDEWINDER_VM_MEMORY_BPF_H
#define SIDEWINDER_VM_MEMORY_BPF_H

#include "maps.bpf.h"
#include "stack.bpf.h"
#include "table.bpf.h"

/* What a step in the code of a runtime, whose native frame is the current one, has done. */
enum sw_vm_step {
	SW_VM_NATIVE_IS_NEXT = 0, /* nothing: all frames of the runtime that belong before the native frame are in the stack */
	SW_VM_UNFINISHED, /* the native frame is still the current one, and there may be more frames before it */
	SW_VM_STEPPED, /* all of the native frame is in the stack, and its caller is the current one */
	SW_VM_WALK_ENDED, /* there is no caller; the slot's outcome says why */
	SW_VM_NO_ROOM, /* the ring is full */
};

/* A runtime of the slot's process, at an offset in the chunk of its ranges; null if that is 0. */
static __always_inline const struct sw_runtime *runtime_at(const struct sw_slot *slot, __u32 at)
{
	__u32 offset = at & (SW_CHUNK_BYTES - 8);
	__u8 *chunk;

	if (!at)
		return 0;
	chunk = arena_chunk(location_chunk(slot->ranges));
	if (!chunk || offset > SW_CHUNK_BYTES - sizeof(struct sw_runtime))
		return 0;
	return (const struct sw_runtime *)(chunk + offset);
}

/* The runtime of the slot's process that has frames of this kind; null: it doesn't run there. */
static __always_inline const struct sw_runtime *process_runtime(const struct sw_slot *slot, const __u32 kind)
{
	if (kind == SW_FRAME_HOTSPOT)
		return runtime_at(slot, slot->hotspot_offset);
	return slot->runtime_kind == kind ? runtime_at(slot, slot->runtime_offset) : 0;
}

static __always_inline bool read_vm_window(struct sw_slot *slot, struct sw_vm_scratch *scratch, __u64 start, __u32 bytes)
{
	slot->vm_window.start = start;
	slot->vm_window.bytes = bytes;
	/* Checked last, for verifiers that lose the bounds of values that compilers spill to the stack. */
	barrier_var(bytes);
	if (bytes <= SW_VM_WINDOW_BYTES && !bpf_probe_read_user(scratch->window, bytes, (void *)start))
		return true;
	slot->vm_window.bytes = 0;
	return false;
}

/*
 * Makes the window contain `bytes` bytes at an address. A read costs about the same for 8 bytes as for the whole window, and
 * callers' frames are usually below: the window ends with these bytes.
 */
static __always_inline bool read_vm(struct sw_slot *slot, struct sw_vm_scratch *scratch, __u64 address, __u32 bytes)
{
	__u64 offset = address - slot->vm_window.start, page = address & ~(SW_PAGE_BYTES - 1ull);
	__u32 bytes_of_page = address - page + bytes;

	if (offset < slot->vm_window.bytes && offset + bytes <= slot->vm_window.bytes)
		return true;
	if (read_vm_window(slot, scratch, address + bytes - SW_VM_WINDOW_BYTES, SW_VM_WINDOW_BYTES))
		return true;
	/* The page below may be unmapped or absent. A longer part of the address's own page was just tried. */
	return bytes_of_page < SW_VM_WINDOW_BYTES && read_vm_window(slot, scratch, page, bytes_of_page);
}

/* The word at an address in the window. */
static __always_inline __u64 vm_word(const struct sw_slot *slot, const struct sw_vm_scratch *scratch, __u64 address)
{
	__u32 at = (address - slot->vm_window.start) & (SW_VM_WINDOW_BYTES - 1);

	return at <= SW_VM_WINDOW_BYTES - sizeof(__u64) ? *(const __u64 *)(scratch->window + at) : 0;
}

/* The byte at an address in the window. */
static __always_inline __u8 vm_byte(const struct sw_slot *slot, const struct sw_vm_scratch *scratch, __u64 address)
{
	return scratch->window[(address - slot->vm_window.start) & (SW_VM_WINDOW_BYTES - 1)];
}

/* The entry for an address among the cookies and hashes that are remembered. */
static __always_inline struct sw_vm_code *remembered_code(struct sw_vm_scratch *scratch, __u64 address)
{
	return &scratch->codes[(__u32)(address >> 3) * SW_HASH_MULTIPLIER >> (32 - SW_VM_CODES_BITS)];
}

/* The entry for where the object at an address leads. */
static __always_inline struct sw_vm_link *remembered_link(struct sw_vm_scratch *scratch, __u64 from)
{
	return &scratch->links[(__u32)(from >> 3) * SW_HASH_MULTIPLIER >> (32 - SW_VM_LINKS_BITS)];
}

#endif
